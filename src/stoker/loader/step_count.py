"""How many batches an epoch has, if arithmetic can tell. None at all is a mistake, which is explained."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigError
from ..plan.deal import Deal
from ..plan.nodes import RAGGED, OrderNode, Skip, Take, written
from ..plan.plan import Plan
from ..sizes import counted


def epoch_steps(plan: Plan, deal: Deal) -> int | None:
    """Batches of one epoch on every rank (samples, without `batch`); None: unknown, or without end."""
    steps, passes = _pass_steps(plan, deal), plan.steps.passes
    return None if steps is None or passes is None else steps * passes


def check_steps(plan: Plan, deal: Deal) -> None:
    """Refuse a plan of which it is known beforehand that it gives nothing. One whose samples have to be counted may be empty."""
    if _pass_steps(plan, deal) == 0:
        raise ConfigError(_nothing_left(plan, deal))


def check_even(plan: Plan, deal: Deal) -> None:
    """Refuse a plan whose batches may have different numbers of rows on other ranks, if they are to be parts of one array."""
    if remedy := evening(plan, deal):
        raise ConfigError(
            f"loader(sharding=...): the batches of all processes become one array, so they need the same number of rows; {remedy}"
        )


def evening(plan: Plan, deal: Deal) -> str:
    """What makes all batches have the same number of rows; empty: they have."""
    if deal.keeps:
        return "use batch(drop_last=True), and shard(remainder='drop') or 'pad'"
    if plan.policy is not None and plan.policy.fill is None:
        return "use on_error('skip', fill='repeat')"
    return ""


def _pass_steps(plan: Plan, deal: Deal) -> int | None:
    """Batches of one pass over the data; None: unknown, or without end."""
    if not plan.counted:
        return None
    steps = plan.steps
    if plan.pass_rows is None:
        return None if steps.end is None else max(0, steps.end - steps.begin)
    stop = plan.pass_rows if steps.end is None else min(plan.pass_rows, steps.end * deal.stride)
    return deal.steps(max(0, stop - steps.begin * deal.stride))


def _nothing_left(plan: Plan, deal: Deal) -> str:
    """Who is to blame: the verbs before `batch`, the batch and its ranks, or the verbs after it."""
    rows, what = plan.pass_rows, f"batch of {deal.size:,}" if plan.batch else "sample"
    if rows == 0:
        cuts = _cuts(plan.order.verbs if plan.order else ())
        so = f", so there is no {what}" if plan.batch else ""
        return f"{plan.source.describe()}: no sample is left after {cuts}{so}; skip fewer, or take more"
    have = None if rows is None else deal.steps(rows)
    if have == 0:
        remedy = "use a smaller batch, batch(drop_last=False)" if plan.batch else "use fewer ranks"
        ranks = f"{counted(rows or 0, 'sample')} on {counted(deal.world, 'rank')}"
        return f"{ranks} cannot make a {what}; {remedy}, or shard(remainder='pad')"
    of = "" if have is None else f" of {counted(have, 'batch', 'batches')}"
    return f"no {what} is left{of} after {_cuts(plan.steps.verbs)}; skip fewer, or take more"


def nothing_came(plan: Plan, deal: Deal, epoch: int, left: int, skipped: int) -> str:
    """Why an epoch gave nothing, of samples that had to be counted: `left` came, and `skipped` were bad."""
    bad = f", and {counted(skipped, 'sample')} were bad" if skipped else ""
    if left:
        needed = counted(deal.stride, "sample") + (f" on {counted(deal.world, 'rank')}" if deal.world > 1 else "")
        remedy = "use a smaller batch, batch(drop_last=False)" if plan.batch else "use fewer ranks"
        return (
            f"epoch {epoch} made no batch: only {counted(left, 'sample')} arrived{bad}, and a batch needs {needed}; {remedy}, or "
            "shard(remainder='pad')"
        )
    verbs = [written(node) for segment in plan.segments for node in segment.nodes if isinstance(node, RAGGED)]
    through = f" through {' and '.join(verbs)}" if verbs else ""
    came = f"none came{through} ({plan.source.describe()}){bad}"
    return f"epoch {epoch} made no sample: {came}; check what the pipeline reads and keeps"


def _cuts(verbs: Sequence[OrderNode]) -> str:
    return " and ".join(written(verb) for verb in verbs if isinstance(verb, (Take, Skip)))
