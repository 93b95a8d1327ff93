"""Variables: arrays of which gradients are wanted, and what is computed of them."""

from __future__ import annotations

import copy
import functools
import math
import weakref
from collections.abc import Callable, Coroutine, Sequence
from types import EllipsisType
from typing import Any, NoReturn

import numpy as np

from aiodev._array.array import Array
from aiodev._array.computing import gradients, kernels
from aiodev._array.creation import zeros
from aiodev._array.dtypes import row_of
from aiodev._array.form import Form
from aiodev._array.layout import Shape
from aiodev._autograd import modes
from aiodev._autograd.node import Edge, HookHandle, Kept, Node, hooked, number, stack_of
from aiodev._core import callsites
from aiodev._core.arguments import instance
from aiodev._core.backend.device import Device
from aiodev._core.backend.device_info import capabilities
from aiodev._core.hooks import Hook
from aiodev._core.streams.current import current_stream
from aiodev._core.timeline.recording import under_way

__all__ = [
    "Variable",
    "edge_of",
    "is_differentiable",
    "linked",
    "plain_of",
    "record_linear",
    "run_backward",
    "store_gradient",
    "sum_to",
]

_new = object.__new__
#: Of items of an index that are equal only if they mean the same.
_PLAIN = {int, slice, type(None), EllipsisType}
#: Why no other library is given the memory: some consumers of DLPack do not look whether they may write, and older ones cannot.
_UNSEEN = (
    "what other libraries write to the memory of a variable is not recorded; export x.detach(), or a copy "
    "(await x.numpy(), copy=True), or export it in no_grad"
)
#: The backward pass from a variable: given it, its gradient, ``retain_graph`` and ``create_graph``.
run_backward: Hook[[Any, Array | None, bool | None, bool], Coroutine[Any, Any, None]] = Hook("aiodev._autograd.backward")


class Variable(Array):
    """An array that takes part in differentiation: a leaf, of which gradients are wanted, or what is computed of one.

    It is an array in all else, and shares the memory of the array that it is made of. Operators, methods, views and the
    functions of :mod:`aiodev.kernels` record what they do with it, and give variables. Launches of kernels, and copies into
    other arrays, cannot be recorded: they are refused. So is sharing its memory with another library that might write there;
    NumPy's ``asarray`` gives a read-only array.

    Args:
        x: an array of real numbers of floating point, or of complex numbers.
        requires_grad: whether gradients of it are wanted; to be changed later.

    Raises:
        TypeError: ``x`` is no such array.
        RuntimeError: a variable is written to, or a kernel launched with it, where that would have to be recorded.
        NotImplementedError: a function without a gradient would have to be recorded.
        BufferError: it is exported by DLPack, not as a copy, where that would have to be recorded.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> async def main():
        ...     w = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu"))
        ...     loss = (w * w + 1).sum()
        ...     await loss.backward()
        ...     return await w.grad.tolist()
        >>> import asyncio; asyncio.run(main())
        [2.0, 4.0]
    """

    __slots__ = ("_edge", "_grad", "_hooks", "_is_argument", "_plain", "_post_hooks")

    _is_argument: bool  #: whether :func:`argument_of` has made it; of others it is not there

    #: ``(node, output)`` of what an operation has made; of a leaf True, or None if no gradient is wanted.
    _edge: Any
    _grad: Array | None
    _hooks: dict[int, Callable[[Any], Any]] | None  #: of a leaf, given its gradient
    _post_hooks: dict[int, Callable[[Any], Any]] | None  #: of a leaf, given itself
    _plain: Array  #: the same memory, as an array that nothing is recorded of

    def __init__(self, x: Array, requires_grad: bool = True) -> None:
        instance("Variable", "x", x, Array, "an array")
        instance("Variable", "requires_grad", requires_grad, bool, "True or False")
        if not is_differentiable(x._form):
            raise TypeError(f"Variable: argument x: expected numbers of floating point, or complex ones, got {x.dtype}")
        _fill(self, plain_of(x), True if requires_grad else None)

    # What it is

    @property
    def requires_grad(self) -> bool:
        """Whether gradients reach it. Of a leaf it may be set."""
        return self._edge is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        instance("requires_grad", "wanted", wanted, bool, "True or False")
        if self._edge.__class__ is tuple:
            raise RuntimeError("requires_grad is set of leaves only; `x.detach()` is what takes no part")
        self._edge = True if wanted else None

    @property
    def is_leaf(self) -> bool:
        """Whether no operation has made it."""
        return self._edge.__class__ is not tuple

    @property
    def grad_fn(self) -> Node | None:
        """The node of the operation that has made it; None of a leaf."""
        return self._edge[0] if self._edge.__class__ is tuple else None

    @property
    def grad(self) -> Array | None:
        """The sum of the gradients of backward passes since it was None; of leaves, and after :meth:`retain_grad`."""
        return self._grad

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if value is not None:
            instance("grad", "value", value, Array, "an array, or None")
            if value.shape != self.shape or value.dtype != self.dtype or value.device is not self.device:
                raise ValueError(f"grad: expected None, or an {self._plain._describe()}, got an {value._describe()}")
        store_gradient(self, value)

    def _pack(self) -> bytes:
        """As of the array, which keeps it; the variable never does, so that each launch asks."""
        if _is_recorded(self):
            raise RuntimeError(
                "a launch of a kernel with a variable is not recorded, so no gradient would reach it; launch with x.detach(), "
                "or in no_grad, or make an operation with a gradient of it (aiodev.operation)"
            )
        return self._plain._packed or self._plain._pack()

    def _describe(self) -> str:
        kind = "of a graph" if not self.is_leaf else "a leaf" if self._edge else "a constant"
        return f"aiodev.autograd.Variable {self._form.shape} {self._form.dtype} on {self.device}, {kind}"

    def detach(self) -> Array:
        """The array itself, in the same memory: what is done with it is not recorded."""
        return self._plain

    def retain_grad(self) -> None:
        """Have backward passes store the gradient of a result, too, in :attr:`grad`; of a leaf they do so anyway.

        Raises:
            RuntimeError: no gradient reaches it.
        """
        if self._edge is None:
            raise RuntimeError("retain_grad: no gradient reaches a variable that requires none")
        if self._edge.__class__ is tuple:
            node, output = self._edge
            node._own_hooks().retained[output] = weakref.ref(self)

    def register_hook(self, hook: Callable[[Array], Array | None]) -> HookHandle:
        """Call ``hook(gradient)`` when its gradient is complete in a pass; what it returns, if not None, takes its place.

        Raises:
            RuntimeError: no gradient reaches it.
            TypeError: the hook is no function, or makes coroutines.
        """
        if self._edge is None:
            raise RuntimeError("register_hook: no gradient reaches a variable that requires none")
        if self._edge.__class__ is tuple:
            node, output = self._edge
            return hooked(node._own_hooks().results.setdefault(output, {}), hook)
        if self._hooks is None:
            self._hooks = {}
        return hooked(self._hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Variable], Any]) -> HookHandle:
        """Call ``hook(leaf)`` as soon as a pass has added to its :attr:`grad`, while the pass goes on.

        A pass that fails, or is cancelled, later has added to this leaf, and to no other without such a hook.

        Raises:
            RuntimeError: it is no leaf.
            TypeError: the hook is no function, or makes coroutines.
        """
        if self._edge.__class__ is tuple:
            raise RuntimeError("register_post_accumulate_grad_hook: only leaves accumulate; use register_hook")
        if self._post_hooks is None:
            self._post_hooks = {}
        return hooked(self._post_hooks, hook, "register_post_accumulate_grad_hook")

    async def backward(
        self, grad: Array | None = None, *, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Add the gradients of this result to the leaves that it was computed of; see :func:`aiodev.autograd.backward`."""
        await run_backward.call(self, grad, retain_graph, create_graph)

    # Views

    def __getitem__(self, index: Any) -> Any:
        plain_index = _plain_index(index)
        chosen = self._plain[plain_index]
        if not _is_recorded(self):
            return chosen
        form, kinds = self._form, _array_kinds(index)
        if not kinds:
            return record_linear("getitem", self, chosen, lambda g: _scattered(g, index, form), _option(index))
        if "b" not in kinds:
            rule = functools.partial(_scattered_by, *_kept_index(plain_index), form)
            return record_linear("getitem", self, chosen, rule)
        places = _places(form, plain_index)  # how many those of a mask are is waited for, here and not in the backward pass
        return record_linear("getitem", self, chosen, lambda g: _scattered_at(g, places, form))

    def reshape(self, *shape: Any) -> Any:
        """The same elements in C order in another shape; see :meth:`aiodev.Array.reshape`."""
        plain = self._plain.reshape(*shape)
        before = self._form.shape
        return record_linear("reshape", self, plain, lambda g: g.reshape(before), ()) if _is_recorded(self) else plain

    def transpose(self, *axes: Any) -> Any:
        """The dimensions in another order; see :meth:`aiodev.Array.transpose`."""
        plain = self._plain.transpose(*axes)
        if not _is_recorded(self):
            return plain
        ndim = self.ndim
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = [axis % ndim for axis in given or ()] or list(range(ndim))[::-1]
        back = sorted(range(ndim), key=order.__getitem__)
        return record_linear("transpose", self, plain, lambda g: g.transpose(*back) if back else g, back)

    def _broadcast(self, shape: Shape, strides: Shape) -> Any:
        plain, before = self._plain._broadcast(shape, strides), self._form.shape
        return record_linear("broadcast_to", self, plain, lambda g: sum_to(g, before), ()) if _is_recorded(self) else plain

    def _copied(self, device: Device) -> Any:
        plain, here = self._plain._copied(device), self.device
        return record_linear("copy", self, plain, lambda g: g.to(here)) if _is_recorded(self) else plain

    # Windows of other libraries: what is written through one is seen by no graph

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As of an array.

        Raises:
            RuntimeError: gradients are recorded; most consumers do not look whether memory is read-only.
        """
        if _is_recorded(self) and capabilities(self.device).cuda_interfaces:
            raise RuntimeError(_UNSEEN)
        return self._plain.__cuda_array_interface__

    def _is_writable_by_host(self) -> bool:
        return self._plain.writable and not _is_recorded(self)

    def _lend(self, copied: bool) -> Array:
        if _is_recorded(self) and not copied:
            raise BufferError(_UNSEEN)
        return self._plain

    def __deepcopy__(self, memo: Any) -> Any:
        if not self.is_leaf:
            raise TypeError("a variable of a graph is not deeply copied, since its graph is not; `x.detach()` is")
        return Variable(self._plain._copied(self.device), self.requires_grad)

    def __copy__(self) -> Any:
        return Variable(self._plain._copied(self.device), self.requires_grad) if self.is_leaf else self._copied(self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise TypeError("a variable of a graph is not pickled, since its graph is not; `x.detach()` is")
        return Variable, (self._plain, self.requires_grad)

    def free(self) -> NoReturn:
        """Refused: graphs may use the memory; see :meth:`aiodev.Array.free`."""
        raise ValueError("free: graphs may use the memory of a variable; drop it, or free the array that it was made of")

    # Writing

    def __setitem__(self, index: Any, value: Any) -> None:
        if _is_recorded(self) or (value.__class__ is Variable and _is_recorded(value)):
            raise RuntimeError(
                "an assignment to elements of a variable is not recorded; use aiodev.kernels.where, or no_grad"
            )
        self._plain[_plain_index(index)] = plain_of(value)

    def _plainly(self, what: str) -> Array:
        if _is_recorded(self):
            raise RuntimeError(f"{what} is not recorded; use x.detach(), or copy.copy(x)")
        return self._plain

    def __iadd__(self, other: Any) -> Any:
        return _written(self, other, self.__add__, Array.__iadd__)

    def __isub__(self, other: Any) -> Any:
        return _written(self, other, self.__sub__, Array.__isub__)

    def __imul__(self, other: Any) -> Any:
        return _written(self, other, self.__mul__, Array.__imul__)

    def __itruediv__(self, other: Any) -> Any:
        return _written(self, other, self.__truediv__, Array.__itruediv__)

    def __ifloordiv__(self, other: Any) -> Any:
        return _written(self, other, self.__floordiv__, Array.__ifloordiv__)

    def __imod__(self, other: Any) -> Any:
        return _written(self, other, self.__mod__, Array.__imod__)

    def __ipow__(self, other: Any) -> Any:
        return _written(self, other, self.__pow__, Array.__ipow__)

    def __imatmul__(self, other: Any) -> Any:
        return _written(self, other, self.__matmul__, Array.__imatmul__)


def argument_of(function: str, name: str, array: Array) -> Variable:
    """A variable in place of an argument, for a function that gives plain arrays.

    Raises:
        RuntimeError: gradients are recorded for the argument: it is computed of variables, or itself what this has made.
    """
    if isinstance(array, Variable) and _is_recorded(array) and (not array.is_leaf or hasattr(array, "_is_argument")):
        raise RuntimeError(
            f"{function}: argument {name} depends on variables, and what {function} gives is not recorded; "
            f"give x.detach(), or use grad(…, create_graph=True), whose results are recorded"
        )
    made = Variable(plain_of(array))
    made._is_argument = True
    return made


def _fill(variable: Variable, plain: Array, edge: Edge) -> None:
    variable._buffer, variable._address, variable._form = plain._buffer, plain._address, plain._form
    variable._packed = variable._grad = variable._hooks = variable._post_hooks = None
    variable._plain, variable._edge = plain, edge


def store_gradient(variable: Variable, gradient: Array | None) -> None:
    """Have a variable keep a gradient; one that captured work makes stays where it is in memory."""
    if under_way and gradient is not None:
        for recording in under_way:
            recording.keep_in_place(gradient._buffer)
    variable._grad = gradient


def linked(plain: Array, edge: Edge) -> Any:
    """An array as what its edge says: a variable of a graph, a leaf, or the array itself where gradients go nowhere."""
    if edge is None:
        return plain
    if edge.__class__ is Variable:
        return edge
    variable = _new(Variable)
    _fill(variable, plain, edge)
    return variable


def is_differentiable(form: Form) -> bool:
    """Whether gradients are defined for the dtype: real numbers of floating point, and complex ones."""
    return row_of(form.dtype).kind in "fc"


def plain_of(value: Any) -> Any:
    """A variable as a plain array; anything else as it is."""
    return value._plain if value.__class__ is Variable else value


def edge_of(value: Any) -> Edge:
    """Where the gradient of an operand goes."""
    if value.__class__ is not Variable:
        return None
    edge = value._edge
    return value if edge is True else edge


def _is_recorded(variable: Variable) -> bool:
    return variable._edge is not None and modes.current().enabled


def _option(index: Any) -> Any:
    """What an index of integers and slices is compared by; None where there is something else in it."""
    items = index if isinstance(index, tuple) else (index,)
    return items if all(item.__class__ in _PLAIN for item in items) else None


def _plain_index(index: Any) -> Any:
    return tuple(map(plain_of, index)) if isinstance(index, tuple) else plain_of(index)


def _written(variable: Variable, other: Any, compute: Callable[[Any], Any], write: Callable[[Any, Any], Any]) -> Any:
    """What an operator in place gives: the variable, written to; where that is recorded, a new one."""
    if not (_is_recorded(variable) or (other.__class__ is Variable and _is_recorded(other))):
        result = write(variable._plain, plain_of(other))
        return result if result is NotImplemented else variable
    if variable.is_leaf:
        raise RuntimeError(
            "a variable that is a leaf is not written to where that would be recorded; "
            "do it under no_grad, or write `x = x + y`"
        )
    return compute(other)


# Nodes of functions that are linear in one operand, whose gradients are such functions of variables themselves


class _Linear(Node):
    """A node whose gradient is a function of its result's gradient.

    Attributes:
        derivative: the name, and what the function follows from; None where it has to be called.
    """

    __slots__ = ("_name", "_rule", "derivative")

    _name: str
    _rule: Callable[[Any], Any]
    derivative: tuple[str, Any, Any] | None

    @property
    def name(self) -> str:
        return self._name

    @property
    def _is_repeatable(self) -> bool:
        return self.derivative is not None

    def apply(self, gradients: Any, wanted: Any, create_graph: bool) -> Any:
        return (self._rule(gradients[0]),)

    def release(self) -> None:
        Node.release(self)
        self._rule = _nothing


def _nothing(gradient: Any) -> NoReturn:
    raise AssertionError


def record_linear(
    name: str, operand: Variable, plain: Array, rule: Callable[[Any], Any], option: Any = None, depth: int = 2
) -> Any:
    """The variable that a function which is linear in one operand gives.

    What the rule submits follows from ``option`` and the forms of operand and result; if it is None, from more than that.
    """
    derivative = None if option is None else (name, operand._form, option)
    return _ruled(name, (edge_of(operand),), plain, rule, derivative, depth + 1)


def record_closed(name: str, edges: Sequence[Edge], plain: Array) -> Any:
    """An array as a variable that depends on operands, and whose gradient is not known: a pass that needs it fails."""
    return _ruled(name, edges, plain, _refuse, None, 2)


def _refuse(gradient: Any) -> NoReturn:
    raise RuntimeError("a gradient that is once differentiable is differentiated again")


def _ruled(name: str, edges: Sequence[Edge], plain: Array, rule: Callable[[Any], Any], derivative: Any, depth: int) -> Any:
    """The variable of a result whose node calls a rule."""
    if not is_differentiable(plain._form):
        return plain
    node = _new(_Linear)
    node._name, node._rule, node.derivative = name, rule, derivative
    node.edges, node.forms = edges, (plain._form,)
    node.stream, node.sequence, node.site = current_stream(plain.device), number(), callsites.here(depth)
    node.hooks, node.is_released = None, False
    node.stack = stack_of(modes.current())
    variable = _new(Variable)
    _fill(variable, plain, (node, 0))
    return variable


def _array_kinds(index: Any) -> str:
    """The kinds of the dtypes of arrays that an index has; empty for one that is a view."""
    items = index if isinstance(index, tuple) else (index,)
    given = (item for item in items if isinstance(item, Array | np.ndarray | list | tuple))
    return "".join([(item if isinstance(item, Array) else np.asarray(item)).dtype.kind for item in given])


def _scattered(gradient: Any, index: Any, form: Form) -> Any:
    """Zeros of a form, with a gradient at the elements of a view."""
    plain = plain_of(gradient)
    made = zeros(form.shape, plain.dtype, plain.device)
    made[index] = plain
    recorded = gradient.__class__ is Variable and _is_recorded(gradient)
    return record_linear("scatter", gradient, made, lambda g: g[index]) if recorded else made


def _kept_index(index: Any) -> tuple[Any, list[Kept]]:
    """An index as it is now, and its arrays on devices, which must not be written to while it is needed."""
    items = index if isinstance(index, tuple) else (index,)
    own = [copy.deepcopy(item) if isinstance(item, np.ndarray | list | tuple) else item for item in items]
    kept = [Kept(item, "an index") for item in own if isinstance(item, Array)]
    return (tuple(own) if isinstance(index, tuple) else own[0]), kept


def _scattered_by(index: Any, kept: Sequence[Kept], form: Form, gradient: Any) -> Any:
    """Zeros of a form, with a gradient added where an index with arrays takes elements."""
    for one in kept:
        one.check()
    return _scattered_at(gradient, _places(form, index), form)


def _places(form: Form, index: Any) -> Array:
    """Where an index with arrays takes its elements, of which one may be taken twice."""
    places: Array = kernels.arange(form.size, dtype="int64", device=form.device).reshape(form.shape)[index]
    return places


def _scattered_at(gradient: Any, places: Array, form: Form) -> Any:
    """Zeros of a form, with a gradient added at places of its elements."""
    plain = plain_of(gradient)
    flat = plain.reshape(plain.size), places.reshape(places.size)
    made = gradients.scattered(*flat, shape=(form.size,), axis=0, mode="raise").reshape(form.shape)
    recorded = gradient.__class__ is Variable and _is_recorded(gradient)
    return record_linear("scatter", gradient, made, lambda g: kernels.take(g, places)) if recorded else made


@functools.lru_cache(maxsize=1024)
def _repeated_axes(have: Shape, shape: Shape) -> Shape:
    """Which axes of what was broadcast from ``shape`` are repetitions."""
    extra = len(have) - len(shape)
    return tuple(axis for axis, length in enumerate(have) if axis < extra or (length != 1 and shape[axis - extra] == 1))


def sum_to(gradient: Any, shape: Shape) -> Any:
    """A gradient of what was broadcast, added up to the shape that it was broadcast from."""
    have = gradient.shape
    if have == shape:
        return gradient
    axes = _repeated_axes(have, shape)
    if axes:
        same = len(have) == len(shape)
        gradient = kernels.sum(gradient, axis=axes, keepdims=True) if same else kernels.sum(gradient, axis=axes)
    if gradient.shape != shape:
        if math.prod(shape) != gradient.size:
            raise ValueError(f"a gradient of the shape {have} is none of an operand of the shape {shape}")
        gradient = gradient.reshape(shape)
    return gradient
