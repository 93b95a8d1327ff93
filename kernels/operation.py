"""An elementwise operation: an expression, and the kernels that are made of it.

The expression names its operands, as in ``"{x1} + {x2}"``. For each way of calling it there is a kernel, made when it is first
needed: over one dimension where every array lies in memory without gaps, which vectorises; over three where some have
gaps or are repeated along a dimension. A number stays a number in both.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

import aiodev
from aiodev import lang

__all__ = ["Elementwise", "Operand"]

Operand = aiodev.Array | complex
DType = np.dtype[Any]
Resolve = Callable[[Sequence[Any]], tuple[Sequence[DType], DType]]


class Elementwise:
    """An operation on the elements of arrays of shapes that broadcast.

    Args:
        name: of the function that users call.
        expression: over the operands' names in braces; it may use ``lang``, ``np``, ``math`` and Python's operators.
        operands: their names.
        resolve: from the operands' types (a dtype, or a Python number's class) to what each number among them becomes, and
            to the result's.
    """

    def __init__(self, name: str, expression: str, operands: tuple[str, ...], resolve: Resolve) -> None:
        self.name = name
        self.expression = expression
        self.operands = operands
        self._resolve = resolve
        self._resolved: dict[tuple[Any, ...], tuple[Sequence[DType], DType]] = {}
        self._kernels: dict[tuple[int, str], aiodev.Kernel] = {}

    def __call__(self, values: Sequence[Operand], out: aiodev.Array | None) -> aiodev.Array:
        """Submit it; returns ``out``, or a new array."""
        arrays = [value for value in values if isinstance(value, aiodev.Array)]
        pattern = "".join("A" if isinstance(value, aiodev.Array) else "S" for value in values)
        inputs, dtype = self._types(values, arrays)
        shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*(array.shape for array in arrays))
        result = self._check_out(out, shape, dtype) if out is not None else None
        if result is None:
            result = aiodev.empty(shape, dtype, arrays[0].device)
        if math.prod(shape):
            numbers = [
                value if isinstance(value, aiodev.Array) else kind.type(value)
                for value, kind in zip(values, inputs, strict=True)
            ]
            self._submit(pattern, numbers, result)
        return result

    # Types

    def _types(self, values: Sequence[Operand], arrays: list[aiodev.Array]) -> tuple[Sequence[DType], DType]:
        kinds = tuple(
            value.dtype if isinstance(value, aiodev.Array | np.generic) else type(value) for value in values
        )
        found = self._resolved.get(kinds)
        if found is None:
            self._check(values, arrays)
            found = self._resolved[kinds] = self._resolve(kinds)
        return found

    def _check(self, values: Sequence[Operand], arrays: list[aiodev.Array]) -> None:
        for name, value in zip(self.operands, values, strict=True):
            if isinstance(value, np.ndarray):
                raise TypeError(
                    f"{self.name}: argument {name}: expected an array or a number, got a NumPy array in host memory; "
                    f"aiodev.asarray(value) copies it to the device"
                )
            if not isinstance(value, aiodev.Array | bool | int | float | complex | np.number | np.bool_):
                raise TypeError(f"{self.name}: argument {name}: expected an array or a number, got {value!r}")
            if isinstance(value, aiodev.Array) and value.dtype == np.float16:
                raise TypeError(f"{self.name}: argument {name}: float16 can be stored and copied, not computed with")
        if not arrays:
            raise TypeError(f"{self.name}: expected an array among the arguments, got numbers only")

    def _check_out(self, out: aiodev.Array, shape: tuple[int, ...], dtype: DType) -> aiodev.Array:
        if not isinstance(out, aiodev.Array):
            raise TypeError(f"{self.name}: out: expected an aiodev.Array, got {type(out).__name__}")
        if out.shape != shape:
            raise ValueError(f"{self.name}: out: expected the shape {shape}, got {out.shape}")
        if not np.can_cast(dtype, out.dtype, "same_kind"):
            raise TypeError(f"{self.name}: out: {dtype} cannot be written to {out.dtype}")
        return out

    # Launches

    def _submit(self, pattern: str, values: list[Any], out: aiodev.Array) -> None:
        stream = aiodev.current_stream(out.device)
        shape, size = out.shape, out.size
        if all(
            kind == "S" or (value.shape == shape and _is_packed(value))
            for kind, value in zip(pattern + "A", (*values, out), strict=True)
        ):
            if len(shape) != 1:
                values = [value.reshape(size) if kind == "A" else value for kind, value in zip(pattern, values, strict=True)]
                out = out.reshape(size)
            self._kernel(1, pattern)[size, stream](*values, out)
            return
        views = [_in_three(value, out.ndim) for value in values]
        target = _in_three(out, out.ndim)
        outer = target.shape[:-3]
        for index in product(*map(range, outer)):
            parts = [_part(value, index) for value in views]
            steps = [int(length != 1) for part in parts if isinstance(part, aiodev.Array) for length in part.shape]
            part = target[index]
            self._kernel(3, pattern)[part.shape, stream](*parts, *steps, part)

    def _kernel(self, ndim: int, pattern: str) -> aiodev.Kernel:
        found = self._kernels.get((ndim, pattern))
        if found is None:
            found = self._kernels[ndim, pattern] = self._make(ndim, pattern)
        return found

    def _make(self, ndim: int, pattern: str) -> aiodev.Kernel:
        """The kernel for a pattern: ``A`` an array, ``S`` a number."""
        indices = "ijk"[:ndim]
        steps: list[str] = []
        elements = {}
        for name, kind in zip(self.operands, pattern, strict=True):
            if kind == "S":
                elements[name] = name
            elif ndim == 1:
                elements[name] = f"{name}[i]"
            else:  # a step of 0 repeats the one element that there is along a dimension
                own = [f"{name}_{index}" for index in indices]
                steps += own
                elements[name] = f"{name}[{', '.join(f'{i} * {step}' for i, step in zip(indices, own, strict=True))}]"
        parameters = ", ".join((*indices, *self.operands, *steps, "out"))
        source = f"def body({parameters}):\n    out[{', '.join(indices)}] = {self.expression.format(**elements)}\n"
        filename = f"<aiodev.kernels.{self.name}/{ndim}{pattern}>"
        # Errors and the analysis of the body look for the source there.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        namespace: dict[str, Any] = {"lang": lang, "math": math, "np": np, "__name__": __name__}
        exec(compile(source, filename, "exec"), namespace)
        body = namespace["body"]
        body.__name__ = body.__qualname__ = self.name  # under which errors name it
        return aiodev.kernel(ndim=ndim)(body)


def _is_packed(array: aiodev.Array) -> bool:
    """Whether it lies in memory in C order without gaps."""
    expected, shape = array.itemsize, array.shape
    if len(shape) == 1:
        return array.strides[0] == expected
    for length, stride in zip(reversed(shape), reversed(array.strides), strict=True):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _in_three(value: Any, ndim: int) -> Any:
    """An array with dimensions of length 1 before its own: ``ndim`` of them, or three."""
    if not isinstance(value, aiodev.Array):
        return value
    return value[(None,) * (max(ndim, 3) - value.ndim)]


def _part(value: Any, index: tuple[int, ...]) -> Any:
    """The last three dimensions at ``index``, which stays 0 where there is only one element."""
    if not isinstance(value, aiodev.Array):
        return value
    return value[tuple(i if length != 1 else 0 for i, length in zip(index, value.shape, strict=False))]
