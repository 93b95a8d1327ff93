"""The table of elementwise functions, and what a row of it makes.

A row declares a function at its name in :mod:`aiodev.kernels.elementwise.table`. The exports, the pages of the reference, the
tests and ``warm_up`` go by the table, so there is nothing else to do for another one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.elementwise.derivatives import called_by, declare_call
from aiodev.kernels.elementwise.ufunc import DType, Elementwise, Operand

__all__ = ["TABLE", "Binary", "Group", "Row", "Unary"]


class Row(NamedTuple):
    """An elementwise function."""

    group: str  #: the reference's heading
    operands: tuple[str, ...]
    reference: Callable[..., Any]  #: the same of NumPy's arrays


#: From the operands' types to what they become and, behind them, the result's, as ``aiodev.dtypes.resolve`` has them.
Resolve = Callable[..., Sequence[Any]]
#: An expression; one for real and one for complex numbers, under ``""`` and ``"c"``; or none.
Gradient = str | Mapping[str, str] | None
#: By name.
TABLE: dict[str, Row] = {}


class Unary(Protocol):
    """A function of one array."""

    def __call__(self, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


class Binary(Protocol):
    """A function of two arrays of shapes that broadcast, or of an array and a number."""

    def __call__(self, x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None) -> aiodev.Array: ...


_COMMON = """{summary}

Submits to the current stream; writes to ``out`` if given, else to a new array of NumPy's result type.

Raises:
    TypeError: NumPy has no such function of these dtypes, an operand is neither an array nor a number, or ``out`` has a dtype
        that the result cannot become.
    OverflowError: a Python integer is beyond the dtype that it is computed with in.
    ValueError: the shapes do not fit.

Example:
    >>> import {modules}
    >>> x = aiodev.asarray({x}, device="cpu")
    >>> aiodev.kernels.{name}({call}).numpy_blocking()
    array({found})"""


class Group:
    """Functions that the reference has under one heading."""

    def __init__(self, title: str, *, constant: bool = False) -> None:
        """``constant``: their results do not depend smoothly on anything."""
        self._title = title
        self._is_constant = constant

    def unary(
        self,
        name: str,
        expression: str | Mapping[str, str],
        reference: Callable[..., Any],
        summary: str,
        given: str,
        found: str,
        *,
        types: Resolve | None = None,
        kept: str = "",
        gradient: Gradient = "",
    ) -> Unary:
        """Declare a function of one array.

        Args:
            name: of the function.
            expression: of ``{x}``; or several, by the kinds of the dtype that is computed in, and under ``""`` for all others.
            reference: the same of NumPy's arrays, as a rule a function of NumPy; with ``types``, of arrays of what those say.
            summary: the first sentence of its docstring.
            given: the operand of its example.
            found: the result of that, as NumPy prints it.
            types: what its dtypes are resolved by; by default as those of ``reference``, which is one of NumPy's ufuncs then.
            kept: kinds of dtypes of which it gives the argument back, as the array API has it.
            gradient: an expression, or one for real and one for complex numbers: of ``{g}``, the gradient of the result, of
                ``{x}`` and ``{result}``; ``"0"`` where the result changes by steps only, and empty for a function without a
                gradient.
        """
        by_kind = {"": expression} if isinstance(expression, str) else expression
        by_kind = {**by_kind, **dict.fromkeys(kept, "{x}")}
        resolve = types or functools.partial(dtypes.resolve, reference)  # type: ignore[arg-type]

        def rule(kind: Any) -> Sequence[DType]:
            if isinstance(kind, np.dtype) and dtypes.kind(kind) in kept:
                return kind, kind
            return _resolve(name, resolve, kind)

        same = reference if types is None else functools.partial(_of_types, rule, reference)
        text = _describe(name, summary, given, found)
        made: Unary = self._declare(name, by_kind, ("x",), rule, same, text, gradients=(gradient,))
        return made

    def binary(
        self,
        name: str,
        expression: str | Mapping[str, str],
        reference: np.ufunc,
        summary: str,
        given: str,
        found: str,
        *,
        compares: bool = False,
        gradients: tuple[Gradient, Gradient] = ("", ""),
    ) -> Binary:
        """Declare a function of two arrays, of ``{x1}`` and ``{x2}``, in the same way.

        ``compares``: integers beyond those of the other operand are compared with it as infinities, which is the same.
        """

        rule = functools.partial(_resolve, name, functools.partial(dtypes.resolve, reference))
        text, near = _describe(name, summary, given, found), _comparable if compares else None
        made: Binary = self._declare(name, expression, ("x1", "x2"), rule, reference, text, near, gradients)
        return made

    def _declare(
        self,
        name: str,
        expression: Any,
        operands: tuple[str, ...],
        rule: Any,
        reference: Any,
        text: str,
        near: Any = None,
        gradients: Sequence[Gradient] = ("",),
    ) -> Any:
        TABLE[name] = Row(self._title, operands, reference)
        gradients = [None] * len(operands) if self._is_constant else gradients
        derivatives = None if "" in gradients else dict(zip(operands, gradients, strict=True))
        called = called_by(expression if isinstance(expression, str) else expression[""], operands)
        if derivatives is not None and called is not None:
            real = {own: given[""] if isinstance(given, Mapping) else given for own, given in derivatives.items()}
            declare_call(called, operands, {own: None if given == "0" else given for own, given in real.items()})
        module = "aiodev.kernels.elementwise.table"
        made = Elementwise(name, expression, operands, rule, doc=text, module=module, near=near, derivatives=derivatives)
        return made.function


def _resolve(name: str, resolve: Resolve, *kinds: Any) -> Sequence[DType]:
    """The dtypes that a NumPy function takes and gives for these types."""
    try:
        *inputs, result = resolve(*kinds)
    except TypeError as error:
        shown = " and ".join(kind.name if isinstance(kind, np.dtype) else kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: not defined for {shown}; aiodev.kernels.astype converts") from error
    if name == "nextafter" and dtypes.is_stored_only(result):
        raise TypeError(f"nextafter: {result} is computed with in {dtypes.compute_dtype(result)}, which has other neighbours")
    return *inputs, result


def _of_types(rule: Resolve, reference: Callable[..., Any], x: Any) -> Any:
    """A function of NumPy's arrays with the dtypes that a rule says; what that refuses is refused."""
    given, result = rule(x.dtype)
    return reference(x.astype(given)).astype(result)


def _comparable(value: Any, other: Any) -> Any:
    """The number; for an integer beyond the integers that it is compared with an infinity, which compares with them alike."""
    if type(value) is int and getattr(other, "dtype", None) is not None and other.dtype.kind in "iu":
        limits = np.iinfo(other.dtype)
        if not limits.min <= value <= limits.max:
            return math.inf if value > 0 else -math.inf
    return value


def _describe(name: str, summary: str, given: str, found: str) -> str:
    """The docstring of a function."""
    first, _, second = given.partition("], ")
    call = "x"
    if second:
        call = f'x, aiodev.asarray({second}, device="cpu")' if second.startswith("[") else f"x, {second}"
    modules = "aiodev, aiodev.kernels, numpy as np" if "np." in given else "aiodev, aiodev.kernels"
    return _COMMON.format(
        modules=modules, summary=summary, x=first.rstrip("]") + "]", name=name, call=call, found=found
    )
