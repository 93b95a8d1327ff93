"""Going on when somebody waits, without sleeping until that is likely."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import aiodev


def when_parked(stream: aiodev.Stream, waiters: int, then: Callable[[], object]) -> None:
    """Call ``then``, from a thread, as soon as so many loops and threads are parked until work of ``stream`` is done.

    A function that is called on the stream, and has not begun, has one of them: the watcher.
    """

    def watch() -> None:
        deadline = time.monotonic() + 30
        while stream.timeline.parked < waiters and time.monotonic() < deadline:
            time.sleep(0)
        then()

    threading.Thread(target=watch).start()
