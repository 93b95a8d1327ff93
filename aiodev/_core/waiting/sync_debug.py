"""Sync debugging: reports waits that block a thread whose event loop runs, which they hold for as long as they last.

Every wait that blocks reports it here just before it blocks (``blocking.py``, ``handle.py``). Protocols of other libraries
block without a word in the program's text, such as ``np.asarray(x)``; so does the first use of a device whose backend has not
started.
"""

from __future__ import annotations

import contextvars
import sys
import warnings
from types import FrameType
from typing import Literal, get_args

from aiodev._core import arguments, callsites
from aiodev._core.config import settings
from aiodev._core.errors import SyncError, SyncWarning
from aiodev._core.waiting.loops import loop_runs_here

__all__ = ["SyncDebugMode", "get_sync_debug_mode", "set_sync_debug_mode"]

SyncDebugMode = Literal["default", "warn", "error"]

_DEFAULT: SyncDebugMode = "warn" if settings.debug else "default"
_mode: contextvars.ContextVar[SyncDebugMode] = contextvars.ContextVar("sync_debug_mode", default=_DEFAULT)

#: What to await where a protocol's method copies, or has NumPy look at the memory; before others, what writes the array.
_INSTEAD = {
    **dict.fromkeys(("__array__", "__array_interface__", "__reduce__"), "await array.numpy()"),
    **dict.fromkeys(("__bool__", "__complex__", "__float__", "__index__", "__int__"), "await array.item()"),
    "__contains__": "await aiodev.kernels.any(array == value).item()",
    "__getitem__": "await aiodev.kernels.select(mask, array)",
    "__setitem__": "await mask.numpy()",
    **{
        name: f"await aiodev.kernels.{name}(array)"
        for name in ("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values")
    },
    "repeat": "await repeats.numpy()",
}
#: Python's and NumPy's own ways to ask for a value: whatever called them, the value is what it waits for.
_VALUES = frozenset(name for name, instead in _INSTEAD.items() if instead.startswith("await array.") and name != "__reduce__")
_WRITER = "await stream.synchronize()"
_START = "await aiodev.init()"


def set_sync_debug_mode(mode: SyncDebugMode) -> None:
    """Say what happens when something is about to block a thread whose event loop runs.

    That is a context variable, of the running task. Only what really has to wait counts: a blocking method of something that is
    done is silent.

    Args:
        mode: ``"default"``: nothing; ``"warn"``: a :class:`SyncWarning` is issued, and it waits; ``"error"``: a
            :class:`SyncError` is raised, and it does not wait. ``AIODEV_DEBUG=1`` has every task begin with ``"warn"``.

    Raises:
        ValueError: another mode.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     aiodev.set_sync_debug_mode("error")
        ...     stream, gate = aiodev.Stream("cpu"), asyncio.get_running_loop().create_future()
        ...     done = stream.wait_future(gate)
        ...     try:
        ...         done.synchronize_blocking()
        ...     except aiodev.SyncError as error:
        ...         gate.set_result(None)
        ...         return error.call, error.instead
        >>> import asyncio; asyncio.run(main())
        ('Completion.synchronize_blocking', 'await completion')
    """
    if not isinstance(mode, str) or mode not in get_args(SyncDebugMode):
        raise ValueError(f"mode={arguments.shown(mode)}: expected one of {', '.join(map(repr, get_args(SyncDebugMode)))}")
    _mode.set(mode)


def get_sync_debug_mode() -> SyncDebugMode:
    """The running task's mode; see :func:`set_sync_debug_mode`.

    Example:
        >>> import aiodev
        >>> aiodev.set_sync_debug_mode("warn")
        >>> aiodev.get_sync_debug_mode()
        'warn'
        >>> aiodev.set_sync_debug_mode("default")
    """
    return _mode.get()


def about_to_block(starting: bool = False) -> None:
    """Report that this thread is about to block, for work or for a backend's start.

    Raises:
        SyncError: its event loop runs, and the mode is ``"error"``.
    """
    mode = _mode.get()
    if mode == "default" or not loop_runs_here():
        return
    level, frame, value = 1, sys._getframe(), None
    while frame.f_back is not None and _is_ours(frame.f_back):
        level, frame = level + 1, frame.f_back
        if value is None and frame.f_code.co_name in _VALUES:
            value = frame.f_code.co_name
    place = callsites.describe_site(callsites.outside(frame.f_back))
    call, instead = _identify(frame, value, starting)
    if mode == "error":
        raise SyncError(call, place, instead)
    # A level beyond the frame that made the call, which is not ours.
    warnings.warn(SyncWarning(call, place, instead), stacklevel=level + 1)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name.startswith("aiodev.") or callsites.is_library(name)


def _identify(frame: FrameType, value: str | None, starting: bool) -> tuple[str, str]:
    """What was called from outside, and what to await in its stead; ``value``: the way that it asked for one."""
    name, owner = frame.f_code.co_name, frame.f_locals.get("self")
    kind = None if owner is None else type(owner).__name__
    module = frame.f_globals.get("__name__", "")
    package = module.partition(".")[0] if "._" in module else module
    call = f"{kind or package}.{name}"
    if starting and name != "init_blocking":
        return call, _START
    if kind == "Completion":
        return call, "await completion"
    if name.endswith("_blocking"):
        return call, f"await {package if kind is None else kind.lower()}.{name.removesuffix('_blocking')}()"
    return call, _INSTEAD.get(name if value is None or name == "__contains__" else value, _WRITER)
