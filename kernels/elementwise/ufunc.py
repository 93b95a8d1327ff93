"""Ufuncs of the library: an expression, and the kernels that are made of it.

The expression names its operands, as in ``"{x1} + {x2}"``. For each form of loop over them there is a kernel, made when it is
first needed (:mod:`aiodev.kernels.elementwise.iteration`). A number stays a number in all.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import broadcast
from aiodev.kernels.elementwise.derivatives import derivative_of, names_in, renamed
from aiodev.kernels.elementwise.iteration import Form, make_kernel, plan_loop
from aiodev.kernels.tuning import ACROSS, ACROSS_LENGTH

__all__ = ["DECLARED", "DType", "Elementwise", "Operand", "differentiable", "kind_of"]

#: Names of dtypes of which a kernel is given numbers as they are.
_PACKED = frozenset(row.name for row in dtypes.DTYPES.values() if row.packing)

#: By operation, what it was declared by.
DECLARED: weakref.WeakKeyDictionary[aiodev.Operation, Elementwise] = weakref.WeakKeyDictionary()

Operand = aiodev.Array | complex
DType = np.dtype[Any]
#: From the operands' types (a dtype, or a Python number's class) to what each becomes, and behind them the result's.
Rule = Callable[..., Sequence[DType]]


class Elementwise:
    """An operation on the elements of arrays of shapes that broadcast.

    Args:
        name: of the function that users call.
        expression: over the operands' names in braces, see :func:`aiodev.kernels.elementwise.iteration.make_kernel`; or
            several, by the kinds of the dtypes that operands are computed in, or of the first one's, and under ``""`` for all
            others.
        operands: their names.
        types: the rule of dtypes.
        given: what ``function`` stands for in the expression.
        doc: the function's docstring.
        module: where it is to be found.
        near: from a number and another operand to what is computed with in its place.
        by_name: whether ``out`` is given by its name only.
        derivatives: by the operand's name, the expression of its gradient, over ``{g}``, that of the result, the operands and
            the ``{result}``, or one for complex numbers under ``"c"`` and for real ones under ``""``; ``"0"`` of an operand
            with which the result changes by steps only, None of one that it has no part in. Without it there is no gradient.

    Attributes:
        function: the operation: of the operands, and ``out``.
        name, operands, types, near: as given.
    """

    def __init__(
        self,
        name: str,
        expression: str | Mapping[str, str],
        operands: tuple[str, ...],
        types: Rule,
        given: Callable[..., Any] | None = None,
        *,
        doc: str | None = None,
        module: str = __name__,
        near: Callable[[Any, Any], Any] | None = None,
        by_name: bool = True,
        derivatives: Mapping[str, str | Mapping[str, str] | None] | None = None,
    ) -> None:
        self.name = name
        self.expressions = {"": expression} if isinstance(expression, str) else expression
        self.operands = operands
        self.types, self.near = types, near
        self._given = given
        self._kernels: dict[tuple[Any, ...], aiodev.Kernel] = {}
        #: The same, by the kinds of the operands, which say less directly what a kernel is made of.
        self._known: dict[tuple[Any, ...], aiodev.Kernel] = {}

        def body(call: aiodev.Call, *values: Any, out: aiodev.Array | None = None) -> aiodev.Array:
            return self._submit(call, values[: len(operands)])

        body.__name__ = body.__qualname__ = name
        body.__doc__, body.__module__ = doc, module
        body.__signature__ = _signature(operands, by_name)  # type: ignore[attr-defined]
        make = aiodev.operation(
            reads=operands, numbers=operands, writes="out", dtypes=types, name=name, elementwise=True
        )
        made = make(body)
        if derivatives is not None:
            made.operation.gradient(**{own: _rule(name, derivatives[own], module) for own in operands})
        self.function: Callable[..., aiodev.Array] = made
        DECLARED[made.operation] = self

    def expression_of(self, inputs: Sequence[DType]) -> str:
        """The expression for operands that are computed in these dtypes."""
        kinds = "".join([dtypes.kind(dtype) for dtype in inputs])
        return self.expressions[next(kind for kind in (kinds, kinds[0], "") if kind in self.expressions)]

    def computes(self, kinds: Sequence[Any], inputs: Sequence[DType]) -> tuple[str, Callable[..., Any] | None]:
        """The expression for operands of these kinds, which become ``inputs``; and what ``function`` is in it."""
        return self.expression_of(inputs), self._given

    def _submit(self, call: aiodev.Call, values: Sequence[Any]) -> aiodev.Array:
        shapes = [value.shape for value in values if isinstance(value, aiodev.Array)]
        if not shapes:
            raise TypeError(f"{self.name}: expected an array among the arguments, got numbers only")
        values, (*inputs, dtype) = self._seen(call, values)
        alike = shapes.count(shapes[0]) == len(shapes)
        shape: tuple[int, ...] = shapes[0] if alike else broadcast(self.name, *shapes)
        out = call.out(shape, dtype, casting="same_kind")
        args = [
            value if isinstance(value, aiodev.Array) else value.astype(own)
            for value, own in zip(values, inputs, strict=True)
        ]
        if 0 in shape:
            return out
        if not aiodev.capabilities(out.device).simt:
            args = [call.packed(value) if _lies_across(value, out) else value for value in args]
            values = [arg if isinstance(arg, aiodev.Array) else value for arg, value in zip(args, values, strict=True)]
        count = math.prod(shape)
        if alike and count > 1 and all(value.is_contiguous for value in (*values, out) if isinstance(value, aiodev.Array)):
            flat = [value.reshape(count) if isinstance(value, aiodev.Array) else value for value in (*args, out)]
            call.launch(self._line(values, inputs), count, *flat)
        elif alike and len(shape) == 1 != count:
            call.launch(self._line(values, inputs), shape, *args, out)
        else:
            kernel, over, rest, args = self._loop(values, inputs, args, out)
            call.launch(kernel, over, *args, *rest)
        return out

    def _seen(self, call: aiodev.Call, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[DType]]:
        """The operands, and the types that they are computed in."""
        if self.near is not None:
            for place, value in enumerate(values):
                if isinstance(value, aiodev.Number):
                    near = self.near(value.value, values[1 - place])
                    if near is not value.value:
                        call.once()  # other numbers of this class are computed with as they are
                        values = [*values[:place], np.float64(near), *values[place + 1 :]]
                        return values, self.types(*(value.dtype for value in values))
        return values, call.dtypes

    def _line(self, values: Sequence[Any], inputs: Sequence[DType]) -> aiodev.Kernel:
        """The kernel for arrays of one dimension and the same length, of which there may be as many as there are lengths."""
        return self._kernel(1, (*[(0,) if isinstance(value, aiodev.Array) else None for value in values], (0,)), values, inputs)

    def _loop(
        self, values: Sequence[Any], inputs: Sequence[DType], args: list[Any], out: aiodev.Array
    ) -> tuple[aiodev.Kernel, tuple[int, ...], tuple[int, ...], list[Any]]:
        """The kernel for any arrays, what it runs over, what lengths it is told besides, and its operands as it wants them."""
        laid = [(value.shape, value.strides) if isinstance(value, aiodev.Array) else None for value in (*values, out)]
        lengths, forms, wanted = plan_loop(tuple(laid))
        args = [
            value.reshape(own) if isinstance(value, aiodev.Array) and value.shape != own else value
            for value, own in zip((*args, out), wanted, strict=True)
        ]
        kernel = self._kernel(len(lengths), forms, values, inputs)
        if len(lengths) <= 3:
            return kernel, lengths or (1,), (), args
        return kernel, (math.prod(lengths[:-2]), *lengths[-2:]), lengths[1:-2], args

    def _kernel(
        self, ndim: int, forms: tuple[Form, ...], values: Sequence[Any], inputs: Sequence[DType]
    ) -> aiodev.Kernel:
        kinds = [kind_of(value) for value in values]
        signature = ndim, forms, *inputs, *kinds
        kernel = self._known.get(signature)
        if kernel is None:
            expression, function = self.computes(kinds, inputs)
            casts = tuple(_cast(value, dtype) for value, dtype in zip(values, inputs, strict=True))
            key = ndim, forms, expression, casts
            kernel = self._kernels.get(key)
            if kernel is None:
                made = make_kernel(self.name, expression, self.operands, forms, casts, ndim, function)
                kernel = self._kernels.setdefault(key, made)
            self._known[signature] = kernel
        return kernel


def _lies_across(value: Any, out: aiodev.Array) -> bool:
    """Whether an operand's elements lie side by side along another dimension than the result's, and are to be moved first."""
    if not isinstance(value, aiodev.Array) or value.nbytes < ACROSS or value.is_contiguous or value.shape != out.shape:
        return False
    size, least = value.itemsize, ACROSS_LENGTH
    if value.shape[-1] < least or value.strides[-1] <= size or out.strides[-1] != out.itemsize:
        return False
    return any(stride == size and length >= least for stride, length in zip(value.strides, value.shape, strict=True))


def _rule(name: str, expression: str | Mapping[str, str] | None, module: str) -> Callable[..., Any] | None:
    """The gradient of an operand, as an elementwise function that is made when it is first called."""
    if expression is None:
        return None
    if not isinstance(expression, str):
        return _rule_by_kind(name, expression, module)
    if expression == "{g}":
        return lambda g: g
    if expression == "0":
        return _nothing
    names = names_in(expression)
    made: list[Callable[..., aiodev.Array]] = []

    def rule(*values: Any) -> aiodev.Array:
        if not made:
            made.append(_gradient(name, expression, names, module))
        return made[0](*values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    rule.__signature__ = inspect.Signature([inspect.Parameter(own, kind) for own in names])  # type: ignore[attr-defined]
    return rule


def _nothing(g: Any) -> aiodev.Array | None:
    """Zeros, whatever the gradient of the result, as in PyTorch: infinite ones too. Where steps are traced there are none."""
    return aiodev.zeros(g.shape, g.dtype, g.device) if isinstance(g, aiodev.Array) else None


def _rule_by_kind(name: str, expressions: Mapping[str, str], module: str) -> Callable[..., Any]:
    """The gradient by two expressions, for real and for complex numbers; the latter names nothing that the former does not."""
    real, complex_ = (_rule(name, expressions[kind], module) for kind in ("", "c"))
    assert real is not None and complex_ is not None
    names = list(inspect.signature(real).parameters)
    places = [names.index(own) for own in inspect.signature(complex_).parameters]

    def rule(*values: Any) -> Any:
        is_complex = values[names.index("g")].dtype.kind == "c"
        return complex_(*[values[place] for place in places]) if is_complex else real(*values)

    rule.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    return rule


def _gradient(name: str, expression: str, names: Sequence[str], module: str) -> Callable[..., aiodev.Array]:
    """A gradient as an elementwise function, which has gradients itself."""
    own = {given: f"a{place}" for place, given in enumerate(names)}
    return differentiable(f"{name}_gradient", renamed(expression, own), tuple(own.values()), module)


def differentiable(
    name: str, expression: str, operands: tuple[str, ...], module: str = __name__
) -> Callable[..., aiodev.Array]:
    """An elementwise function of arrays of a common type, whose gradients follow from the expression.

    Raises:
        NotImplementedError: it calls a function of which no derivative is declared.
    """
    derivatives: dict[str, str | None] = {}
    for operand in operands:
        derived = derivative_of(expression, operand)
        derivatives[operand] = None if derived is None else f"{{g}} * ({derived})"
    made = Elementwise(name, expression, operands, _common_type, module=module, derivatives=derivatives).function
    made.operation.holomorphic = True  # type: ignore[attr-defined]  # of real functions no complex numbers come
    return made


def _common_type(*kinds: Any) -> Sequence[DType]:
    return [dtypes.result_type(*kinds)] * (len(kinds) + 1)


def _signature(operands: Sequence[str], by_name: bool) -> inspect.Signature:
    """The signature of a body: the call, the operands, and ``out``."""
    first = inspect.Parameter.POSITIONAL_ONLY
    last = inspect.Parameter.KEYWORD_ONLY if by_name else first
    kind: Any = aiodev.Array if len(operands) == 1 else Operand
    parameters = [inspect.Parameter(name, first, annotation=kind) for name in operands]
    out = inspect.Parameter("out", last, default=None, annotation=aiodev.Array | None)
    return inspect.Signature([inspect.Parameter("call", first), *parameters, out], return_annotation=aiodev.Array)


def kind_of(value: Any) -> Any:
    """The dtype of an array or of one of NumPy's numbers, or the class of a Python number."""
    if isinstance(value, aiodev.Array):
        return value.dtype
    return dtypes.kind_of_operand(value.value if isinstance(value, aiodev.Number) else value)


def _cast(value: Any, dtype: DType) -> str:
    """How an element becomes what NumPy would compute with, or what that is computed in."""
    if dtypes.is_stored_only(dtype):
        is_rounded = isinstance(value, aiodev.Array) or dtype.name in _PACKED  # a number of another one is passed as it is
        return f"np.{dtypes.compute_dtype(dtype).name}({{}})" if is_rounded else f"lang.{dtype.name}({{}})"
    if not isinstance(value, aiodev.Array) or value.dtype == dtype:
        return "{}"
    return "({} != 0)" if dtype.kind == "b" else f"np.{dtype.name}({{}})"
