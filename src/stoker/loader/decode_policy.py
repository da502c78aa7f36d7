"""Decides where pictures are decoded, from measurements alone: no clock, no threads, no I/O.

Loads go in, about two per second, and shares come out: how many pictures of each batch go to the device. If the training loop
waits for batches, more can be gained: from the device if the cores are the limit, from the cores if they are idle and the device
does not keep up. If the loop does not wait and cores are idle, they take over what they can, because the device's time is better
spent on training. Each change is on trial: if the rate does not rise (or, where it only had to stay, falls), the change is undone
and not tried again for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.auto_policy import Load

#: a loop that waits for less than this share of its time has what it needs
_CALM = 0.1
#: cores of which this share is busy are all busy; below the second share some have nothing to do
_FULL, _IDLE = 0.85, 0.6
#: what a change must gain to stay; and what one must keep that only relieves the device
_GAIN, _SAME = 1.05, 0.985
#: loads that must agree before anything changes, and that a change is judged by
_AGREE = 2
#: shares that are tried, from the one at which the device does most
SHARES = (1.0, 0.75, 0.5, 0.25)
#: what was tried in vain is tried again after this many seconds of waiting, and each time after twice as many
_AGAIN_S = 60.0


class DecodePolicy:
    """Decides from one load after another. `share` is that of the tasks which go to the device, `reason` why, in words."""

    def __init__(self, cores: int) -> None:
        self.share, self.reason = 0.0, "on the CPU until its cores are the limit"
        self._cores = cores
        self._agreed: list[Load] = []  # loads that ask for the same
        self._wished: float | None = None
        self._trial: tuple[float, str, float] | None = None  # share and reason of before, and the rate then
        self._relief = False  # what is on trial need not gain anything
        self._skip = 0
        self._waited_s = 0.0
        self._failed: dict[float, tuple[float, float]] = {}  # when a share may be tried again, and after how long that was

    def see(self, load: Load) -> float | None:
        """Take in a load; returns another share, if that is to change."""
        if load.elapsed_s <= 0 or not load.samples:
            return None
        if self._skip:
            self._skip -= 1  # part of it was made before the change
            return None
        calm = load.wait_share < _CALM
        self._waited_s += 0.0 if calm else load.elapsed_s
        if self._trial is not None:
            return self._judge(load, calm)
        wished = next((share for share, _ in self._wishes(load, calm) if self._may(share)), None)
        if wished is None or wished != self._wished:
            self._agreed, self._wished = [], wished
        self._agreed.append(load)
        if wished is None or len(self._agreed) < _AGREE:
            return None
        why = dict(self._wishes(load, calm))[wished]
        self._relief = calm
        self._trial = self.share, self.reason, _rate(self._agreed)
        return self._change(wished, why)

    def refused(self, why: str) -> None:
        """The device cannot be used: nothing is tried again."""
        self.share, self.reason, self._trial = 0.0, f"on the CPU, because {why}", None
        self._failed = dict.fromkeys(SHARES, (float("inf"), float("inf")))

    def _wishes(self, load: Load, calm: bool) -> Iterator[tuple[float, str]]:
        """Shares that may be better, the likeliest first, and why."""
        busy = max(load.cpu_s, load.process_s) / load.elapsed_s / self._cores
        if calm:
            lower = next((share for share in SHARES if share < self.share), None)
            if lower is not None and busy < _IDLE:
                yield lower, f"{told(lower)}, because cores were idle, and the GPU has a model to train"
        elif busy >= _FULL:
            yield from ((share, f"{told(share)}, because the cores are the limit") for share in SHARES if share > self.share)
        elif self.share and busy < _IDLE:
            less = [share for share in SHARES if share < self.share]
            yield from ((share, f"{told(share)}, because cores were idle next to the GPU") for share in less)

    def _may(self, share: float) -> bool:
        return self._waited_s >= self._failed.get(share, (0.0, 0.0))[0]

    def _judge(self, load: Load, calm: bool) -> float | None:
        """Whether what is on trial stays."""
        assert self._trial is not None
        self._agreed.append(load)
        if len(self._agreed) < _AGREE and (self._relief or not calm):
            return None
        share, reason, before = self._trial
        rate, self._trial = _rate(self._agreed), None
        compared = f"{rate:,.0f} samples/s instead of {before:,.0f}"
        stays = rate >= _SAME * before and calm if self._relief else calm or rate >= _GAIN * before
        if stays:
            self.reason = f"{self.reason}; {compared}"
            self._agreed, self._wished = [], None
            return None
        again_s = 2 * self._failed.get(self.share, (0.0, _AGAIN_S / 2))[1]
        self._failed[self.share] = self._waited_s + again_s, again_s
        return self._change(share, f"{reason.partition(';')[0]}; {told(self.share)} gave {compared}")

    def _change(self, share: float, reason: str) -> float:
        self.share, self.reason = share, reason
        self._agreed, self._wished, self._skip = [], None, 1
        return share


def told(share: float) -> str:
    """Where pictures are decoded, in words.

    >>> told(1.0), told(0.75), told(0.0)
    ('on the GPU', '75% on the GPU', 'on the CPU')
    """
    return "on the GPU" if share == 1 else f"{share:.0%} on the GPU" if share else "on the CPU"


def _rate(loads: list[Load]) -> float:
    return sum(load.samples for load in loads) / sum(load.elapsed_s for load in loads)
