"""Checkpoints: parts of a graph that are computed again in the backward pass, in place of kept.

The nodes of the part are those that its function records, and stay in the graph, so that every kind of pass finds all that it
depends on. They are left without the arrays that were made inside. The first of them that needs its own has the function
called again; the nodes that this records, which are the same in the same order, hand over what they keep.
"""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from aiodev._array.array import Array
from aiodev._autograd import modes
from aiodev._autograd.node import LeftOut, Node, Noted, number, version_of
from aiodev._autograd.variable import edge_of, plain_of
from aiodev._core.arguments import function as callable_of, is_kind, refusal
from aiodev._core.streams.current import current_stream
from aiodev._generator.defaults import default_generator, fork_rng, set_rng_state

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of arrays, and keep its arguments only; the backward pass calls it again for what it needs inside.

    So memory is traded for time. The function is called with the same arguments, on the same stream, and draws the same random
    numbers from the default generator, both times; it must do the same. All gradients are those without a checkpoint: of
    arguments, of what the function uses beside them, and of gradients. A pass that retains the graph retains what it has
    computed again, too.

    What the function reads must not change before the backward pass is over, since it is read again. It is noticed where
    an argument, or an array of which gradients are made, was written to. Otherwise, as with a mask that is only added,
    gradients are wrong.

    Args:
        function: of the arguments, to an array or a tuple of arrays.
        arguments: arrays, variables among them, and anything else.

    Raises:
        TypeError: ``function`` is none, or makes coroutines; there is no array among the arguments; or the function returns
            something else than arrays.
        CaptureError: the current stream is being captured.
        GradientError: of the backward pass: an argument, or another array that gradients are made of, has been written to
            since, or the function records other operations than the first time.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu"))
        ...     y = autograd.checkpoint(lambda x: aiodev.kernels.exp(x * x), x)
        ...     await y.sum().backward()
        ...     return (await x.grad.numpy()).round(3).tolist()
        >>> import asyncio; asyncio.run(main())
        [5.437, 218.393]
    """
    callable_of("checkpoint", "function", function)
    if is_kind(function, inspect.iscoroutinefunction):
        raise TypeError(f"checkpoint: {function!r} makes coroutines; what is called again must not await")
    device = next((one.device for one in arguments if isinstance(one, Array)), None)
    if device is None:
        raise TypeError("checkpoint: expected an array among the arguments")
    stream = current_stream(device)
    if stream.timeline.recording is not None:
        stream.timeline.recording.refuse("a checkpoint keeps the state of a generator, which is another one at each replay")
    if not modes.current().enabled:
        return _called(function, arguments)
    part = _Part(function, arguments, stream)
    returned = _called(function, arguments)
    part.leave_out(returned)
    return returned


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What a function returns, which is arrays."""
    returned = function(*arguments)
    results = returned if isinstance(returned, tuple) else (returned,)
    if inspect.iscoroutine(returned):
        returned.close()
    if not results or not all(isinstance(one, Array) for one in results):
        raise refusal("checkpoint", "function", "one that gives an array, or a tuple of them", returned)
    return returned


class _Part:
    """A call that can be made again, and the nodes that it has made; see :class:`~aiodev._autograd.node.Region`."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], stream: Any) -> None:
        self._function, self._arguments, self._stream = function, arguments, stream
        self._generator = default_generator(stream.device).clone_state()
        arrays = [(f"argument {place}", plain_of(one)) for place, one in enumerate(arguments) if isinstance(one, Array)]
        self.noted = [Noted(array, version_of(array._buffer), name) for name, array in arrays]
        self._nodes: list[weakref.ref[Node]] = []  # which refer to this, and may be gone
        self._made: list[tuple[str, Sequence[Any]]] = []
        self._since = number()

    def leave_out(self, returned: Any) -> None:
        """Leave the nodes without what was made inside."""
        nodes = _made_since(self._since, returned)
        self._made = [(node.name, node.forms) for node in nodes]
        self._nodes = [weakref.ref(node) for node in nodes]
        for region in {node.kept.region for node in nodes if isinstance(node.kept, LeftOut)}:  # parts within
            self.noted += region.noted
        for place, node in enumerate(nodes):
            node._leave_out(self, place, self._since)

    def move(self, place: int, node: Node) -> None:
        """See :class:`~aiodev._autograd.node.Region`."""
        self._nodes[place] = weakref.ref(node)

    def restore(self) -> None:
        """See :class:`~aiodev._autograd.node.Region`."""
        for one in self.noted:
            one.check()
        since = number()
        with self._stream, fork_rng(), modes.enable_grad():
            set_rng_state(self._generator.get_state(), self._stream.device)
            returned = _called(self._function, self._arguments)
        nodes = _made_since(since, returned)
        for (name, forms), node in zip_longest(self._made, nodes, fillvalue=_NOTHING):
            if node.name != name or node.forms != forms:
                was, now = _described(name, forms), _described(node.name, node.forms)
                raise RuntimeError(f"checkpoint: {self._function!r} records {now}, where it has recorded {was} the first time")
        for reference, again in zip(self._nodes, nodes, strict=True):
            own = reference()
            if own is not None and not own.is_released:
                own._take_over(again)


class _Nothing(NamedTuple):
    """In place of a node, where there is none."""

    name: str = ""
    forms: tuple[Any, ...] = ()


_NOTHING = _Nothing()


def _made_since(since: int, returned: Any) -> list[Node]:
    """The nodes behind node ``since`` that results depend on, in the order in which they were made."""
    results = returned if isinstance(returned, tuple) else (returned,)
    edges = [edge_of(one) for one in results]
    found: set[Node] = set()
    while edges:
        edge = edges.pop()
        if edge.__class__ is tuple and edge[0].sequence > since and edge[0] not in found:
            found.add(edge[0])
            edges += edge[0].edges
    return sorted(found, key=operator.attrgetter("sequence"))


def _described(name: str, forms: Sequence[Any]) -> str:
    return " and ".join(f"{name} of {form.shape} {form.dtype}" for form in forms) or "nothing"
