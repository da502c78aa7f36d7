"""Why a run is as fast as it is, in a few sentences made from a snapshot: the limit, the evidence, and what would help."""

from __future__ import annotations

from html import escape

from ..sizes import counted, show_bytes
from .advice import Advice, find_advice
from .bottleneck import SHORT_S, SLOWED, find_limit, slowed_by, workers_in_words
from .facts import Facts
from .stats import Stats

#: how many advices the text has; `advice` has all
_SHOWN = 3


class Verdict(str):
    """A verdict as text; `limit` names the limit in a word, `advice` is what would help."""

    __slots__ = ("advice", "limit")

    limit: str
    advice: tuple[Advice, ...]

    def __new__(cls, text: str = "", limit: str = "", advice: tuple[Advice, ...] = ()) -> Verdict:
        verdict = super().__new__(cls, text)
        verdict.limit, verdict.advice = limit, advice
        return verdict

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        helps = "".join(f"<li>{escape(str(each))}</li>" for each in self.advice)
        box = "border-left: 4px solid #d9822b; padding: 4px 12px; max-width: 60em"
        listed = f"<ul style='margin: 4px 0'>{helps}</ul>" if helps else ""
        return f"<div style='{box}'><b>{escape(self.limit)}</b><div>{escape(self)}</div>{listed}</div>"


def verdict(stats: Stats, facts: Facts | None = None, *, training: bool = True) -> Verdict:
    """What limits this run, on what evidence, and what would help.

    `facts` are what the loader knows of its data and machine; with them it says more. Without `training` whoever takes the
    batches does nothing with them, so that waiting for them means nothing.
    """
    longer = "take more batches" if training else "run it for longer (`--epochs` of `stoker run`, `--seconds` of `stoker bench`)"
    if not stats.measured:
        return Verdict(f"The run is too short to say anything: {longer}.", "short")
    notes = f"{_notes(stats)}{_chosen(stats)}{_decoded(stats)}"
    if stats.elapsed_s < SHORT_S:
        return Verdict(f"This run is too short to judge: {longer}. {_rate(stats, training)}.{notes}", "short")
    facts = Facts() if facts is None else facts
    limit = find_limit(stats, facts, training)
    advice = find_advice(stats, facts, limit, training)
    helps = "; ".join(map(str, advice[:_SHOWN]))
    helps = f" {helps[0].upper()}{helps[1:]}." if helps else ""
    slowed = _slowed(stats) if training and limit.name not in ("slowed", "loop") else ""
    return Verdict(f"{limit.sentence}. {_rate(stats, training)}{slowed}.{helps}{notes}", limit.name, advice)


def _rate(stats: Stats, training: bool) -> str:
    bytes_per_s = stats.bytes / stats.samples * stats.samples_per_s
    size = f" ({show_bytes(bytes_per_s)}/s)" if stats.bytes else ""
    waited = f"; the training loop waited {stats.wait_share:.0%} of that time" if training else ""
    pauses = f" (without {stats.paused_s:.1f} s of pauses)" if stats.paused_s >= 0.1 * stats.elapsed_s else ""
    return f"{stats.samples_per_s:,.0f} samples/s{size} over {stats.elapsed_s:.1f} s{pauses}{waited}"


def _slowed(stats: Stats) -> str:
    more = slowed_by(stats)
    return f", and its steps take {more:.0%} longer while workers are busy" if more >= SLOWED else ""


def _notes(stats: Stats) -> str:
    """What went wrong on the way."""
    seeks = f"{stats.seeks_unfit:,} of {stats.seeks_used + stats.seeks_unfit:,} seek indices"
    notes = {
        f"{counted(stats.skipped, 'bad sample')} skipped": stats.skipped,
        f"{counted(stats.damaged, 'damaged image')} decoded as far as possible": stats.damaged,
        f"{seeks} did not fit and were not used: `stoker index --jpeg --force` makes them again": stats.seeks_unfit,
        f"{counted(stats.lost, 'task')} ran again because a worker was lost": stats.lost,
    }
    return "".join(f" {note}." for note, count in notes.items() if count)


def _chosen(stats: Stats) -> str:
    """Who runs tasks, and why, where that was not for the user to say."""
    executor = stats.executor
    if not executor.reason:
        return ""
    since = f" since batch {executor.since:,}" if executor.since else ""
    return f" Work runs in {workers_in_words(stats)}{since}: {executor.reason}."


def _decoded(stats: Stats) -> str:
    """Where images were decoded, where that was asked for."""
    if not stats.decode_reason:
        return ""
    images = stats.device_images
    each = (
        f", {show_bytes(stats.device_bytes / images)} of its memory and {stats.device_s / images * 1e6:,.0f} us each"
        if images
        else ""
    )
    back = f"; it gave {stats.device_refused:,} back" if stats.device_refused else ""
    return f" Images are decoded {stats.decode_reason} ({images:,} of {counted(stats.worked, 'sample')} on the GPU{each}{back})."
