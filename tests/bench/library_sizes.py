"""What the library does with ten thousand and a hundred thousand elements: too few for bars, and what programs often have.

And sums of a million numbers where each call is awaited before the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness import Figure, Run
from library_elementwise import bandwidth
from library_linalg import over_rows, product
from library_reductions import reduction
from library_sorting import figure_of

__all__ = ["FIGURES"]


def _of_size(elements: int) -> dict[str, Callable[[Run], Awaitable[Figure]]]:
    side = round(elements**0.5)
    return {
        "add": bandwidth("add", "sum of two arrays", 3, elements),
        "saxpy": bandwidth("saxpy", "a * x + y, fused", 3, elements),
        "sum": reduction("sum", "sum", elements),
        "softmax": over_rows("softmax", elements, 1000),
        "matmul": product("product of square matrices", "float32", side, side, side),
        "cumulative-sum": figure_of("cumulative_sum", "running sum", "float32", elements),
        "sort": figure_of("sort", "sort", "float32", elements),
        "histogram": figure_of("histogram", "histogram of 100 bins", "float32", elements),
    }


FIGURES = {f"{name}-1e{n}": figure for n in (4, 5) for name, figure in _of_size(10**n).items()}
FIGURES["add-each-awaited"] = bandwidth("add", "sum of two arrays, each one awaited", 3, 10**6, in_a_row=1)
FIGURES["sum-each-awaited"] = reduction("sum", "sum, each one awaited", 10**6, in_a_row=1)
