"""NumPy's scalar functions that numba-cuda lacks, a third of them (0.30 knows no ``np.exp``), as it could have them.

Real floating loops go to libdevice. The others are those of numba's CPU table, by name, in numba-cuda's own copy of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from numba.cuda import libdevice, types, typing
from numba.cuda.cpython import numbers
from numba.cuda.np import npyfuncs
from numba.cuda.ufuncs import ufunc_db
from numba.np.ufunc_db import get_ufunc_info, get_ufuncs

__all__ = ["install"]

Code = Callable[[Any, Any, Any, Any], Any]

_LIBDEVICE = {
    numpy.cbrt: "cbrt", numpy.ceil: "ceil", numpy.copysign: "copysign", numpy.exp: "exp", numpy.exp2: "exp2",
    numpy.expm1: "expm1", numpy.fabs: "fabs", numpy.floor: "floor", numpy.fmod: "fmod", numpy.log1p: "log1p",
    numpy.nextafter: "nextafter", numpy.power: "pow", numpy.rint: "rint", numpy.sqrt: "sqrt", numpy.trunc: "trunc",
}  # fmt: skip
#: Where numba-cuda keeps its copies of numba's modules.
_COPIES = {"numba.np.npyfuncs": npyfuncs, "numba.cpython.numbers": numbers, "numba.np.math.numbers": numbers}


def install() -> None:
    """Add what is missing to numba-cuda's table."""
    known = ufunc_db()
    for ufunc in get_ufuncs():
        if ufunc not in known:
            found = {
                loop: copied for loop, code in get_ufunc_info(ufunc).items() if (copied := _copy(ufunc, loop, code))
            }
            if found:
                known[ufunc] = found


def _copy(ufunc: Any, loop: str, code: Code) -> Code | None:
    """The CUDA code for one loop of a ufunc, or None."""
    name = _LIBDEVICE.get(ufunc)
    if name is not None and set(loop) <= set("f->"):
        return _calling(getattr(libdevice, f"{name}f"), types.float32)
    if name is not None and set(loop) <= set("d->"):
        return _calling(getattr(libdevice, name), types.float64)
    module = _COPIES.get(code.__module__)
    return getattr(module, code.__name__, None)


def _calling(function: Any, kind: Any) -> Code:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = typing.signature(*[kind] * (1 + len(args)))
        return context.get_function(function, wanted)(builder, args)

    return code
