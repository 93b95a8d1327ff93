"""Long compilations: log lines and hooks tell whoever waits for one.

A compilation of less than a second is not mentioned. All code that compiles runs inside :func:`reported`, in any thread;
another thread looks at the clock meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from aiodev._core.tuning import LONG_COMPILATION

__all__ = ["Compilation", "on_compilation", "reported"]

logger = logging.getLogger("aiodev")


class Compilation(NamedTuple):
    """Something that has been compiled for longer than a second.

    Example:
        >>> from aiodev.profiler import Compilation
        >>> Compilation("sort", seconds=2.5, finished=False)
        Compilation(name='sort', seconds=2.5, finished=False)
    """

    name: str  #: of the kernel, or of the executor's native code
    seconds: float  #: since it began
    finished: bool  #: whether this is the last that is told of it; whoever waits for it learns how it ended


Hook = Callable[[Compilation], object]
_hooks: list[Hook] = []


def on_compilation(hook: Hook) -> Callable[[], None]:
    """Have ``hook`` called while something is being compiled: each second from the first one on, and when it is done.

    What is done within a second is not told of. The logger ``aiodev`` says the same at level INFO, when the first second has
    passed and when it is done.

    Args:
        hook: called with a :class:`Compilation`, in a thread of the compiler: to do something on a loop, have it call
            ``loop.call_soon_threadsafe``. What it raises is logged.

    Returns:
        What takes the hook away again.

    Raises:
        TypeError: ``hook`` cannot be called.

    Example:
        >>> from aiodev import profiler
        >>> remove = profiler.on_compilation(lambda compilation: print(compilation.name, compilation.seconds))
        >>> remove()
    """
    if not callable(hook):
        raise TypeError(f"on_compilation: expected a function, got {hook!r}")
    registered = partial(hook)  # which equals no other, as the same function may be registered twice
    _hooks.append(registered)

    def remove() -> None:
        if registered in _hooks:
            _hooks.remove(registered)

    return remove


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Compile ``name`` inside of the block, and report the compilation if it takes long."""
    done = threading.Event()
    began = time.perf_counter()
    watcher = threading.Thread(target=_watch, args=(name, began, done), name="aiodev-compile-watch", daemon=True)
    try:
        watcher.start()
    except RuntimeError:  # the system has no more threads: then nobody is told
        yield
        return
    try:
        yield
    finally:
        done.set()


def _watch(name: str, began: float, done: threading.Event) -> None:
    if done.wait(LONG_COMPILATION):
        return
    logger.info("%s is being compiled", name)
    finished = False
    while not finished:
        _tell(Compilation(name, time.perf_counter() - began, finished))
        finished = done.wait(LONG_COMPILATION)
    took = time.perf_counter() - began
    logger.info("%s: compiled for %.1f s", name, took)
    _tell(Compilation(name, took, finished))


def _tell(compilation: Compilation) -> None:
    for hook in list(_hooks):
        try:
            hook(compilation)
        except Exception:  # the others still have to be told
            logger.exception("a hook of on_compilation failed")
