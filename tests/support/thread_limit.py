"""A process that the system gives no more threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from aiodev._core.waiting.watcher import watcher


@contextlib.contextmanager
def no_more_threads(with_watcher: bool = True) -> Iterator[None]:
    """The process is at its limit; ``with_watcher``: if its watcher has been started before."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        if not with_watcher:
            patched.setattr(watcher, "_waits", None)
        patched.setattr(threading.Thread, "start", refuse)
        yield
