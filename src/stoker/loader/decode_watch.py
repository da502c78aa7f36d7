"""Moves decoding between CPU and device: reads the meters at intervals, asks the policy, and carries out its decisions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import DeviceError, message_of
from ..observe.meters import Meters
from ..observe.stats import Stats
from .auto_watch import load_between
from .decode_place import Decoding
from .decode_policy import DecodePolicy
from .thread_count import core_share

if TYPE_CHECKING:
    from ..device.device_decode import DeviceDecoding

_log = logging.getLogger("stoker")

#: a load covers at least this many seconds, and this many batches
_LOAD_S, _LOAD_BATCHES = 0.5, 4


def decode_watch(decoding: Decoding) -> DecodeWatch | None:
    """The watch of a loader that decodes wherever it is faster; None: the user has chosen."""
    if decoding.device is None or not decoding.automatic:
        return None
    cores = core_share().threads
    return DecodeWatch(decoding.device, DecodePolicy(min(cores, decoding.turns or cores)))


class DecodeWatch:
    """Follows one loader. Called by the consumer's thread, some times per second while batches are handed out."""

    def __init__(self, device: DeviceDecoding, policy: DecodePolicy) -> None:
        self._device, self._policy = device, policy
        self._last = Stats()
        self._due = 0.0

    def look(self, meters: Meters, now: float) -> None:
        if now < self._due:
            return
        stats, last = meters.snapshot(look=False), self._last
        if not last.batches:
            self._last = stats  # what is done once, at the start, does not count
            return
        if stats.elapsed_s - last.elapsed_s < _LOAD_S or stats.batches - last.batches < _LOAD_BATCHES:
            return
        self._last, self._due = stats, now + _LOAD_S
        share = self._policy.see(load_between(last, stats))
        refusal, self._device.refusal = self._device.refusal, ""
        if share is not None and not refusal:
            try:
                self._device.take(share)
            except DeviceError as error:
                refusal = message_of(error)
        if refusal:
            self._policy.refused(refusal)
        if share is not None or refusal:
            _log.info("images are decoded %s", self._policy.reason)
        meters.decoding(self._policy.reason)
