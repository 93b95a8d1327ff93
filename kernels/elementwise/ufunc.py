"""An elementwise operation: an expression, and the kernels that are made of it.

The expression names its operands, as in ``"{x1} + {x2}"``. For each form of loop over them there is a kernel, made when it is
first needed (:mod:`aiodev.kernels.elementwise.iteration`). A number stays a number in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import broadcast
from aiodev.kernels.elementwise.iteration import Form, make_kernel, plan_loop

__all__ = ["DType", "Elementwise", "Operand"]

Operand = aiodev.Array | complex
DType = np.dtype[Any]
Resolve = Callable[[Sequence[Any]], tuple[Sequence[DType], DType]]
_TRUTH = np.dtype(bool)


class Elementwise:
    """An operation on the elements of arrays of shapes that broadcast.

    Args:
        name: of the function that users call.
        expression: over the operands' names in braces, see :func:`aiodev.kernels.elementwise.iteration.make_kernel`; or
            several, by the kinds of the dtypes that operands are computed in, or of the first one's, and under ``""`` for all
            others.
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
        self._lines: dict[tuple[Any, ...], aiodev.Kernel] = {}
        self._takes: tuple[int | None, ...] = tuple(range(len(operands) + 1))
        self._launches = aiodev.LaunchCache(len(operands))
        #: Takes None, the operands, and an output or None. Gives the result; None where no such call was made before.
        self.repeat = self._launches.repeat

    def __call__(self, values: Sequence[Any], out: aiodev.Array | None) -> aiodev.Array:
        """Submit it; returns ``out``, or a new array."""
        found = self.repeat(None, *values, out)
        return self.find_out(values, out) if found is None else found

    # Types

    def _types(self, kinds: tuple[Any, ...], values: Sequence[Operand]) -> tuple[Sequence[DType], DType]:
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
            if not isinstance(value, aiodev.Array | bool | int | float | complex) and not _is_number(value):
                raise TypeError(f"{self.name}: argument {name}: expected an array or a number, got {value!r}")
        if not any(isinstance(value, aiodev.Array) for value in values):
            raise TypeError(f"{self.name}: expected an array among the arguments, got numbers only")

    def _check_out(self, out: aiodev.Array, shape: tuple[int, ...], dtype: DType) -> None:
        if not isinstance(out, aiodev.Array):
            raise TypeError(f"{self.name}: out: expected an aiodev.Array, got {type(out).__name__}")
        if out.shape != shape:
            raise ValueError(f"{self.name}: out: expected the shape {shape}, got {out.shape}")
        if out.dtype != dtype and not dtypes.can_cast(dtype, out.dtype):
            raise TypeError(f"{self.name}: out: {dtype} cannot be written to {out.dtype}")

    # Launches

    def find_out(self, values: Sequence[Operand], out: aiodev.Array | None) -> aiodev.Array:
        """Submit it as if for the first time; the next time it may be repeated."""
        kinds = tuple([_kind(value) for value in values])
        inputs, dtype = self._types(kinds, values)
        shapes = [value.shape for value in values if isinstance(value, aiodev.Array)]
        if not shapes:  # one of NumPy's numbers has the dtype of an array
            self._check(values)
        alike = shapes.count(shapes[0]) == len(shapes)
        shape: tuple[int, ...] = shapes[0] if alike else broadcast(self.name, *shapes)
        made = out is None
        if out is None:
            out = aiodev.empty(shape, dtype, next(value.device for value in values if isinstance(value, aiodev.Array)))
        else:
            self._check_out(out, shape, dtype)
        if 0 in shape:
            return out
        numbered = [
            value if isinstance(value, aiodev.Array) else self._number(name, value, dtype)
            for name, value, dtype in zip(self.operands, values, inputs, strict=True)
        ]
        if alike and len(shape) == 1 != shape[0]:
            kernel, args = self._line((*kinds, out.dtype), values, inputs), [*numbered, out]
            self._launches.launch(None, values, out, kernel, shape, args, self._takes, made=made)
        else:
            kernel, over, rest, args = self._loop(values, inputs, numbered, out)
            takes = *self._takes, *(None for _ in rest)
            self._launches.launch(None, values, out, kernel, over, (*args, *rest), takes, made=made)
        return out

    def _number(self, name: str, value: Any, dtype: DType) -> Any:
        try:
            return dtype.type(value)
        except OverflowError:
            raise OverflowError(f"{self.name}: argument {name}: {value} is out of bounds for {dtype}") from None

    def _line(self, kinds: tuple[Any, ...], values: Sequence[Operand], inputs: Sequence[DType]) -> aiodev.Kernel:
        """The kernel for arrays of one dimension and the same length, of which there may be as many as there are lengths."""
        forms = *[(0,) if isinstance(value, aiodev.Array) else None for value in values], (0,)
        found = self._lines.get((forms, kinds))
        if found is None:
            found = self._lines[forms, kinds] = self._kernel(1, forms, values, inputs)
        return found

    def _loop(
        self, values: Sequence[Operand], inputs: Sequence[DType], numbered: list[Any], out: aiodev.Array
    ) -> tuple[aiodev.Kernel, tuple[int, ...], tuple[int, ...], list[Any]]:
        """The kernel for any arrays, what it runs over, what lengths it is told besides, and its operands as it wants them."""
        laid = [(value.shape, value.strides) if isinstance(value, aiodev.Array) else None for value in (*values, out)]
        lengths, forms, wanted = plan_loop(tuple(laid))
        args = [
            value.reshape(own) if isinstance(value, aiodev.Array) and value.shape != own else value
            for value, own in zip((*numbered, out), wanted, strict=True)
        ]
        kernel = self._kernel(len(lengths), forms, values, inputs)
        if len(lengths) <= 3:
            return kernel, lengths or (1,), (), args
        return kernel, (math.prod(lengths[:-2]), *lengths[-2:]), lengths[1:-2], args

    def _kernel(
        self, ndim: int, forms: tuple[Form, ...], values: Sequence[Operand], inputs: Sequence[DType]
    ) -> aiodev.Kernel:
        kinds = "".join([dtypes.kind(dtype) for dtype in inputs])
        kind = next(kind for kind in (kinds, kinds[0], "") if kind in self.expressions)
        casts = tuple(_cast(value, dtype) for value, dtype in zip(values, inputs, strict=True))
        key = ndim, forms, kind, casts
        found = self._kernels.get(key)
        if found is None:
            made = make_kernel(self.name, self.expressions[kind], self.operands, forms, casts, ndim, self._function)
            found = self._kernels.setdefault(key, made)
        return found


def _is_number(value: Any) -> bool:
    """Whether it is one of NumPy's that devices have, ``bfloat16`` included."""
    if not isinstance(value, np.generic):
        return False
    kind = dtypes.kind(value.dtype)
    return kind in "biuf" and value.dtype.itemsize <= 8 or kind == "c" and value.dtype.itemsize <= 16


def _kind(value: Any) -> Any:
    """What of an operand types follow from: the dtype of an array or of one of NumPy's numbers, or a number's class.

    A truth value is no weak number: NumPy has one type for those.
    """
    if isinstance(value, aiodev.Array | np.generic):
        return value.dtype
    if isinstance(value, bool):
        return _TRUTH
    return next((kind for kind in (int, float, complex) if isinstance(value, kind)), type(value))


def _cast(value: Operand, dtype: DType) -> str:
    """How an element becomes what NumPy would compute with, or what that is computed in."""
    if dtypes.is_stored_only(dtype):
        is_rounded = isinstance(value, aiodev.Array) or dtype.kind == "f"  # a number of another one is passed as it is
        return f"np.{dtypes.compute_dtype(dtype).name}({{}})" if is_rounded else f"lang.{dtype.name}({{}})"
    if not isinstance(value, aiodev.Array) or value.dtype == dtype:
        return "{}"
    return "({} != 0)" if dtype.kind == "b" else f"np.{dtype.name}({{}})"
