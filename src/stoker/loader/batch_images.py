"""Finds pictures that no step looks at between the image stage and the batch, so that a device may make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..plan.columns import Step
from ..plan.field_effects import image_spec
from ..plan.nodes import Cached, Image, verb_of
from ..plan.plan import Plan
from ..source.chunk import FieldSpec


@dataclass(frozen=True, slots=True)
class BatchImage:
    """An image step of a plan whose pictures nothing looks at before the batch is complete.

    `at` is its place among the plan's last steps, `field` the name of its pictures when rows are joined, `spec` what one is.
    """

    at: int
    step: Step[Image]
    field: str
    spec: FieldSpec


def batch_images(plan: Plan) -> Iterator[BatchImage | str]:
    """The image steps of a plan in their order: each as what goes to a batch, or why it does not, in words."""
    if plan.batch is None or plan.specs is None or plan.work.columns is None:
        yield "there is no batch()" if plan.batch is None else "a function decides which fields there are"
        return
    images = [at for at, step in enumerate(plan.work.steps) if isinstance(step.node, Image)]
    if not images:
        yield "no image() decodes a field"
    for at in images:
        yield _image_at(plan, at)


def _image_at(plan: Plan, at: int) -> BatchImage | str:
    step: Step[Image] = plan.work.steps[at]  # type: ignore[assignment]
    node, told, column = step.node, repr(step.node.field), step.column(step.node.field)
    spec = image_spec(node, step.given(node.field))
    if not spec.fixed:
        return f"the images of {told} vary in size"
    for later in plan.work.steps[at + 1 :]:
        if later.node.effect.whole or isinstance(later.node, Cached) or column in later.reads:
            return f"{verb_of(later.node)}() comes after image({told}) and looks at its pixels"
    names = [name for name, each in (plan.work.columns or {}).items() if each == column]
    if len(names) != 1:
        return f"the field {told} is not in the batch" if not names else f"the field {told} has several names in the batch"
    if plan.batch is not None and names[0] in dict(plan.batch.pad):
        return f"batch(pad=...) names the field {names[0]!r}"
    return BatchImage(at, step, names[0], spec)
