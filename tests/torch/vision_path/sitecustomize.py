"""Lets an interpreter import torchvision also where its native library does not fit the torch that is installed.

A folder of `PYTHONPATH` for scripts that tests start, and for their worker processes. torchvision declares operators for
detection when it is imported, and that library is to have defined them; data sets and transforms need none of them.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

_kept = []


class _Operators(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torchvision":
            return None
        sys.meta_path.remove(self)
        import torch

        found = PathFinder.find_spec(name)
        try:
            for library in Path(found.origin).parent.glob("_C*.so"):
                torch.ops.load_library(str(library))
        except OSError:
            operators = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _kept.append(operators)  # it takes its definitions along when it goes
        return found


sys.meta_path.insert(0, _Operators())
