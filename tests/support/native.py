"""Native code of calls, which is loaded in a thread: for tests that are of it."""

from __future__ import annotations

import time

import aiodev
from aiodev._kernel.dispatch import native_functions

__all__ = ["load_native"]

_WAIT = 60  # seconds that no test takes


def load_native() -> None:
    """Load it, and wait until it is there."""
    until = time.monotonic() + _WAIT
    aiodev.synchronize_blocking("cpu")
    while native_functions.native_function("repeat", object()) is None:
        assert time.monotonic() < until, "the native code of calls was not loaded"
        time.sleep(0.001)
