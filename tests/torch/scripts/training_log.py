"""What the scripts share: their arguments, the digest of each batch they train on, and a stop in the middle."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import torch

EPOCHS = 2


class TrainingLog:
    """Arguments of a script, and what it has trained on."""

    #: of the script that ran last in this process
    lines: ClassVar[list[str]] = []

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--data", type=Path, help="a folder of class folders with JPEGs")
        parser.add_argument("--workers", type=int, default=0)
        parser.add_argument("--state", type=Path, help="where the state is saved; if it is there, go on from it")
        parser.add_argument("--stop", type=int, default=0, help="save the state after so many batches, and stop")
        parser.add_argument("--out", type=Path, help="where to write what was trained on")
        self.given = parser.parse_args()
        self.data, self.workers = self.given.data, self.given.workers
        self.first_epoch = 0
        TrainingLog.lines = []
        torch.manual_seed(0)

    def resume(self, loader: Any) -> None:
        if self.given.state is not None and self.given.state.exists() and not self.given.stop:
            loader.load_state_dict(json.loads(self.given.state.read_text()))
            self.first_epoch = loader.epoch

    def epochs(self) -> range:
        return range(self.first_epoch, EPOCHS)

    def batch(self, loader: Any, batch: Any, loss: Any) -> None:
        """Note a batch that was trained on."""
        assert torch.isfinite(loss)
        digest = hashlib.sha256()
        _add(digest, batch)
        TrainingLog.lines.append(digest.hexdigest())
        if self.given.stop == len(TrainingLog.lines):
            self.given.state.write_text(json.dumps(loader.state_dict()))
            self.end()
            sys.exit(0)

    def end(self) -> None:
        if self.given.out is not None:
            self.given.out.write_text(json.dumps(TrainingLog.lines))


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for name in value:
            digest.update(repr(name).encode())
            _add(digest, value[name])
    elif isinstance(value, (list, tuple)):
        digest.update(str(len(value)).encode())
        for each in value:
            _add(digest, each)
    else:
        digest.update(repr(value).encode())
