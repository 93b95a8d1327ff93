"""Ctrl-C held back, for the length of a section that its exception must not tear; and raised again, where it would be lost.

The handler of SIGINT raises between any two instructions of the main thread. Most code can be written so that it may be left
anywhere. What keeps several structures in step, or one of them and the system, cannot: a call has had its effect before its
result is stored. Such a section replaces the handler meanwhile, and what has arrived is handled at its end. Handlers run in
the main thread only, so in others there is nothing to do.

An import is such a section, too. The code that takes the lock of a module, or that of all imports, is Python, and left there it
keeps the lock. Other threads then wait for ever where they import, as the one that starts a backend does. So whatever we import
late is imported whole.

Python ignores what is raised in a finalizer, or in the callback of a weak reference, and a handler may raise at the first
instruction of one, where nothing in it could catch that. To hold the handler back would cost a finalizer several times what it
takes itself. Python tells ``sys.unraisablehook`` of what it ignores: there the handler's signal is sent once more.

A program that Ctrl-C ends ends by its signal, so that a shell's loop ends too. Python keeps that in a flag, which each
evaluation of a string clears, and to define a named tuple is one: a thread that imports a library meanwhile is enough. It is
set once more, where no other thread runs any more.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import contextmanager, suppress
from importlib import import_module
from opcode import opmap
from typing import TYPE_CHECKING, Any

from aiodev._core.finalizing import behind_all_handlers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType, TracebackType

__all__ = ["chain_unraisable_hook", "import_whole", "sigint_held", "withheld_from_children"]

#: As a plain number, for ``_signal``. What ``signal`` makes of that looks each handler up among its constants, and has the text
#: of the error that it is none made, with asyncio's handler the main task's: 20 us and more, four times a section.
_SIGINT = int(signal.SIGINT)
#: How much later (s) a lost signal is sent once more: by then what called the finalizer goes on, or waits for something.
_LATER = 0.001
#: Whose finalizers and callbacks: ours, and those of the weak references that the standard library keeps for us.
_OURS = {__name__.partition(".")[0], "weakref", "_weakrefset"}
_FIRST = opmap["RESUME"]


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
            handler = _signal.getsignal(_SIGINT)
            if not callable(handler):  # the system ends the process, or ignores it: nothing is raised
                return
            self._handler, self._arrived = handler, False
            _signal.signal(_SIGINT, self._hold)
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
        if _signal.getsignal(_SIGINT) == self._hold:  # else somebody has set another one meanwhile
            _signal.signal(_SIGINT, handler)
        arrived, self._arrived = self._arrived, False
        if arrived and handler is not None:
            handler(signal.SIGINT, sys._getframe())


#: One for the process, as there is one handler.
sigint_held = _SigintHeld()


def import_whole(name: str) -> ModuleType:
    """Import a module that is not needed before now; Ctrl-C arrives when that is done."""
    with sigint_held:
        return import_module(name)


@contextmanager
def withheld_from_children() -> Iterator[None]:
    """Processes that this thread, which is not the main one, starts in the block have SIGINT blocked from the very first on.

    A terminal sends it to all processes of its foreground group. A child that is Python could ignore it no sooner than it has
    started, and imported what it runs, which takes up to a second.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def chain_unraisable_hook() -> None:
    """Have signals whose handlers raise in a finalizer of ours sent once more; all else is for the hook that was there before.

    Whoever sets a hook later, and does not call this one, is told of these exceptions as of any, and they are lost.
    """
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, Exception) or not _is_sent_again(unraisable):
            before(unraisable)

    sys.unraisablehook = hook


def _is_sent_again(unraisable: sys.UnraisableHookArgs) -> bool:
    traceback = unraisable.exc_traceback
    if traceback is None or not _in_main_thread() or "atexit" in (unraisable.err_msg or ""):  # the program is over
        return False
    frame = traceback.tb_frame  # the finalizer's
    if str(frame.f_globals.get("__name__")).partition(".")[0] not in _OURS:
        return False
    number = _signal_of(unraisable.exc_type, traceback)
    if number is None:
        return False
    try:
        _begin_again(frame, frame.f_code.co_code[traceback.tb_lasti] == _FIRST)
    finally:  # not before: it would arrive there
        is_sent = _send_soon(number)
    return is_sent


def _signal_of(kind: type[BaseException], traceback: TracebackType | None) -> int | None:
    """The signal whose handler raised an exception: a function in the traceback, or Python's own, which is not seen there."""
    codes = set()
    while traceback is not None:
        codes.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    for number in signal.valid_signals():
        if getattr(signal.getsignal(number), "__code__", None) in codes:
            return number
    return signal.SIGINT if issubclass(kind, KeyboardInterrupt) and callable(signal.getsignal(signal.SIGINT)) else None


def _begin_again(frame: FrameType, nothing_has_run: bool) -> None:
    """Run a finalizer of which nothing has run, or that says it may run twice: what it gives back would else be lost."""
    own = frame.f_locals.get("self")
    if not (nothing_has_run or getattr(own, "finalizes_again", False)):
        return
    #: ``_release``: what a finalizer in native code calls.
    finalizers: list[Any] = [*(getattr(type(own), name, None) for name in ("__del__", "_release")), weakref.finalize.__call__]
    for finalizer in finalizers:
        if getattr(finalizer, "__code__", None) is frame.f_code:
            finalizer(own)


def _send_soon(number: int) -> bool:
    try:
        _thread.start_new_thread(_send, (number,))
    except RuntimeError:  # the system has no thread left, or the interpreter ends
        return False
    return True


def _send(number: int) -> None:
    """Send the main thread a signal, which ends what it waits for in the system, as ``_thread.interrupt_main`` does not."""
    time.sleep(_LATER)
    main = threading.main_thread().ident
    if main is not None and callable(signal.getsignal(number)):  # else it would end the process
        signal.pthread_kill(main, number)


@behind_all_handlers
def _end_by_the_signal() -> None:
    """Have the program end by SIGINT where its main thread has: Python notes it of a string whose evaluation raises it."""
    is_interactive = hasattr(sys, "ps1")  # then the last exception is of a statement, and the program went on
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not is_interactive:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
