"""The checks that this interpreter is one to rely on: it has a global lock, and is the main one of its process."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["require_gil", "require_main_interpreter"]


def require_gil() -> None:
    """Refuse an interpreter that runs without its global lock.

    A submission is a compiled function that appends to a queue while it holds the lock, and takes no other: that is most of why
    it costs so little. What is known of a stream is replaced by single steps of the interpreter (``dict`` and ``deque``
    operations, assignments), which only the lock keeps whole. Without it two threads that submit to one stream would write
    over each other in native memory.

    Raises:
        ImportError: the lock is disabled.
    """
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # since Python 3.13
    if is_enabled is not None and not is_enabled():
        raise ImportError(
            "aiodev needs the global interpreter lock, which this free-threaded Python runs without: "
            "start it with PYTHON_GIL=1 or -X gil=1, or use a build that has the lock"
        )


def require_main_interpreter() -> None:
    """Refuse a subinterpreter.

    Native threads that come back to Python attach to the main interpreter (``PyGILState_Ensure``), and NumPy keeps its types
    once for the process. So what a subinterpreter made would be touched from another one.

    Raises:
        ImportError: this is not the process' main interpreter.
    """
    api = ctypes.PyDLL(None)  # of our own: whoever else uses `ctypes.pythonapi` may have declared them differently
    current, number_of = api.PyInterpreterState_Get, api.PyInterpreterState_GetID
    current.restype, number_of.argtypes, number_of.restype = ctypes.c_void_p, (ctypes.c_void_p,), ctypes.c_int64
    if number_of(current()) != 0:
        raise ImportError(
            "aiodev needs the main interpreter, and this is a subinterpreter: use a process in its place, or have the server "
            "run programs in the main one (WSGIApplicationGroup %{GLOBAL} in mod_wsgi, single-interpreter in uWSGI)"
        )
