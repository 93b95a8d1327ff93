"""An elementwise operation: an expression, and the kernels that are made of it.

The expression names its operands, as in ``"{x1} + {x2}"``. For each form of loop over them there is a kernel, made when it is
first needed (:mod:`aiodev.kernels.loops`). A number stays a number in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.loops import Form, make_kernel, plan_loop

__all__ = ["DType", "Elementwise", "Operand"]

Operand = aiodev.Array | complex
DType = np.dtype[Any]
Resolve = Callable[[Sequence[Any]], tuple[Sequence[DType], DType]]


#: Results that an operation remembers the shapes and dtypes of.
_MOST_RESULTS = 1024


class Elementwise:
    """An operation on the elements of arrays of shapes that broadcast.

    Args:
        name: of the function that users call.
        expression: over the operands' names in braces, see :func:`aiodev.kernels.loops.make_kernel`; or several, by the kind of
            dtype that the first operand is computed in, and under ``""`` for all others.
        operands: their names.
        resolve: from the operands' types (a dtype, or a Python number's class) to what each number among them becomes, and
            to the result's.
        function: what ``function`` stands for.
    """

    def __init__(
        self,
        name: str,
        expression: str | Mapping[str, str],
        operands: tuple[str, ...],
        resolve: Resolve,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.expressions = {"": expression} if isinstance(expression, str) else expression
        self.operands = operands
        self._function = function
        self._resolve = resolve
        self._resolved: dict[tuple[Any, ...], tuple[Sequence[DType], DType]] = {}
        self._kernels: dict[tuple[Any, ...], aiodev.Kernel] = {}
        self._results: dict[tuple[Any, ...], tuple[tuple[int, ...], DType]] = {}
        self._launches = aiodev.LaunchCache(len(operands) + 1)
        #: Submits it as it was submitted for operands, the result among them, of the same layouts; False if it never was.
        self.repeat = self._launches.repeat

    def __call__(self, values: Sequence[Any], out: aiodev.Array | None) -> aiodev.Array:
        """Submit it; returns ``out``, or a new array."""
        if out is None:
            out = self._make_result(values)
        if not self.repeat(None, *values, out):
            self._submit(values, out)
        return out

    def _make_result(self, values: Sequence[Any]) -> aiodev.Array:
        key = tuple([(value.shape, value.dtype) if isinstance(value, aiodev.Array) else _kind(value) for value in values])
        found = self._results.get(key)
        if found is None:
            _, dtype = self._types(values)
            if len(self._results) >= _MOST_RESULTS:
                self._results.clear()
            found = self._results[key] = _common_shape(values), dtype
        device = next(value.device for value in values if isinstance(value, aiodev.Array))
        return aiodev.empty(*found, device)

    # Types

    def _types(self, values: Sequence[Operand]) -> tuple[Sequence[DType], DType]:
        kinds = tuple([_kind(value) for value in values])
        found = self._resolved.get(kinds)
        if found is None:
            self._check(values)
            found = self._resolved[kinds] = self._resolve(kinds)
        return found

    def _check(self, values: Sequence[Operand]) -> None:
        for name, value in zip(self.operands, values, strict=True):
            if isinstance(value, np.ndarray):
                raise TypeError(
                    f"{self.name}: argument {name}: expected an array or a number, got a NumPy array in host memory; "
                    f"aiodev.asarray(value) copies it to the device"
                )
            if not isinstance(value, aiodev.Array | bool | int | float | complex | np.number | np.bool_):
                raise TypeError(f"{self.name}: argument {name}: expected an array or a number, got {value!r}")
        if not any(isinstance(value, aiodev.Array) for value in values):
            raise TypeError(f"{self.name}: expected an array among the arguments, got numbers only")

    def _check_out(self, out: aiodev.Array, shape: tuple[int, ...], dtype: DType) -> None:
        if not isinstance(out, aiodev.Array):
            raise TypeError(f"{self.name}: out: expected an aiodev.Array, got {type(out).__name__}")
        if out.shape != shape:
            raise ValueError(f"{self.name}: out: expected the shape {shape}, got {out.shape}")
        if not np.can_cast(dtype, out.dtype, "same_kind"):
            raise TypeError(f"{self.name}: out: {dtype} cannot be written to {out.dtype}")

    # Launches

    def _submit(self, values: Sequence[Operand], out: aiodev.Array) -> None:
        """Find out how; the next time that is known."""
        inputs, dtype = self._types(values)
        shape = _common_shape(values)
        self._check_out(out, shape, dtype)
        if 0 in shape:
            return
        operands = *values, out
        laid = [(value.shape, value.strides) if isinstance(value, aiodev.Array) else None for value in operands]
        lengths, forms, shapes = plan_loop(tuple(laid))
        args: list[Any] = [
            _shaped(value, wanted) if isinstance(value, aiodev.Array) else kind.type(value)
            for value, wanted, kind in zip(operands, shapes, (*inputs, dtype), strict=True)
        ]
        kernel = self._kernel(len(lengths), forms, values, inputs)
        over, rest = lengths or (1,), lengths[1:-2] if len(lengths) > 3 else ()
        if rest:
            over = math.prod(lengths[:-2]), *lengths[-2:]
        args += rest
        takes = *range(len(operands)), *(None for _ in rest)
        self._launches.launch(None, operands, kernel, over, args, takes)

    def _kernel(
        self, ndim: int, forms: tuple[Form, ...], values: Sequence[Operand], inputs: Sequence[DType]
    ) -> aiodev.Kernel:
        kind = inputs[0].kind if inputs[0].kind in self.expressions else ""
        casts = tuple(_cast(value, dtype) for value, dtype in zip(values, inputs, strict=True))
        key = ndim, forms, kind, casts
        found = self._kernels.get(key)
        if found is None:
            made = make_kernel(self.name, self.expressions[kind], self.operands, forms, casts, ndim, self._function)
            found = self._kernels.setdefault(key, made)
        return found


def _kind(value: Any) -> Any:
    """What of an operand types follow from: the dtype of an array or of one of NumPy's numbers, or a number's class."""
    return value.dtype if isinstance(value, aiodev.Array | np.generic) else type(value)


def _shaped(x: aiodev.Array, shape: tuple[int, ...]) -> aiodev.Array:
    return x if x.shape == shape else x.reshape(shape)


def _common_shape(values: Sequence[Any]) -> tuple[int, ...]:
    shapes = [value.shape for value in values if isinstance(value, aiodev.Array)]
    first: tuple[int, ...] = shapes[0]
    return first if all(shape == first for shape in shapes) else np.broadcast_shapes(*shapes)


def _cast(value: Operand, dtype: DType) -> str:
    """How an element becomes what NumPy would compute with; ``float16`` is computed with in single precision."""
    if dtype == np.float16:
        return "np.float32({})"
    if not isinstance(value, aiodev.Array) or value.dtype == dtype:
        return "{}"
    return "({} != 0)" if dtype.kind == "b" else f"np.{dtype.name}({{}})"
