"""Named places where tests let a process fail: between a header and its payload, after a result and before its message.

Nothing here can be switched on: no argument, variable or file is looked at. The fault lab (`tests/system/fault_lab.py`) puts a
function of its own in the place of this one before anything else is imported, so a kill lands where it is meant to.
"""

from __future__ import annotations


def fault_point(name: str) -> None:
    """Do nothing, at a place that tests know by this name."""
