"""What a kernel body may call on every device, besides arithmetic, ``math`` and NumPy's scalar functions.

Here each is a plain Python function, which is what a body means when it is read, debugged or interpreted; every backend
compiles its own form of it. Importing this imports no compiler.
"""

from aiodev.lang.atomics import atomic_add, atomic_cas, atomic_max, atomic_min
from aiodev.lang.elementary import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cbrt,
    cos,
    cosh,
    exp,
    exp2,
    expit,
    expm1,
    log,
    log1p,
    log2,
    log10,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from aiodev.lang.hints import prefetch
from aiodev.lang.native import call_native
from aiodev.lang.numeric import abs, atan2, bfloat16, fma, hypot, popcount, pow, rsqrt
from aiodev.lang.products import matmul
from aiodev.lang.sorting import sort
from aiodev.lang.summing import moments, sum, sum_squares
from aiodev.lang.team import team_array, team_barrier, team_rank, team_size

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic_add",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "bfloat16",
    "call_native",
    "cbrt",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expit",
    "expm1",
    "fma",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "matmul",
    "moments",
    "popcount",
    "pow",
    "prefetch",
    "rsqrt",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "sum",
    "sum_squares",
    "tan",
    "tanh",
    "team_array",
    "team_barrier",
    "team_rank",
    "team_size",
]


def __dir__() -> list[str]:
    return __all__
