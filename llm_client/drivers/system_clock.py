"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`time.monotonic` and `time.time`."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
