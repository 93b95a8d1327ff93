"""Importing a compiler without stopping the event loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking what a large import makes.

    numba's import makes some 400,000 objects that live for ever. The full collections that they provoke stop every thread for
    tens of milliseconds, during the import and once more afterwards (60 ms of loop lag measured, 12 without). So the collector
    rests meanwhile, and what there is at the end is moved out of its sight (``gc.freeze``). The price: cyclic garbage of the
    program's own that exists at that moment, once, is not collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
