"""Fusion: users' elementwise functions, several operations in one pass over memory.

What is written with arrays in mind is traced (:mod:`aiodev.kernels.elementwise.tracing`); what needs numbers is compiled.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, arrays_of, broadcast, dtype_of
from aiodev.kernels.elementwise.reverse import gradient_of
from aiodev.kernels.elementwise.tracing import Refused, Trace, trace
from aiodev.kernels.elementwise.ufunc import DType, Elementwise, Operand, kind_of

__all__ = ["Fused", "binary_transform", "fused", "unary_transform"]

_RESERVED = frozenset({"function", "g", "lang", "math", "np", "out", "rest", "result", "shapes"})


class Fused:
    """A function that is applied to the elements of arrays of shapes that broadcast; made by :func:`fused`.

    Attributes:
        name: the function's name.
        py_func: the plain function.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> step = aiodev.kernels.fused(lambda x, dx: x + 0.5 * dx)
        >>> step
        <aiodev.kernels.Fused fused(x, dx)>
        >>> x = aiodev.ones(2, device="cpu")
        >>> step(x, 4.0).numpy_blocking()
        array([3., 3.])
    """

    def __init__(self, function: Callable[..., Any], dtype: Any = None) -> None:
        names = _names(function)
        given = getattr(function, "__name__", "")
        self.name = given if given.isidentifier() else "fused"
        self.py_func = function
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", None) or __name__
        self._dtype = dtype_of("fused", dtype)
        self._operands = names
        self._submit = _Traceable(self.name, function, names, self._dtype, self.__module__).function

    def __call__(self, *operands: Operand, out: aiodev.Array | None = None) -> aiodev.Array:
        """Submit it to the current stream of the arrays' device; returns ``out``, or a new array.

        Raises:
            TypeError: too few or too many operands, or one is neither an array nor a number, or all are numbers; or the
                function does what is not elementwise, or changes an operand.
            ValueError: the shapes do not broadcast, or ``out`` has another than the result; or an operator in place makes what
                it writes larger.
        """
        if len(operands) != len(self._operands):
            raise TypeError(f"{self.name}: expected the operands ({', '.join(self._operands)}), got {len(operands)}")
        return self._submit(*operands, out)

    @property
    def operation(self) -> aiodev.Operation:
        """What it submits by; ``operation.gradient`` declares the gradient, see :meth:`aiodev.Operation.gradient`."""
        operation: aiodev.Operation = self._submit.operation  # type: ignore[attr-defined]
        return operation

    def __reduce__(self) -> str:
        """By reference, as functions are pickled and copied: another process imports the module that defines it."""
        return self.py_func.__qualname__

    def __repr__(self) -> str:
        return f"<aiodev.kernels.Fused {self.name}({', '.join(self._operands)})>"


class _Traceable(Elementwise):
    """A user's function: traced, where it computes by operators and elementwise functions; else compiled as it is."""

    def __init__(
        self, name: str, function: Callable[..., Any], operands: tuple[str, ...], dtype: DType | None, module: str
    ) -> None:
        expression = f"function({', '.join(f'{{{name}}}' for name in operands)})"
        super().__init__(name, expression, operands, self._resolve, function, module=module, by_name=False)
        self._function, self._dtype = function, dtype
        self._traces: dict[tuple[Any, ...], Trace | None] = {}
        self.function.operation.derive = self._derive  # type: ignore[attr-defined]

    def computes(self, kinds: Sequence[Any], inputs: Sequence[DType]) -> tuple[str, Callable[..., Any] | None]:
        trace = self._traces.get(tuple(kinds))
        return super().computes(kinds, inputs) if trace is None else (trace.expression, None)

    def _submit(self, call: aiodev.Call, values: Sequence[Any]) -> aiodev.Array:
        _ = call.dtypes  # where these kinds are new, that traces the function
        trace = self._traces.get(tuple([kind_of(value) for value in values]))
        if trace is not None and trace.kept:
            self._check_kept(trace, values)
        return super()._submit(call, values)

    def _check_kept(self, trace: Trace, values: Sequence[Any]) -> None:
        """Check that what operators in place write is as large as what they compute."""
        shapes = {
            name: value.shape if isinstance(value, aiodev.Array) else ()
            for name, value in zip(self.operands, values, strict=True)
        }
        for name, written, read in trace.kept:
            before, after = (broadcast(self.name, *[shapes[own] for own in part]) for part in (written, written | read))
            if before != after:
                raise ValueError(f"{self.name}: {name}: in place, a result of the shape {after} cannot be written to {before}")

    def _resolve(self, *kinds: Any) -> Sequence[DType]:
        try:
            traced = self._traces[kinds] = trace(self._function, self.operands, kinds)
        except OverflowError:  # a constant is beyond the dtype that it is computed with in
            raise
        except Refused as error:
            raise TypeError(f"{self.name}: {error}") from None
        except Exception as error:  # it looks at values, or is wrong, which the call with ones tells
            self._traces[kinds] = None
            return self._try_ones(kinds, error)
        return *traced.inputs, traced.result if self._dtype is None else self._dtype

    def _derive(self, operands: Sequence[Any]) -> dict[str, Callable[..., Any] | None] | None:
        """The gradients, where the function and those of its steps can be traced; they are found when they are first needed."""
        kinds = tuple([dtypes.kind_of_operand(operand) for operand in operands])
        if self._traces.get(kinds) is None or self._dtype is not None:
            return None
        result = self._traces[kinds].result  # type: ignore[union-attr]
        inner = tuple(f"a{place}" for place in range(len(self.operands) + 1))
        rules: dict[str, Callable[..., Any] | None] = {}
        for place, operand in enumerate(self.operands):
            gradient = gradient_of(self._function, place)
            if not isinstance(kinds[place], type):  # what is a number in this call may be a variable in the next one
                try:
                    trace(gradient, inner, (result, *kinds))
                except Exception:  # of some step there is no gradient
                    return None
            made = _Traceable(f"{self.name}_gradient", gradient, inner, None, __name__).function
            rules[operand] = _with_names(made, ("g", *self.operands))
        return rules

    def _try_ones(self, kinds: Sequence[Any], untraced: Exception) -> Sequence[DType]:
        """What NumPy's promotion gives: the function is tried with ones of these types."""
        arrays = [kind for kind in kinds if not isinstance(kind, type)]
        inputs = [dtypes.result_type(*arrays, kind) if isinstance(kind, type) else kind for kind in kinds]
        if self._dtype is not None:
            return *inputs, self._dtype
        shown, meant = dtypes.stand_ins(kinds)
        ones = [kind(1) if isinstance(kind, type) else kind.type(1) for kind in shown]
        try:
            with np.errstate(all="ignore"):
                result = self._function(*ones)
        except Exception as error:  # the user's function may raise anything
            else_said = "" if str(untraced) == str(error) else f". As a function of arrays it fails, too: {untraced}"
            raise TypeError(
                f"{self.name}: cannot tell the result's dtype, since the function fails for ones: "
                f"{type(error).__name__}: {error}; give fused(function, dtype=…){else_said}"
            ) from error
        if isinstance(result, np.generic):
            return *inputs, meant(result.dtype)
        if not isinstance(result, bool | int | float | complex):
            raise TypeError(f"{self.name}: expected a function that returns a number, got {result!r}")
        return *inputs, np.dtype(bool) if isinstance(result, bool) else dtypes.result_type(*arrays, type(result))


def _with_names(made: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """A function of the result's gradient and the operands, under the names that a gradient's parameters have."""

    def rule(*values: Any) -> Any:
        return made(*values, None)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    rule.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return rule


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    if isinstance(function, np.ufunc):
        return tuple(f"x{k}" for k in range(1, function.nin + 1))
    if not callable(function):
        raise TypeError(f"fused: expected a function of numbers, got {type(function).__name__}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some built-in functions nobody knows
        raise TypeError(f"fused: expected a function of numbers whose parameters are known, got {function!r}") from None
    allowed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or any(p.kind not in allowed or p.default is not p.empty for p in parameters):
        wanted = "a function of numbers, or of arrays, by position and without defaults"
        raise TypeError(f"fused: expected {wanted}, got {inspect.signature(function)}")
    return tuple(p.name + "_" if p.name in _RESERVED or p.name[1:].isdigit() else p.name for p in parameters)


@overload
def fused(function: Callable[..., Any], /, *, dtype: Any = None) -> Fused: ...


@overload
def fused(*, dtype: Any = None) -> Callable[[Callable[..., Any]], Fused]: ...


def fused(function: Callable[..., Any] | None = None, /, *, dtype: Any = None) -> Any:
    """Make one kernel of a function that computes elements: one pass over memory, whatever it computes.

    A function of arrays, with operators and the elementwise functions of :mod:`aiodev.kernels` or NumPy, gives what it would
    give by itself: shapes broadcast, and every step has the dtype that it has of arrays. Only what is stored in 16 bits is not
    rounded in between. It is called once for each combination of types, with something that stands for arrays. A truth value
    is one of NumPy's there, not one of Python's numbers: the sum of two is whether either is true. An operand that is a number
    is refused where the dtype has none like it, as ever; what the function computes from such numbers alone, as ``-a``, wraps.

    An operator in place (``z += y``) keeps the dtype and the shape of what it writes, or raises what it raises of arrays. The
    operands are only read: to change one is refused, as is what is not elementwise, such as a mean.

    A function that decides by a value (``if x > 0``), or computes by something else (``math``, :mod:`aiodev.lang`), is taken
    as a function of numbers, and compiled as a kernel's body is, with the compiler's types in between. The result's dtype is
    that of a call with ones. Numbers have no memory and no shape, so ``z += y`` is ``z = z + y`` there, and refuses nothing.

    Of variables (:mod:`aiodev.autograd`) gradients of the first kind follow from the steps, each as one kernel; those of the
    other, ``operation.gradient`` declares.

    Args:
        function: of one or more arrays or numbers; its name and parameters appear in messages.
        dtype: the result's, in place of the one that it has.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev.kernels import exp
        >>> @aiodev.kernels.fused
        ... def swish(x, scale):
        ...     return x / (1 + exp(-scale * x))
        >>> x = aiodev.arange(3, dtype="float32", device="cpu")
        >>> swish(x, 2.0).numpy_blocking().round(3)
        array([0.   , 0.881, 1.964], dtype=float32)
    """
    if function is None:
        return lambda function: Fused(function, dtype)
    return Fused(function, dtype)


def unary_transform(
    function: Callable[[Any], Any], x: aiodev.Array, /, *, out: aiodev.Array | None = None
) -> aiodev.Array:
    """A plain function of a number, of each element: ``fused(function)(x)``. Another lambda is another function, compiled anew.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.unary_transform(lambda v: v * v + 1, x).numpy_blocking()
        array([1, 2, 5])
    """
    if x.__class__ is not aiodev.Array:
        array_of("unary_transform", x)
    return _remembered("unary_transform", function, 1)(x, out=out)


def binary_transform(
    function: Callable[[Any, Any], Any], x1: Operand, x2: Operand, /, *, out: aiodev.Array | None = None
) -> aiodev.Array:
    """A plain function of two numbers, of each pair of elements: ``fused(function)(x1, x2)``.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.binary_transform(lambda a, b: a * b + 1, x, x).numpy_blocking()
        array([1, 2, 5])
    """
    if x1.__class__ is not aiodev.Array and x2.__class__ is not aiodev.Array:
        arrays_of("binary_transform", x1=x1, x2=x2)
    return _remembered("binary_transform", function, 2)(x1, x2, out=out)


def _remembered(name: str, function: Callable[..., Any], operands: int) -> Fused:
    try:
        return _fused(name, function, operands)
    except TypeError:
        if callable(function) and function.__hash__ is not None:
            raise
        raise TypeError(f"{name}: function: expected a function, got {type(function).__name__}") from None


@functools.lru_cache(256)
def _fused(name: str, function: Callable[..., Any], operands: int) -> Fused:
    if not callable(function) or len(_names(function)) != operands:
        raise TypeError(f"{name}: function: expected one of {operands} number(s), got {function!r}")
    return Fused(function)
