"""Functions of arrays with a gradient that their author writes: a forward and a backward."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiodev._array.array import Array
from aiodev._autograd import modes
from aiodev._autograd.node import Kept, LeftOut, Node, Noted, Region, is_from_before, number, stack_of
from aiodev._autograd.variable import edge_of, is_differentiable, linked, plain_of, record_closed
from aiodev._core import callsites
from aiodev._core.streams.current import current_stream

__all__ = ["Context", "Function", "once_differentiable"]


class Context(Node):
    """What ``forward`` and ``backward`` of a :class:`Function` share, and its node in the graph.

    Attributes of its own may be set, for what ``backward`` needs beside arrays. Arrays are for :meth:`save_for_backward`, which
    knows their place in the graph and notices whether they have been written to.

    Attributes:
        needs_input_grad: for each argument of ``forward`` whether a gradient of it is wanted.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> class Scaled(autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, factor):
        ...         ctx.factor = factor
        ...         return factor * x
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         print(ctx.needs_input_grad)
        ...         return ctx.factor * g, None
        >>> async def main():
        ...     x = autograd.Variable(aiodev.ones(1, device="cpu"))
        ...     await Scaled.apply(x, 3.0).backward()
        ...     return await x.grad.item()
        >>> import asyncio; asyncio.run(main())
        (True, False)
        3.0
    """

    __slots__ = ("__dict__", "_created", "_function", "_links", "_plain", "kept", "needs_input_grad")

    needs_input_grad: tuple[bool, ...]

    _function: type[Function]
    kept: Any  #: list[Kept | None], or what stands for it
    _links: list[Any]
    _plain: tuple[Array, ...]  #: results without gradients
    _created: bool

    def __init__(self) -> None:
        raise TypeError("Context: contexts are made by Function.apply")

    @property
    def name(self) -> str:
        return self._function.__qualname__

    def save_for_backward(self, *arrays: Array | None) -> None:
        """Keep arrays, arguments and results as a rule, for ``backward``; None may be among them."""
        self.__dict__["_saved"] = arrays

    @property
    def saved_arrays(self) -> tuple[Any, ...]:
        """What :meth:`save_for_backward` was given; variables where the gradient is to be differentiated again.

        Raises:
            RuntimeError: one of them has been written to since, or a backward pass has released them.
        """
        if self.is_released:
            raise RuntimeError("saved_arrays: a backward pass has released them; retain_graph=True keeps them")
        for kept in self.kept:
            if kept is not None:
                kept.check()
        return tuple(
            None if kept is None else linked(kept.array, link) if self._created else kept.array
            for kept, link in zip(self.kept, self._links, strict=True)
        )

    def mark_non_differentiable(self, *results: Array) -> None:
        """Say that no gradient passes through these results: they are plain arrays."""
        self._plain = results

    def _keep(self, arguments: Sequence[Any], edges: Sequence[Any], results: Sequence[Any]) -> None:
        """Find out the place in the graph of what is saved."""
        for place, array in enumerate(self.__dict__.pop("_saved", ())):
            link: Any = None
            for argument, edge in zip(arguments, edges, strict=True):
                if argument is array:
                    link = edge
            for output, result in enumerate(results):
                if result is array and not any(result is own for own in self._plain):
                    link = (self, output)
            self.kept.append(None if array is None else Kept(array, f"saved array {place}"))
            self._links.append(link)

    def apply(self, gradients: Sequence[Any], wanted: Sequence[Any], create_graph: bool) -> Any:
        while self.kept.__class__ is LeftOut:  # of a checkpoint, and of those within
            self.kept.region.restore()
        backward = self._function.backward
        once = create_graph and getattr(backward, "_is_once_differentiable", False)
        self._created = create_graph and not once
        if not once:
            returned = backward(self, *gradients)
            return returned if inspect.isawaitable(returned) else self._normalised(returned)
        with modes.no_grad():
            returned = backward(self, *map(plain_of, gradients))
        if inspect.isawaitable(returned):
            return self._ended(returned, gradients)
        return self._closed(self._normalised(returned), gradients)

    async def _ended(self, returned: Awaitable[Any], gradients: Sequence[Any]) -> Any:
        with modes.no_grad():
            grads = await returned
        return self._closed(self._normalised(grads), gradients)

    def _closed(self, found: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Gradients that refuse to be differentiated with respect to what they may depend on.

        That is the gradients that they were made of, and, if anything was kept for them, the arguments.
        """
        edges = [edge_of(one) for one in gradients]
        if self.kept or self.__dict__:
            edges += self.edges
        if not any(edge is not None for edge in edges):
            return found
        return tuple([None if one is None else record_closed(self.name, edges, plain_of(one)) for one in found])

    def _normalised(self, returned: Any) -> tuple[Any, ...]:
        """What ``backward`` returns, as a gradient for each argument.

        Raises:
            TypeError: it is not that.
        """
        gradients = returned if isinstance(returned, tuple) else (returned,)
        count = len(self.needs_input_grad)
        if len(gradients) != count or not all(one is None or isinstance(one, Array) for one in gradients):
            raise TypeError(
                f"{self.name}.backward: expected {count} gradients, each an array or None, got {_described(returned)}"
            )
        return gradients

    def _leave_out(self, region: Region, place: int, since: int) -> None:
        """See the base class; attributes are left out, since there may be arrays among them."""
        had: Any = self.kept.rest if self.kept.__class__ is LeftOut else [(kept,) for kept in self.kept]
        rest = [one if is_from_before(link, since) else None for one, link in zip(had, self._links, strict=True)]
        for one, left in zip(had, rest, strict=True):
            if left is None and one is not None and one[0] is not None:
                region.noted.append(Noted(one[0].array, one[0].version, one[0].name))
        self.kept = LeftOut(region, place, rest)
        self.__dict__.clear()

    def _take_over(self, other: Any) -> None:
        """See the base class."""
        again, own = other.kept, self.kept.rest
        if again.__class__ is LeftOut:
            self.kept = again.moved(self, [one or made for one, made in zip(own, again.rest, strict=True)])
        else:
            self.kept = [made if one is None else one[0] for one, made in zip(own, again, strict=True)]
        self.__dict__.update(other.__dict__)

    def release(self) -> None:
        Node.release(self)
        self.kept = []
        self._links = []
        self.__dict__.clear()


def _context(function: type[Function], edges: Sequence[Any]) -> Context:
    """The node of a call."""
    node = object.__new__(Context)
    node._function, node.edges = function, edges
    node.needs_input_grad = tuple([edge is not None for edge in edges])
    node.kept, node._links, node._plain, node._created = [], [], (), False
    node.forms, node.hooks, node.is_released, node.stack = (), None, False, None
    node.sequence = number()
    return node


def _described(returned: Any) -> str:
    shown = returned if isinstance(returned, tuple) else (returned,)
    return f"({', '.join(type(one).__name__ for one in shown)})"


class Function:
    """A function of arrays with a gradient of its own: subclass it, and call ``apply``.

    ``forward(ctx, *arguments)`` is given plain arrays, and may launch kernels; nothing in it is recorded. It returns an array
    or a tuple of them. ``backward(ctx, *gradients)`` is given the gradient of each result, and returns one for each argument,
    None for what has none. It may be a coroutine function: that runs as a task, while other branches of the graph go on. What
    it computes by differentiable functions, of :attr:`Context.saved_arrays`, can be differentiated again.

    For a function that users call by arrays of any layout, an :func:`aiodev.operation` with a gradient is the better way.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> class Clipped(autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, bound):
        ...         ctx.bound = bound
        ...         return x
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         return aiodev.kernels.clip(g, -ctx.bound, ctx.bound), None
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([1.0, 5.0], device="cpu"))
        ...     y = Clipped.apply(x, 3.0)
        ...     await (y * y).sum().backward()
        ...     return await x.grad.tolist()
        >>> import asyncio, aiodev.kernels; asyncio.run(main())
        [2.0, 3.0]
    """

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__}: there are no objects of a Function; call {type(self).__name__}.apply")

    @staticmethod
    def forward(ctx: Context, *arguments: Any) -> Any:
        """Compute the results.

        Raises:
            NotImplementedError: a subclass defines none.
        """
        raise NotImplementedError("a Function defines forward and backward, for apply")

    @staticmethod
    def backward(ctx: Context, *gradients: Any) -> Any:
        """Compute the gradients of the arguments.

        Raises:
            NotImplementedError: a subclass defines none.
        """
        raise NotImplementedError("a Function defines forward and backward, for apply")

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """Call it; the results are variables where an argument is one.

        Raises:
            TypeError: ``forward`` returns something else than arrays.
            NotImplementedError: there is no ``forward``.
        """
        edges = tuple([edge_of(argument) for argument in arguments])
        mode = modes.current()
        node = _context(cls, edges)
        node.site, node.stack = callsites.here(1), stack_of(mode)
        plain = [plain_of(argument) for argument in arguments]
        with modes.no_grad():
            returned = cls.forward(node, *plain)
        results = returned if isinstance(returned, tuple) else (returned,)
        if not results or not all(isinstance(one, Array) for one in results):
            raise TypeError(f"{cls.__qualname__}.forward: expected an array, or a tuple of them, got {_described(returned)}")
        if not mode.enabled or not any(edge is not None for edge in edges):
            return returned
        results = tuple(map(plain_of, results))
        node.forms = tuple([one._form for one in results])
        node.stream = current_stream(results[0].device)
        node._keep(plain, edges, results)
        made = []
        for output, one in enumerate(results):
            is_plain = any(one is own for own in node._plain) or not is_differentiable(one._form)
            made.append(one if is_plain else linked(one, (node, output)))
        node._plain = ()
        return tuple(made) if isinstance(returned, tuple) else made[0]


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a ``backward`` whose gradients cannot be differentiated again: to do so is an error, not a wrong result.

    They count as depending on the gradients that they are made of, and, where ``forward`` keeps anything, on its arguments.

    Example:
        >>> from aiodev import autograd
        >>> class Halved(autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x / 2
        ...     @staticmethod
        ...     @autograd.once_differentiable
        ...     def backward(ctx, g):
        ...         return g / 2
    """

    @functools.wraps(backward)
    def run(*args: Any) -> Any:
        return backward(*args)

    run._is_once_differentiable = True  # type: ignore[attr-defined]
    return run
