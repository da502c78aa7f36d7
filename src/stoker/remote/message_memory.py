"""Memory of messages: what one of rows took is used again by the next.

Messages have some megabytes each, and come and go by the dozen. The C library would give the memory back to the system when some
of them are freed, and the system clear it for the next: that took a sixth of all the time of sending and receiving rows.
"""

from __future__ import annotations

import numpy as np

#: the largest block that the GNU C library learns from, but for what it adds to it
_LARGEST = (32 << 20) - (64 << 10)


def keep_message_memory() -> None:
    """Let the C library keep up to 64 MB of freed memory, as it does once a block of 32 MB was freed: so free one.

    Nothing is written to it, so it costs nothing. What the user has set (`MALLOC_TRIM_THRESHOLD_` and others) still counts, and
    other libraries go on as they are.
    """
    np.empty(_LARGEST, np.uint8)
