"""Which pictures of a plan can be decoded on a device, and why others cannot. Nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..device import Output
from ..engine.core_turns import CoreTurns
from ..errors import ConfigError, DeviceError
from ..image.fusion import PassWork, passes
from ..image.geometry import CropBox
from ..plan.field_effects import image_spec
from ..plan.nodes import Blend, verb_of
from ..plan.plan import Plan
from ..sizes import counted, parse_bytes, show_bytes
from ..source.source import Source
from .batch_images import BatchImage, batch_images
from .thread_count import default_threads

if TYPE_CHECKING:
    from ..device.device_decode import DeviceDecoding
    from .loader_options import LoaderOptions

#: what `loader(decode_on=...)` takes
PLACES = ("cpu", "cuda", "auto")
#: what decoding may take of a device's memory, unless the user says
DEVICE_MEMORY = "2GB"
#: loads of pictures on the device at a time, for each of which a thread waits: while some are copied, others are decoded
LOADS = 6


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """The field of a plan's batches whose pictures can be decoded on a device; `shape` and `dtype` are those of one picture.

    `step` is the name of the step that makes it, as statistics have it; `rest` names the first operation that is left to the CPU,
    if there is one.
    """

    field: str
    column: str
    shape: tuple[int, ...]
    dtype: str
    step: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Where a loader's pictures are decoded; `device` None: by the CPU alone.

    Workers are `threads` of the `executor`, `turns` of which compute at a time, limited by `cores`. `told` is the text for
    `explain`, `reason` that for statistics.
    """

    device: DeviceDecoding | None = None
    automatic: bool = False
    executor: str = ""
    threads: int | None = None
    turns: int | None = None
    cores: CoreTurns | None = None
    step: str = ""
    told: str = ""
    reason: str = ""


def decoding_of(plan: Plan, output: Output, options: LoaderOptions) -> Decoding:
    """Where to decode, as the user asked: raises where that is "cuda" and cannot be, and says why where it is "auto"."""
    decode_on, executor = options.decode_on, options.executor
    budget, kept_bytes = options.device_memory_bytes, options.pinned_memory_bytes
    check_place(decode_on, keeps=bool(kept_bytes))
    if decode_on == "cpu":
        return Decoding()
    found: DeviceImage | str = why_not_by(executor, options.processes, options.elsewhere) or device_image(plan)
    memory = output.device_memory()
    if memory is None:
        found = "the GPU decodes only torch batches that are on it; use device='cuda'"
    try:
        if isinstance(found, str) or memory is None:
            raise ConfigError(f"loader(decode_on={decode_on!r}): {found}; with 'auto' or 'cpu' the CPU decodes")
        alone = executor == "inline"
        turns = None if alone else options.threads or default_threads(plan).threads
        cores = None if turns is None else CoreTurns(turns)
        from ..device.device_check import check_device
        from ..device.device_decode import DeviceDecoding, LoadSize

        size, automatic = LoadSize(budget, 1 if alone else LOADS, kept_bytes=kept_bytes), decode_on == "auto"
        check_device(memory)
        device = DeviceDecoding(memory, found.field, found.shape, found.dtype, size, cores, optional=automatic)
    except (ConfigError, DeviceError) as error:
        if decode_on == "cuda":
            raise
        told = f"on the CPU, because {found if isinstance(found, str) else error}"
        return Decoding(told=told, reason=told)
    told = explain_decoding(plan, decode_on, budget, kept_bytes or None)
    reason = "on the CPU until its cores are the limit" if automatic else "on the GPU, as requested"
    executor, workers = (executor, None) if turns is None else ("threads", turns + size.loads)
    return Decoding(device, automatic, executor, workers, turns, cores, found.step, told, reason)


def check_place(decode_on: Any, *, keeps: bool = False) -> None:
    """Raise where this is not a place to decode on, or not one for which pictures are kept in pinned memory."""
    if not isinstance(decode_on, str) or decode_on not in PLACES:
        raise ConfigError(f"loader(decode_on={decode_on!r}): must be 'cpu', 'cuda' or 'auto'")
    if keeps and decode_on == "cpu":
        raise ConfigError("pinned_memory keeps pictures for the GPU to decode; use decode_on='cuda' or 'auto', or omit it")


def why_not_by(executor: str, processes: int | None, elsewhere: bool) -> str | None:
    """Why the workers cannot decode on a device; None: they can."""
    if elsewhere:
        return "rows are made by other programs (workers_at, pool)"
    if processes is not None or executor not in ("auto", "threads", "inline"):
        return "work runs in other processes; omit processes, and use executor='threads'"
    return None


def device_image(plan: Plan) -> DeviceImage | str:
    """What can be decoded on a device; if nothing can, the reason in words."""
    if not plan.counted:
        return "samples are filtered, expanded or streamed on their way, so they are not decoded into a batch's memory"
    found: DeviceImage | str = ""
    for image in batch_images(plan):
        found = image if isinstance(image, str) else _decoded(plan, image)
        if isinstance(found, DeviceImage):
            break
    return found


def _decoded(plan: Plan, image: BatchImage) -> DeviceImage | str:
    node, told = image.step.node, repr(image.step.node.field)
    given, held = image.step.given(node.field), image.step.held(node.field)
    if given is None or given.kind != "bytes" or held is None or held.stored is None:
        return f"the field {told} does not hold JPEGs as they are stored"
    for last in plan.finishing.steps:
        if not isinstance(last.node, Blend) or last.column(last.node.image) != image.field:
            return f"{verb_of(last.node)}() comes after batch()"
    if node.lenient:
        return f"image({told}, lenient=True) decodes damaged images, too, which only the CPU does"
    made = passes(node.ops)
    leading = made.pop(0).operations if made and made[0].work is PassWork.RESAMPLE else ()
    rest = type(made[0].operations[0]).__name__ if made else ""
    if rest and image_spec(replace(node, ops=leading), given).shape != image.spec.shape:
        return f"in image({told}) operations from {rest} on set the size of the picture, and only the CPU does those"
    if any(isinstance(op, CropBox) for each in made for op in each.operations):
        return f"image({told}) crops to boxes after {rest}, which only the CPU does"
    shape = tuple(side for side in image.spec.shape if side is not None)
    return DeviceImage(image.field, image.step.column(node.field), shape, image.spec.dtype, f"image({told})", rest)


def explain_decoding(
    plan: Plan,
    decode_on: str,
    device_memory: int | str = DEVICE_MEMORY,
    pinned_memory: int | str | None = None,
) -> str:
    """What ``decode_on`` means for a plan, in words."""
    check_place(decode_on, keeps=pinned_memory is not None)
    budget = parse_bytes(device_memory, "device_memory")
    kept_bytes = 0 if pinned_memory is None else parse_bytes(pinned_memory, "pinned_memory")
    found = device_image(plan)
    if isinstance(found, str):
        return f"on the CPU, because {found}"
    source = plan.source
    assert isinstance(source, Source)
    seeks, count = source.seeks(found.column), len(source)
    if not seeks:
        return f"{found.field} on the CPU: no picture has a seek index, which the GPU needs; `stoker index --jpeg` makes one"
    which = "pictures" if seeks == count else f"the {seeks:,} of {counted(count, 'picture')} that have a seek index"
    where = "on the GPU" if decode_on == "cuda" else "on the GPU where that is faster, as measured"
    rest = f"; {found.rest} and what follows it are done on the CPU, to crops that come back" if found.rest else ""
    stay = f". At most {show_bytes(kept_bytes)} of pictures stay in pinned memory after their first read" if kept_bytes else ""
    return (
        f"{found.field}: {which} {where}, if baseline with one scan; others on the CPU{rest}. All pictures in flight take at "
        f"most {show_bytes(budget)} of the GPU's memory{stay}"
    )
