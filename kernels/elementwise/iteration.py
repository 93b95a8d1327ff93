"""Iteration over arrays that broadcast: over as few dimensions as will do, with a kernel for each form of loop.

Dimensions of length 1 are left out, and neighbours along which every array runs on are made one. Of an array that is repeated
along a dimension only the others are indexed, as in ``x[i, j] + y[j]``: what lies in memory without gaps then keeps a form that
becomes vector code. Kernels run over up to three dimensions. Should more be left, the outer ones are one index, which the
body takes apart.
"""

from __future__ import annotations

import linecache
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.elementwise.scalars import SCALARS

__all__ = ["Form", "Laid", "make_kernel", "plan_loop"]

#: The dimensions of a loop that index an operand; None for a number.
Form = tuple[int, ...] | None
#: A shape and strides; None for a number.
Laid = tuple[tuple[int, ...], tuple[int, ...]] | None
#: The lengths of a loop's dimensions; by operand, the result last, its form and the shape that its array is to have.
Loop = tuple[tuple[int, ...], tuple[Form, ...], tuple[tuple[int, ...], ...]]


def plan_loop(operands: tuple[Laid, ...]) -> Loop:
    """The loop over operands that are laid out so, the result last."""
    shape, _ = operands[-1] or ((), ())
    steps = [None if operand is None else _steps(operand, len(shape)) for operand in operands]
    groups: list[list[int]] = []
    for axis in (axis for axis, length in enumerate(shape) if length != 1):
        if groups and all(step is None or _runs_on(step, shape, groups[-1][-1], axis) for step in steps):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    lengths = tuple(math.prod(shape[axis] for axis in group) for group in groups)
    forms: list[Form] = []
    shapes: list[tuple[int, ...]] = []
    for step in steps:
        own = [] if step is None else [d for d, group in enumerate(groups) if step[group[0]] is not None]
        forms.append(None if step is None else tuple(own))
        shapes.append(tuple(lengths[d] for d in own) or (1,))
    return lengths, tuple(forms), tuple(shapes)


def _steps(operand: tuple[tuple[int, ...], tuple[int, ...]], ndim: int) -> list[int | None]:
    """Bytes from one element to the next along each dimension of the loop; None where the array is repeated."""
    shape, strides = operand
    own = [None if length == 1 else stride for length, stride in zip(shape, strides, strict=True)]
    return [None] * (ndim - len(shape)) + own


def _runs_on(steps: list[int | None], shape: tuple[int, ...], outer: int, inner: int) -> bool:
    """Whether a step along ``outer`` is what the whole of ``inner`` comes to."""
    far, near = steps[outer], steps[inner]
    if far is None or near is None:
        return far is near
    return far == near * shape[inner]


def make_kernel(
    name: str,
    expression: str,
    operands: Sequence[str],
    forms: Sequence[Form],
    casts: Sequence[str],
    ndim: int,
    function: Callable[..., Any] | None,
) -> aiodev.Kernel:
    """The kernel for a form of loop over ``ndim`` dimensions.

    ``expression`` has the operands' names in braces; before it there may be statements, one a line. It may use ``lang``,
    ``np``, ``math``, the names of :mod:`aiodev.kernels.elementwise.scalars` and, as ``function``, what is given. ``casts`` say
    what becomes of each operand's element (``{}``) before. The kernel takes the operands, ``out``, and of more than three
    dimensions the lengths of all but the first and the last two, by which its first index is taken apart.
    """
    elements = [
        operand if form is None else f"{operand}[{', '.join(f'i{d}' for d in form) or '0'}]"
        for operand, form in zip((*operands, "out"), forms, strict=True)
    ]
    indices = [f"i{d}" for d in range(max(1, ndim))]
    lengths: list[str] = []
    lines: list[str] = []
    if ndim > 3:
        lengths = [f"n{d}" for d in range(1, ndim - 2)]
        for d in reversed(range(1, ndim - 2)):
            lines += [f"    i{d} = rest % n{d}", f"    rest = rest // n{d}"]
        lines.append("    i0 = rest")
        indices = ["rest", *indices[-2:]]
    computed = [cast.format(element) for cast, element in zip(casts, elements, strict=False)]
    *steps, value = expression.format(**dict(zip(operands, computed, strict=True))).split("\n")
    lines += [f"    {step}" for step in steps]
    head = f"def body({', '.join((*indices, *operands, 'out', *lengths))}):"
    source = "\n".join([head, *lines, f"    {elements[-1]} = {value}"]) + "\n"
    # Errors and the analysis of the body look for the source there, so each has a name of its own.
    filename = f"<aiodev.kernels.{name} {zlib.crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {
        "lang": lang,
        "math": math,
        "np": np,
        "function": function,
        "__name__": __name__,
        **SCALARS,
    }
    exec(compile(source, filename, "exec"), namespace)
    body = namespace["body"]
    body.__name__ = body.__qualname__ = name  # under which errors name it
    return aiodev.kernel(ndim=len(indices), uniform=True if function is None else None)(body)
