"""Ctrl-C held back, for the length of a section that its exception must not tear.

The handler of SIGINT raises between any two instructions of the main thread. Most code can be written so that it may be left
anywhere. What keeps several structures in step, or one of them and the system, cannot: a call has had its effect before its
result is stored. Such a section replaces the handler meanwhile, and what has arrived is handled at its end. Handlers run in
the main thread only, so in others there is nothing to do.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["sigint_held"]


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class _SigintHeld:
    """``with`` it: the handler of SIGINT is called at the end of the section. Sections may be nested."""

    def __init__(self) -> None:
        self._depth = 0
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._arrived = False

    def __enter__(self) -> None:
        if not _in_main_thread():
            return
        if self._depth == 0:
            handler = signal.getsignal(signal.SIGINT)
            if not callable(handler):  # the system ends the process, or ignores it: nothing is raised
                return
            self._handler, self._arrived = handler, False
            signal.signal(signal.SIGINT, self._hold)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth == 0 or not _in_main_thread():
            return
        self._depth -= 1
        if self._depth == 0:
            self._restore()

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Within a section: code of others, which may take long and may be left anywhere."""
        if self._depth == 0 or not _in_main_thread():
            yield
            return
        depth, self._depth = self._depth, 0
        try:
            self._restore()
            yield
        finally:
            self.__enter__()
            self._depth = depth

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._arrived = True  # the frame is not kept: it would keep what it refers to

    def _restore(self) -> None:
        handler = self._handler
        if signal.getsignal(signal.SIGINT) == self._hold:  # else somebody has set another one meanwhile
            signal.signal(signal.SIGINT, handler)
        arrived, self._arrived = self._arrived, False
        if arrived and handler is not None:
            handler(signal.SIGINT, sys._getframe())


#: One for the process, as there is one handler.
sigint_held = _SigintHeld()
