"""Loading behind the first start: what programs need soon, and no start waits for, is loaded in a thread, one after the other.

In one thread, since each that imports wants the GIL for most of its time, and the loop's has to wait for its turn among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from aiodev._core.at_fork import in_child
from aiodev._core.backend.handle import BackendHandle, starting

__all__ = ["in_background", "load_in_background"]

#: What loads; each deals with its failures.
_loads: list[Callable[[], object]] = []


class _Progress:
    """How far it is.

    Attributes:
        may_begin: whether a backend has started, which may know of code that was compiled ahead.
        has_begun: whether a thread loads, or has loaded.
    """

    def __init__(self) -> None:
        self.may_begin = self.has_begun = False


_progress = _Progress()


def in_background(load: Callable[[], None]) -> Callable[[], None]:
    """Decorator: the function is called in that thread, once the first backend has started, and again in forked children."""
    _loads.append(load)
    return load


def load_in_background() -> None:
    """Begin to load, unless that was done, or no backend has started. Never blocks."""
    if _progress.may_begin and not _progress.has_begun:
        _progress.has_begun = True
        try:
            threading.Thread(target=_load_all, name="aiodev-background", daemon=True).start()
        except RuntimeError:  # there are too many, or the process ends
            _progress.has_begun = False


def _load_all() -> None:
    for load in _loads:
        load()


def _when_started(handle: BackendHandle) -> None:
    """Begin when a backend has started, which is waited for, and whose own code is made by the same compiler."""

    def begin(error: BaseException | None) -> None:
        if error is None:
            _progress.may_begin = True
            load_in_background()

    handle.start_soon(begin)


starting.append(_when_started)


@in_child
def _forget_after_fork() -> None:
    _progress.__init__()  # type: ignore[misc]  # the thread was the parent's
