"""Nodes: what a graph knows of one operation on variables, and what nodes keep until the backward pass."""

from __future__ import annotations

import itertools
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from aiodev._array.array import Array
from aiodev._autograd.disposal import hand_on, sweep
from aiodev._autograd.modes import Mode
from aiodev._core import callsites
from aiodev._core.arguments import callback
from aiodev._core.errors import CaptureError
from aiodev._core.finalizing import until_exit
from aiodev._core.streams.stream import Stream
from aiodev._memory.buffer import Buffer, Uses

__all__ = [
    "Edge", "HookHandle", "Hooks", "Kept", "LeftOut", "Node", "Noted", "Region", "hooked", "is_from_before", "number",
    "stack_of",
]  # fmt: skip

#: Where a gradient goes: a node and which of its results; a leaf, which is a variable; None, nowhere.
Edge = Any
#: Numbers nodes in the order in which they are made.
number: Callable[[], int] = itertools.count(1).__next__


class Hooks:
    """Functions that a node calls, each with what it can be told from others by.

    Attributes:
        results: for one of the node's results, before it runs: given its gradient.
        retained: of results, variables that a pass which stores gradients stores theirs in.
        before: given the gradients of all results.
        after: given the gradients of its operands and of its results.
    """

    __slots__ = ("after", "before", "results", "retained")

    def __init__(self) -> None:
        self.results: dict[int, dict[int, Callable[[Any], Any]]] = {}
        self.retained: dict[int, weakref.ref[Any]] = {}
        self.before: dict[int, Callable[[Any], Any]] = {}
        self.after: dict[int, Callable[[Any, Any], Any]] = {}


class HookHandle:
    """A hook that can be removed again; leaving its block removes it, too.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> x = autograd.Variable(aiodev.ones(2, device="cpu"))
        >>> handle = x.register_hook(lambda g: 2 * g)
        >>> handle.remove()
    """

    __slots__ = ("__weakref__", "_key", "_table")

    _table: dict[int, Any]
    _key: int

    def __init__(self) -> None:
        raise TypeError("HookHandle: handles are made by register_hook, and what else registers hooks")

    def remove(self) -> None:
        """Have the function not called any more; nothing happens a second time."""
        self._table.pop(self._key, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<aiodev.autograd.HookHandle {'set' if self._key in self._table else 'removed'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the handle of a hook belongs to its graph, and is not pickled or copied")


def hooked(table: dict[int, Any], hook: Callable[..., Any], caller: str = "register_hook") -> HookHandle:
    """Register a hook in a table.

    Raises:
        TypeError: it is no function, or makes coroutines.
    """
    callback(caller, "hook", hook, "; a Function may have a coroutine as its backward")
    handle = object.__new__(HookHandle)
    handle._table, handle._key = table, number()
    table[handle._key] = hook
    return handle


@until_exit
class Node:
    """An operation on variables, as the backward pass knows it; ``variable.grad_fn``.

    Attributes:
        edges: for each of its operands, where that one's gradient goes.
        forms: of its results.
        stream: that was current at its forward.
        sequence: its number, greater than those of the nodes that its edges lead to.
        site: the call site of its forward.
        stack: that whole stack, where anomalies are looked for.
        is_released: whether a pass has been here that did not retain the graph.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> x = autograd.Variable(aiodev.ones(2, device="cpu"))
        >>> node = (x * x).grad_fn
        >>> node.name, [one is x for one in node.next_functions]
        ('multiply', [True, True])
    """

    __slots__ = ("__weakref__", "edges", "forms", "hooks", "is_released", "sequence", "site", "stack", "stream")

    edges: Sequence[Any]
    forms: Sequence[Any]
    stream: Stream
    sequence: int
    site: int
    stack: Sequence[str] | None
    hooks: Hooks | None
    is_released: bool
    #: What says, with the forms, how its gradients are computed; None where nothing does.
    derivative: Any = None
    #: Operands and results that are kept for that, and the versions of those that are arrays; the operands' forms.
    kept: Any = ()
    versions: Sequence[Any] = ()
    operands: Sequence[Any] = ()

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__}: nodes are made by functions of variables")

    def __del__(self) -> None:
        """Hand on what it has, where no pass was here: a long graph is not dropped in one go."""
        try:
            if not self.is_released:
                hand_on(self.edges, self.kept)
                self.release()
                sweep()
        except AttributeError:  # it was not even made
            pass

    @property
    def name(self) -> str:
        """The operation's."""
        raise NotImplementedError

    @property
    def _is_repeatable(self) -> bool:
        """Whether all that its gradients submit follows from its derivative, the forms, and numbers that are kept."""
        return False

    def apply(self, gradients: Sequence[Array | None], wanted: Sequence[bool], create_graph: bool) -> Any:
        """The gradients of its operands, one for each edge; None for what is not wanted, or 0."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what was kept, and the way to the nodes before."""
        self.is_released = True
        self.edges = ()

    def _leave_out(self, region: Region, place: int, since: int) -> None:
        """Keep only what is from before node ``since``, and have ``region`` give the rest when it is needed, by the place."""

    def _take_over(self, other: Any) -> None:
        """Keep what another node of the same call keeps, in place of what was left out."""

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """For each operand the node that made it, or the leaf that it is, or None."""
        return tuple(edge[0] if edge.__class__ is tuple else edge for edge in self.edges)

    @property
    def called_at(self) -> str | None:
        """``file:line`` of its forward call."""
        return callsites.describe_site(self.site)

    def register_prehook(self, hook: Callable[[tuple[Any, ...]], Any]) -> HookHandle:
        """Call ``hook(gradients of the results)`` before the node runs; what it returns, if not None, takes their place.

        Raises:
            TypeError: the hook is no function, or makes coroutines.
        """
        return hooked(self._own_hooks().before, hook, "register_prehook")

    def register_hook(self, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> HookHandle:
        """Call ``hook(gradients of the operands, gradients of the results)`` when the node has run.

        What it returns, if not None, takes the place of the former.

        Raises:
            TypeError: the hook is no function, or makes coroutines.
        """
        return hooked(self._own_hooks().after, hook)

    def _own_hooks(self) -> Hooks:
        """Its hooks, made on first use."""
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        where = self.called_at
        return f"<aiodev.autograd.Node {self.name}" + (f", called at {callsites.show(where)}>" if where else ">")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a node belongs to a graph of this process, and is not pickled or copied")


def stack_of(mode: Mode) -> Sequence[str] | None:
    """The stack down to the program's line that called a library, where anomalies are looked for."""
    return traceback.format_stack(callsites.program_frame(sys._getframe(1))) if mode.anomaly else None


class Region(Protocol):
    """What has made nodes that are without some of what they keep.

    Attributes:
        noted: what must not have been written to when it is made again: arrays that nodes have left out, and others may have.
    """

    noted: list[Noted]

    def restore(self) -> None:
        """Give it to all of them that are left."""

    def move(self, place: int, node: Node) -> None:
        """Give it to this node, in place of the one that was made there."""



class LeftOut:
    """Stands, in what a node keeps, for what is computed again when it is needed (:mod:`aiodev._autograd.checkpoint`).

    Attributes:
        region: has made the node.
        place: of the node there.
        rest: what the node keeps all the same, in its places; None in those of the others.
    """

    __slots__ = ("place", "region", "rest")

    def __init__(self, region: Region, place: int, rest: Sequence[Any]) -> None:
        self.region, self.place, self.rest = region, place, rest

    def moved(self, node: Node, rest: Sequence[Any]) -> LeftOut:
        """What stands for the same in another node."""
        self.region.move(self.place, node)
        return LeftOut(self.region, self.place, rest)


def is_from_before(edge: Edge, since: int) -> bool:
    """Whether an operand was made before node ``since``, as far as its edge tells: it is a leaf, or a result of such a node."""
    return edge[0].sequence <= since if edge.__class__ is tuple else edge is not None


class Kept:
    """An array that a node keeps, and its version."""

    __slots__ = ("array", "name", "version")

    def __init__(self, array: Array, name: str) -> None:
        self.array, self.name = array, name
        self.version = version_of(array._buffer)

    def check(self) -> None:
        """Raise RuntimeError where the array's memory has been written to since it was kept."""
        check_version(self.array._buffer, self.version, self.name)


class Noted:
    """An array that a node has kept, and its version; it does not keep the array."""

    __slots__ = ("buffer", "name", "version")

    def __init__(self, array: Array, version: tuple[Any, Any], name: str) -> None:
        self.buffer, self.version, self.name = weakref.ref(array._buffer), version, name

    def check(self) -> None:
        """Raise RuntimeError where the array is still there, and has been written to since."""
        buffer = self.buffer()
        if buffer is not None:
            check_version(buffer, self.version, self.name)


def version_of(buffer: Buffer) -> tuple[Any, Any]:
    """The last writes of a buffer: a timeline and a number, or None and all of them where there are several."""
    writer, written = buffer._writer, buffer._written
    return (writer, written) if writer.__class__ is not Uses else (None, dict(buffer.contents()))


def check_version(buffer: Buffer, version: tuple[Any, Any], name: str) -> None:
    """See that memory holds what it held at a version, whose writes may have become fewer.

    Raises:
        RuntimeError: it has been written to since.
        CaptureError: it was captured work that made it, which has not run, or runs again at each replay.
    """
    writer, written = version
    if buffer._writer is writer and buffer._written == written:
        return
    known = written if writer is None else {writer: written}
    if any(isinstance(timeline.lost, CaptureError) for timeline in known):
        raise CaptureError(
            f"{name}, kept for the gradient, is made by the replays of a graph, which has the forward pass and not "
            f"the backward pass; call that in the same block"
        )
    if any(value > known.get(timeline, 0) for timeline, value in buffer.contents()):
        raise RuntimeError(
            f"{name}, kept for the gradient, has been written to since; write to a copy, `copy.copy(x)`, or behind the pass"
        )
