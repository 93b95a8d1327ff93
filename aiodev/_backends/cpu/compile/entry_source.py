"""Source of range entries, generated from a kernel's types.

An entry reads the argument block of a launch (:mod:`aiodev._core.backend.kernel_arguments`), and runs the flat indices
``lo`` … ``hi - 1`` of its shape in C order. For two and three dimensions it walks rows, so that the innermost loop runs along
the last axis: no division an element, and contiguous arrays are read in order.
"""

from __future__ import annotations

from aiodev._core.backend.kernel_arguments import WORD, KernelArgument

__all__ = ["entry_source"]


def entry_source(name: str, ndim: int, arguments: list[KernelArgument]) -> str:
    """Source of ``name(block, lo, hi)``; it needs the names that :func:`aiodev._backends.cpu.compile.compiler` gives it."""
    lines = [f"def {name}(block, lo, hi):", "    if lo >= hi:", "        return 0"]  # a length may be 0, to divide by
    lines += [f"    n{d} = scalar_at(block + {WORD * d}, int64)" for d in range(1, ndim)]
    for position, argument in enumerate(arguments):
        reader = "array_at" if argument.is_array else "scalar_at"
        lines.append(f"    a{position} = {reader}(block + {argument.offset}, T{position})")
    values = "".join(f", a{position}" for position in range(len(arguments)))
    lines += _LOOPS[ndim](values)
    lines.append("    return 0")
    return "\n".join(lines) + "\n"


def _line(values: str) -> list[str]:
    return [
        "    for i in range(lo, hi):",
        f"        body(counted(i){values})",
    ]


def _plane(values: str) -> list[str]:
    return [
        "    i = lo // n1",
        "    j = lo - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n1, j + left)",
        "        left -= end - j",
        "        for column in range(j, end):",
        f"            body(counted(i), counted(column){values})",
        "        j = 0",
        "        i += 1",
    ]


def _volume(values: str) -> list[str]:
    return [
        "    row = lo // n2",
        "    k = lo - row * n2",
        "    i = row // n1",
        "    j = row - i * n1",
        "    left = hi - lo",
        "    while left > 0:",
        "        end = min(n2, k + left)",
        "        left -= end - k",
        "        for column in range(k, end):",
        f"            body(counted(i), counted(j), counted(column){values})",
        "        k = 0",
        "        j += 1",
        "        if j == n1:",
        "            j = 0",
        "            i += 1",
    ]


_LOOPS = {1: _line, 2: _plane, 3: _volume}
