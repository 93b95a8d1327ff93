"""Calls of native code by its address, for hand-written bodies on the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["call_native"]


def call_native(address: int, *args: Any) -> None:
    """Call the C function at ``address``, which returns nothing; on the CPU only, in bodies for that device type.

    Integers and booleans are passed as ``int64_t``, floats as ``float`` or ``double`` by their own type, and an array as the
    address of its first element. So a library's functions run on the device's workers, without the GIL. An address is
    only known when the program runs, while compiled code is kept on disk: pass it to the kernel as an argument.

    Nothing is checked: a wrong address or a wrong list of arguments ends the process.

    Example:
        >>> import ctypes, numpy
        >>> from aiodev import lang
        >>> buffer = numpy.arange(4, dtype="u1")
        >>> memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
        >>> lang.call_native(memset, buffer, 7, 3); buffer.tolist()
        [7, 7, 7, 3]
    """
    passed = [_passed(arg) for arg in args]
    ctypes.CFUNCTYPE(None, *(type(value) for value in passed))(int(address))(*passed)


def _passed(arg: Any) -> ctypes.c_int64 | ctypes.c_float | ctypes.c_double | ctypes.c_void_p:
    """An argument in its C type."""
    if hasattr(arg, "__array_interface__") and getattr(arg, "shape", ()) != ():
        return ctypes.c_void_p(arg.ctypes.data)
    kind, itemsize = getattr(getattr(arg, "dtype", None), "kind", None), getattr(arg, "itemsize", 8)
    if kind == "f" or isinstance(arg, float):
        return ctypes.c_float(arg) if itemsize == 4 else ctypes.c_double(arg)
    return ctypes.c_int64(int(arg))
