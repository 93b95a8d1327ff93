"""An elementwise operation: an expression, and the kernels that are made of it.

The expression names its operands, as in ``"{x1} + {x2}"``. For each form of loop over them there is a kernel, made when it is
first needed (:mod:`aiodev.kernels.loops`). A number stays a number in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.loops import Form, make_kernel, plan_loop

__all__ = ["DType", "Elementwise", "Operand"]

Operand = aiodev.Array | complex
DType = np.dtype[Any]
Resolve = Callable[[Sequence[Any]], tuple[Sequence[DType], DType]]


#: Layouts that an operation remembers how to run over.
_MOST_PLANS = 1024


class _Plan(NamedTuple):
    """How to run over operands that are laid out in one way."""

    shape: tuple[int, ...]  #: of the result
    dtype: DType
    first: int  #: which operand is an array
    kernel: aiodev.Kernel | None  #: None where there is nothing to compute
    over: tuple[int, ...]  #: the lengths that it is launched over
    views: tuple[tuple[int, tuple[int, ...]], ...]  #: operands, the result among them, that get another shape
    numbers: tuple[tuple[int, DType], ...]  #: operands that are numbers, and what they become
    lengths: tuple[int, ...]  #: what the kernel takes besides


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
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._of_lines: dict[tuple[DType | None, ...], tuple[aiodev.Kernel, DType]] = {}

    def of_one(self, x: Any, out: aiodev.Array | None) -> aiodev.Array:
        """``self((x,), out)``, sooner where the array has one dimension and its dtype was seen before."""
        try:
            shape = x.shape
            if len(shape) != 1 or (out is not None and out.shape != shape):
                return self((x,), out)
            kernel, dtype = self._of_lines[x.dtype, None if out is None else out.dtype]
        except (AttributeError, KeyError):
            return self((x,), out)
        device = x.device
        if out is None:
            out = aiodev.empty(shape, dtype, device)
        if shape[0]:
            kernel[shape[0], aiodev.current_stream(device)](x, out)
        return out

    def of_two(self, x1: Any, x2: Any, out: aiodev.Array | None) -> aiodev.Array:
        """``self((x1, x2), out)``, sooner where both are arrays of one dimension and their dtypes were seen before."""
        try:
            shape = x1.shape
            if len(shape) != 1 or x2.shape != shape or (out is not None and out.shape != shape):
                return self((x1, x2), out)
            kernel, dtype = self._of_lines[x1.dtype, x2.dtype, None if out is None else out.dtype]
        except (AttributeError, KeyError):
            return self((x1, x2), out)
        device = x1.device
        if out is None:
            out = aiodev.empty(shape, dtype, device)
        if shape[0]:
            kernel[shape[0], aiodev.current_stream(device)](x1, x2, out)
        return out

    def __call__(self, values: Sequence[Any], out: aiodev.Array | None) -> aiodev.Array:
        """Submit it; returns ``out``, or a new array."""
        laid = None if out is None else _laid(out)
        key = (*map(_laid, values), laid)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._remember(key, values, out)
        result = aiodev.empty(plan.shape, plan.dtype, values[plan.first].device) if out is None else out
        if plan.kernel is not None:
            args: list[Any] = [*values, result]
            for position, shape in plan.views:
                args[position] = args[position].reshape(shape)
            for position, dtype in plan.numbers:
                args[position] = dtype.type(args[position])
            plan.kernel[*plan.over, aiodev.current_stream(result.device)](*args, *plan.lengths)
        return result

    def _remember(self, key: tuple[Any, ...], values: Sequence[Any], out: aiodev.Array | None) -> _Plan:
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = self._plans[key] = self._make_plan(values, out)
        shape = plan.shape
        if len(shape) == 1 and all(isinstance(value, aiodev.Array) and value.shape == shape for value in values):
            given = tuple(value.dtype for value in values)
            if plan.kernel is not None:
                self._of_lines[*given, None if out is None else out.dtype] = plan.kernel, plan.dtype
        return plan

    # Types

    def _types(self, values: Sequence[Operand], arrays: list[aiodev.Array]) -> tuple[Sequence[DType], DType]:
        kinds = tuple(value.dtype if isinstance(value, aiodev.Array | np.generic) else type(value) for value in values)
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

    def _make_plan(self, values: Sequence[Operand], out: aiodev.Array | None) -> _Plan:
        arrays = [value for value in values if isinstance(value, aiodev.Array)]
        inputs, dtype = self._types(values, arrays)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        if out is not None:
            self._check_out(out, shape, dtype)
        first = next(k for k, value in enumerate(values) if isinstance(value, aiodev.Array))
        if 0 in shape:
            return _Plan(shape, dtype, first, None, (), (), (), ())
        strides = _packed_strides(shape, dtype.itemsize) if out is None else out.strides
        laid = [(value.shape, value.strides) if isinstance(value, aiodev.Array) else None for value in values]
        lengths, forms, shapes = plan_loop((*laid, (shape, strides)))
        given = [*(None if one is None else one[0] for one in laid), shape]
        views = [
            (k, wanted) for k, (own, wanted) in enumerate(zip(given, shapes, strict=True)) if own not in (None, wanted)
        ]
        numbers = [(k, kind) for k, (one, kind) in enumerate(zip(laid, inputs, strict=True)) if one is None]
        over = lengths or (1,)
        rest: tuple[int, ...] = ()
        if len(lengths) > 3:
            over, rest = (math.prod(lengths[:-2]), *lengths[-2:]), lengths[1:-2]
        kernel = self._kernel(len(lengths), forms, values, inputs)
        return _Plan(shape, dtype, first, kernel, over, tuple(views), tuple(numbers), rest)

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


def _laid(value: Any) -> Any:
    """What of an operand matters to how it is computed with: the layout and the dtype of an array, a number's type."""
    if isinstance(value, aiodev.Array):
        return value.shape, value.strides, value.dtype
    return value.dtype if isinstance(value, np.generic) else type(value)


def _packed_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _cast(value: Operand, dtype: DType) -> str:
    """How an element becomes what NumPy would compute with; ``float16`` is computed with in single precision."""
    if dtype == np.float16:
        return "np.float32({})"
    if not isinstance(value, aiodev.Array) or value.dtype == dtype:
        return "{}"
    return "({} != 0)" if dtype.kind == "b" else f"np.{dtype.name}({{}})"
