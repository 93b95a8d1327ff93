"""The bits of 2/π that matter to an argument's remainder, by the argument's exponent; π/2 and 2/π in parts.

For x of the exponent E, below 2**(E + 1), what is left of 2/π is less than 4 units of what a last place of x makes whole.
Entry 0 of a table is for all exponents below 0: nothing is left out there.
"""

from __future__ import annotations

import math

__all__ = ["HALF_PI", "SCALE", "TWO_OVER_PI", "TWO_OVER_PI_SINGLE"]

#: 2**1200 · 2/π, cut off.
_BITS = 1200
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1d"
    "eb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b"
    "5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b",
    16,
)

#: Numbers for ``double`` are 2**SCALE times as large, so that the last of them are normal.
SCALE = 300
#: π/2 as a sum of two numbers.
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def _table(exponents: int, mantissa: int, widths: tuple[int, ...], scale: int) -> tuple[tuple[float, ...], ...]:
    """For each place, by exponent: so many bits of what is left of 2/π."""
    rows = []
    for exponent in (0, *range(exponents)):
        end = _BITS + min(0, mantissa + 2 - exponent)
        left = _TWO_OVER_PI & ((1 << end) - 1)
        row = []
        for width in widths:
            end -= width
            taken = left >> end
            left -= taken << end
            row.append(math.ldexp(float(taken), end - _BITS + scale))
        rows.append(row)
    return tuple(zip(*rows, strict=True))


#: By place: bits for ``float``, of whose products with it the first is exact in a ``double``.
TWO_OVER_PI_SINGLE = _table(128, 23, (29, 53), 0)
#: By place: bits for ``double``; the last index is that of infinities and NaN.
TWO_OVER_PI = _table(1025, 52, (53, 53, 53, 53), SCALE)
