"""Scalar functions of NumPy that numba-cuda lacks, a third of them (0.30 knows no ``np.exp``), added to its tables.

Real floating loops go to libdevice. The others are those of numba's CPU table, by name, in numba-cuda's own copy of the code.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import cmath
import math
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


def _complex_expm1(z):
    half = math.sin(0.5 * z.imag)
    return complex(math.expm1(z.real) * math.cos(z.imag) + 0.0 - 2.0 * half * half, math.exp(z.real) * math.sin(z.imag))


def _complex_log1p(z):
    return complex(0.5 * math.log1p(z.real * (2.0 + z.real) + z.imag * z.imag), math.atan2(z.imag, 1.0 + z.real))


def _complex_tanh(z):
    turned = numpy.tan(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)


def _complex_power(z, w):
    if z == 0:
        return z + 1 if w == 0 else z
    return cmath.exp(w * cmath.log(z))


def _complex_rint(z):
    return complex(numpy.rint(z.real), numpy.rint(z.imag))


#: Loops over complex numbers whose code on the CPU calls the C library.
_COMPLEX: dict[Any, Any] = {
    numpy.expm1: _complex_expm1, numpy.log1p: _complex_log1p, numpy.power: _complex_power, numpy.rint: _complex_rint,
}  # fmt: skip


def install() -> None:
    """Add what is missing to numba-cuda's table."""
    known = ufunc_db()
    for ufunc in get_ufuncs():
        if ufunc not in known:
            loops = {
                loop: copied for loop, code in get_ufunc_info(ufunc).items() if (copied := _copy(ufunc, loop, code))
            }
            if loops:
                known[ufunc] = loops
    known[numpy.tanh] |= {loop: _compiled(_complex_tanh) for loop in ("F->F", "D->D")}  # theirs overflows


def _copy(ufunc: Any, loop: str, code: Code) -> Code | None:
    """The CUDA code for one loop of a ufunc, or None."""
    name = _LIBDEVICE.get(ufunc)
    if name is not None and set(loop) <= set("f->"):
        return _calling(getattr(libdevice, f"{name}f"), types.float32)
    if name is not None and set(loop) <= set("d->"):
        return _calling(getattr(libdevice, name), types.float64)
    if ufunc in _COMPLEX and set(loop) <= set("FD->"):
        return _compiled(_COMPLEX[ufunc])
    module = _COPIES.get(code.__module__)
    return getattr(module, code.__name__, None)


def _calling(function: Any, kind: Any) -> Code:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = typing.signature(*[kind] * (1 + len(args)))
        return context.get_function(function, wanted)(builder, args)

    return code


def _compiled(function: Callable[..., Any]) -> Code:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.compile_internal(builder, function, signature, args)

    return code
