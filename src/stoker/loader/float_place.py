"""Where the floats of pictures are made: on the device that receives the batches if it can, and rows are then made as bytes.

The plan for such rows differs from the user's only in its last steps. Names, random numbers, states and what other programs are
asked for remain those of the user's plan.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from ..device import Output
from ..device.framework_output import PixelFloats
from ..errors import DeviceError, message_of
from ..image.normalize import Normalize, ToFloat
from ..plan.field_effects import image_spec
from ..plan.nodes import Image
from ..plan.plan import Plan
from ..stage.image import program_of
from .batch_images import BatchImage, batch_images

_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class FloatPlace:
    """How rows are made: the `plan` that workers follow; and `told`, the text for `explain`, if there is something to say."""

    plan: Plan
    told: str = ""


def float_place(plan: Plan, output: Output) -> FloatPlace:
    """Let the device that batches go to make the floats of pictures, if it can and no step needs them earlier."""
    images = {
        name: image for image in batch_images(plan) if isinstance(image, BatchImage) and (name := _handed_over_as(plan, image))
    }
    if not images:
        return FloatPlace(plan)
    names = ", ".join(images)
    try:
        if not output.expect_pixels({name: _floats_of(plan, image) for name, image in images.items()}):
            return FloatPlace(plan)
    except DeviceError as error:
        why = message_of(error)
        _log.info("%s: floats are made on the CPU, and four times as many bytes are copied to the GPU (%s)", names, why)
        return FloatPlace(plan, f"{names}: on the CPU, because {why}")
    return FloatPlace(_with_pixels(plan, [*images.values()]), f"{names}: on the GPU, after the pixels are copied as bytes")


def _handed_over_as(plan: Plan, image: BatchImage) -> str | None:
    """The name under which floats of an image step are handed over; None: they are not floats, or somebody needs them before."""
    steps, columns = plan.finishing.steps, plan.finishing.columns
    used = any(step.node.effect.whole or image.field in step.reads for step in steps)
    if image.step.node.out != "float32" or used or columns is None:
        return None
    names = [name for name, column in columns.items() if column == image.field]
    return names[0] if len(names) == 1 else None


def _floats_of(plan: Plan, image: BatchImage) -> PixelFloats:
    program = program_of(image.step, plan.seed)
    return PixelFloats(program.planar, program.scale, program.bias)


def _with_pixels(plan: Plan, images: list[BatchImage]) -> Plan:
    """The same plan, these of its steps making uint8 with channels last."""
    steps, specs = list(plan.work.steps), dict(plan.specs or {})
    for image in images:
        node = _as_pixels(image.step.node)
        steps[image.at] = replace(image.step, node=node)
        specs[image.field] = image_spec(node, image.step.given(node.field))
    return replace(plan, work=replace(plan.work, steps=tuple(steps)), specs=specs)


def _as_pixels(node: Image) -> Image:
    """What comes before the floats; these are made last, so that what is left draws the same random numbers."""
    ops = tuple(op for op in node.ops if not isinstance(op, (Normalize, ToFloat)))
    return replace(node, ops=ops, layout="hwc", out="uint8")
