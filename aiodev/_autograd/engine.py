"""The backward pass: which nodes run, in which order, and what becomes of the gradients of leaves.

The nodes that a pass will run are counted first: for each, how many gradients it waits for. A node that has all of them is
ready; of the ready ones the latest runs first. A node whose gradient function is a coroutine runs as a task of its own, while
the others go on. The invariants are those of :mod:`aiodev._autograd`; the order between streams is that of
:mod:`aiodev._autograd.delivery`.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Awaitable, Iterable, Sequence
from heapq import heappop, heappush, merge
from typing import Any

import anyio
import numpy as np

from aiodev._array.array import Array, allocate, fill_array
from aiodev._array.computing import kernels
from aiodev._array.creation import zeros
from aiodev._array.dtypes import DType
from aiodev._array.form import Form
from aiodev._autograd import modes
from aiodev._autograd.delivery import Arrival, StoredGradients, StreamScope, accumulate, added, fitted, store_all
from aiodev._autograd.disposal import hand_on, sweep
from aiodev._autograd.node import Edge, Node
from aiodev._autograd.remembered import Remembered, Taking
from aiodev._autograd.tuning import NODES_A_LOOK, NODES_SORTED
from aiodev._autograd.variable import Variable, edge_of, plain_of
from aiodev._core.callsites import describe_site, standing
from aiodev._core.errors import CaptureError, GradientError
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import Recording, under_way
from aiodev._core.tuning import PERIOD_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.line import Wait
from aiodev._core.waiting.reactor import current_reactor, others_first

__all__ = ["Pass"]

_sequence = operator.attrgetter("sequence")


class Pass:
    """One backward pass.

    Args:
        roots: variables, and the gradient of each, or None for that of a single element by itself.
        inputs: variables whose gradients are asked for, in place of storing those of all leaves; None for the latter.
        remembered: what may remember what the pass submits.
    """

    def __init__(
        self, roots: Sequence[tuple[Any, Array | None]], inputs: Sequence[Any] | None, retain_graph: bool, create_graph: bool,
        remembered: Remembered | None = None,
    ) -> None:  # fmt: skip
        self._roots = roots
        self._remembered = remembered
        self._taking: Taking | None = None  # notes, while they are taken
        self._create_graph, self._retains = create_graph, retain_graph
        self._asked = None if inputs is None else [edge_of(one) for one in inputs]
        #: To look in: a list would compare arrays, of elements.
        self._wanted = frozenset(self._asked or ())
        self._taken: dict[Any, Any] = {}  # of what is asked for
        self._counts: dict[Any, int] = {}
        self._needed: set[Node] | None = None  # None: all
        self._first_use: dict[Variable, Node] = {}
        self._arrivals: dict[Any, Arrival] = {}
        self._ready: list[tuple[int, int, Any]] = []
        self._leaves: list[tuple[Variable, Any, Stream]] = []
        self._ends: dict[Stream, None] = {}  # streams that a leaf's gradient is ready on
        self._until = fairness.clock() + PERIOD_NS
        self._anomaly = modes.current().anomaly
        self._started: list[tuple[Node, Any, Sequence[Edge]]] = []
        self._flying = 0
        self._begun: list[Any] = [_NOTHING]  # nodes that run as tasks, and behind them the one that runs here
        self._arrived: anyio.Event | None = None
        self._failure: Exception | None = None
        self._scope = StreamScope()
        self._recording: Recording | None = None  # the graph that the pass is captured into

    async def run(self) -> list[Any]:
        """Submit all of it; gives the gradients that were asked for, None for what the roots do not depend on."""
        await others_first
        modes.push(self, enabled=self._create_graph)
        is_over = False
        try:
            await self._count()
            if under_way:
                self._check_captures()
            if self._remembered is not None:
                self._taking = self._remembered.take_notes(edge_of(self._roots[0][0])[0], self._counts)
            await self._begin()
            await self._drain()
            if self._started:
                await self._drain_with_tasks()
            self._scope.leave()
            await self._store()
            self._join()
            is_over = True
        finally:
            self._scope.leave()
            if self._taking is not None:
                self._taking.close()
            if not is_over and self._recording is not None:
                self._join()  # nothing is captured that nobody waits for
            if not is_over and not self._retains:
                for target in (*self._counts, *(entry[2] for entry in self._ready), *self._begun):
                    if target.__class__ is not Variable and not target.is_released:
                        target.release()
            for _, awaitable, _ in self._started:  # which no task has got
                if inspect.iscoroutine(awaitable):
                    awaitable.close()
            self._arrivals.clear()
            modes.pop(self)
        return [] if self._asked is None else [self._taken.get(key) for key in self._asked]

    # What there is to do

    async def _count(self) -> None:
        counts, first = self._counts, self._first_use
        stack: list[Node] = []
        turns = 0
        for root, _ in self._roots:
            edge = edge_of(root)
            if edge.__class__ is tuple and edge[0] not in counts:
                counts[edge[0]] = 0
                stack.append(edge[0])
            turns += 1
            if not turns % 64 and fairness.clock() >= self._until:
                await self._yield()
        while stack:
            node = stack.pop()
            if node.is_released:
                self._retains = True  # this pass has no business with what it has not been through
                raise _failed(node, RuntimeError(_RELEASED))
            for edge in node.edges:
                if edge.__class__ is tuple:
                    other = edge[0]
                    if other in counts:
                        counts[other] += 1
                    else:
                        counts[other] = 1
                        stack.append(other)
                elif edge is not None:
                    user = first.get(edge)
                    if user is None:
                        first[edge] = node
                        counts[edge] = 1
                    else:
                        counts[edge] += 1
                        if node.sequence < user.sequence:
                            first[edge] = node
            turns += 1
            if not turns % 64 and fairness.clock() >= self._until:
                await self._yield()
        if self._asked is not None:
            await self._restrict(self._wanted)

    async def _restrict(self, asked: frozenset[Any]) -> None:
        """Count only what leads to something that is asked for: from the leaves on, so in the order of the forward."""
        runs, run = [], []
        for target in self._counts:
            if target.__class__ is not Variable:
                run.append(target)
                if len(run) == NODES_SORTED:
                    runs.append(sorted(run, key=_sequence))
                    run = []
                    if fairness.clock() >= self._until:
                        await self._yield()
        runs.append(sorted(run, key=_sequence))
        needed: set[Node] = set()
        leads = _Leads(needed, asked)
        edges = [edge_of(root) for root, _ in self._roots]
        counts = dict.fromkeys((edge[0] for edge in edges if edge.__class__ is tuple), 0)
        for turn, node in enumerate(merge(*runs, key=_sequence)):
            for edge in node.edges:
                if leads(edge):
                    needed.add(node)
                    target = edge[0] if edge.__class__ is tuple else edge
                    counts[target] = counts.get(target, 0) + 1
            if not turn % 64 and fairness.clock() >= self._until:
                await self._yield()
        self._counts, self._needed, self._leads = counts, needed, leads

    def _check_captures(self) -> None:
        """See that the whole pass is captured where the current stream is, or nothing of it.

        Raises:
            CaptureError: it is not so; the graph is left as it was.
        """
        recording = current_stream(self._roots[0][0].device).timeline.recording
        for node in self._counts:
            if node.__class__ is Variable:
                continue
            own = node.stream.timeline.recording
            if own is not recording:
                self._retains = True
                where = f"the forward of {node.name}, called at {describe_site(node.site)}"
                if recording is not None:
                    recording.refuse(f"{where}, ran on a stream that is not captured with the backward pass")
                own.refuse(f"{where}, is being captured, and the backward pass is not; call it in the same block")
            if recording is not None:
                self._ends[node.stream] = None
        if recording is not None and self._anomaly:
            self._retains = True
            recording.refuse("detect_anomaly reads each gradient on the host")
        self._recording = recording

    async def _begin(self) -> None:
        for turn, (root, _) in enumerate(self._roots):  # all before the first is delivered: several may be results of one node
            edge = edge_of(root)
            target = edge[0] if edge.__class__ is tuple else edge
            self._counts[target] = self._counts.get(target, 0) + 1
            if turn % 64 == 63 and fairness.clock() >= self._until:
                await self._yield()
        for turn, (root, gradient) in enumerate(self._roots):
            if turn % NODES_A_LOOK == NODES_A_LOOK - 1 and fairness.clock() >= self._until:
                await self._yield()
            edge = edge_of(root)
            stream = edge[0].stream if edge.__class__ is tuple else current_stream(root.device)
            if gradient is None:
                self._scope.switch(stream)
                gradient = _one(root._form, stream)
            else:
                self._scope.leave()
                stream = current_stream(gradient.device)
                self._scope.switch(stream)
            target = edge[0] if edge.__class__ is tuple else edge
            if target.__class__ is Variable:
                self._first_use.setdefault(target, _Root(current_stream(root.device)))  # type: ignore[arg-type]
            if self._needed is None or target.__class__ is not Variable or self._leads(edge):
                self._deliver(stream, edge, gradient)

    # Running

    async def _drain(self) -> None:
        """Run what is ready, until nothing is, or a task has to be started."""
        ready, scope = self._ready, self._scope
        turns = 0
        while ready:
            turns += 1
            if not turns % NODES_A_LOOK and fairness.clock() >= self._until:
                await self._yield()
            node = heappop(ready)[2]
            if node.__class__ is Variable:
                try:
                    self._finish_leaf(node)
                except CaptureError:
                    raise
                except Exception as error:  # one of its hooks
                    raise GradientError(f"a leaf of the shape {node.shape}", None) from error
                continue
            self._begun[-1] = node
            if node.is_released:  # another pass has been here since it was counted, and goes on
                self._retains = True
                raise _failed(node, RuntimeError(_RELEASED))
            try:
                stream = node.stream
                if stream is not scope.stream:
                    scope.switch(stream)
                forms = node.forms
                if len(forms) == 1:
                    arrival = self._arrivals.pop(node, None)
                    gradients: Sequence[Any] | None = None
                    if arrival is not None:
                        gradient = arrival.gradient if arrival.ready is stream else arrival.take(stream)
                        gradients = (gradient,)
                else:
                    gradients = self._taken_together(node)
                edges = node.edges
                if self._needed is not None:
                    edges = self._kept_edges(node, gradients)
                if gradients is None:
                    self._pass_over(edges, stream)
                    continue
                if node.hooks is not None:
                    gradients = self._before(node, gradients)
                if self._asked is not None:
                    self._take_asked(node, gradients)
                    if not any(edge is not None for edge in edges):
                        continue
                standing.site = node.site  # of its kernels: to look for the program's line above takes as long as a launch
                try:
                    contributions = node.apply(gradients, edges, self._create_graph)
                finally:
                    standing.site = 0
                if contributions.__class__ is not tuple and inspect.isawaitable(contributions):
                    self._started.append((node, contributions, (edges, gradients)))
                    self._begun.append(node)
                    return
                if self._anomaly:
                    await _look_for_nan(contributions)
                self._finish(node, edges, gradients, contributions)
            except Exception as error:
                failure = _failed(node, error)
                if failure is error:
                    raise
                raise failure from error

    def _finish(self, node: Any, edges: Sequence[Edge], gradients: Any, found: Sequence[Any]) -> None:
        """Send a node's gradients on."""
        if node.hooks is not None:
            found = _after(node, found, gradients)
        if not self._retains:
            node.release()
        stream = node.stream
        standing.site = node.site
        try:
            for edge, gradient in zip(edges, found, strict=True):
                if edge is not None:
                    self._deliver(stream, edge, gradient)
        finally:
            standing.site = 0

    def _pass_over(self, edges: Sequence[Edge], stream: Stream) -> None:
        """Send no gradient on: nothing that came was one."""
        for edge in edges:
            if edge is not None:
                self._deliver(stream, edge, None)

    def _deliver(self, producer: Stream, edge: Edge, gradient: Any) -> None:
        """Add a gradient to what has come for an input, None for 0; the target may be ready then."""
        if edge.__class__ is tuple:
            target, output = edge
            key = target if len(target.forms) == 1 else edge
            form, consumer, rank = target.forms[output], target.stream, -target.sequence
        else:
            target = key = edge
            form, consumer, rank = edge._form, self._first_use[edge].stream, _LEAVES
        if gradient is not None:
            if gradient._form is not form:
                gradient = fitted(gradient, form)
            arrival = self._arrivals.get(key)
            if arrival is None:
                self._arrivals[key] = Arrival(gradient, producer, consumer)
            else:
                arrival.add(gradient, producer, consumer, self._scope)
        left = self._counts[target] - 1
        if left:
            self._counts[target] = left
        else:  # so that each node goes when it has run, and not all at once, at the end
            del self._counts[target]
            heappush(self._ready, (rank, id(target), target))

    def _before(self, node: Node, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients of a node's results, as its hooks make them; what is retained is stored with those of leaves."""
        hooks = node.hooks
        assert hooks is not None
        changed = list(gradients)
        for output, own in list(hooks.results.items()):
            for hook in list(own.values()):
                changed[output] = _replaced(hook(changed[output]), changed[output])
        if self._asked is None:
            for output, reference in hooks.retained.items():
                variable = reference()
                if variable is not None:
                    self._leaves.append((variable, changed[output], node.stream))
                    self._ends[node.stream] = None
        for hook in list(hooks.before.values()):
            changed = _all_replaced(hook(tuple(changed)), changed)
        return tuple(changed)

    def _taken_together(self, node: Node) -> Sequence[Any] | None:
        """The gradients of several results, zeros for those that have none; None if none has."""
        arrivals = [self._arrivals.pop((node, output), None) for output in range(len(node.forms))]
        if not any(arrival is not None for arrival in arrivals):
            return None
        return tuple(
            [
                zeros(form.shape, form.dtype, form.device) if arrival is None else arrival.take(node.stream)
                for arrival, form in zip(arrivals, node.forms, strict=True)
            ]
        )

    def _kept_edges(self, node: Node, gradients: Any) -> Sequence[Edge]:
        """The edges of a node that lead to something that is asked for."""
        assert self._needed is not None
        return [edge if node in self._needed and self._leads(edge) else None for edge in node.edges]

    def _take_asked(self, node: Node, gradients: Sequence[Any]) -> None:
        for output, gradient in enumerate(gradients):
            if (node, output) in self._wanted:
                self._taken[(node, output)] = gradient
                self._ends[node.stream] = None

    # Leaves

    def _finish_leaf(self, leaf: Variable) -> None:
        arrival = self._arrivals.pop(leaf, None)
        if arrival is None:
            return
        stream = self._first_use[leaf].stream
        if stream.device is not leaf.device:
            stream = arrival.accumulation
        gradient = arrival.take(stream)
        self._ends[stream] = None
        if leaf._hooks:
            self._scope.switch(stream)
            for hook in list(leaf._hooks.values()):
                gradient = _replaced(hook(gradient), gradient)
        if self._asked is not None:
            self._taken[leaf] = gradient
        elif leaf._post_hooks:
            if under_way:
                self._check_sum(leaf, stream)
            self._scope.switch(stream)
            accumulate(leaf, gradient, stream, self._recording)
            for hook in list(leaf._post_hooks.values()):
                hook(leaf)
            if self._recording is not None:
                self._recording.at_replays(functools.partial(StoredGradients, [leaf], self._recording))
        else:
            self._leaves.append((leaf, gradient, stream))

    async def _store(self) -> None:
        """Add the gradients of leaves to what they have: copies and sums are made with turns in between, and stored at one go.

        Sums are made again, with turns, of what has changed meanwhile; that means that another pass has stored its own.
        """
        seen = {gradient._buffer for _, gradient in self._roots if gradient is not None}
        stored = []
        for turn, (leaf, gradient, stream) in enumerate(self._leaves):
            if turn % NODES_A_LOOK == NODES_A_LOOK - 1 and fairness.clock() >= self._until:
                await self._yield()
            if not self._create_graph:
                if gradient._buffer in seen or not gradient._form.packed or not gradient._form.writable:
                    self._scope.switch(stream)
                    gradient = plain_of(gradient)._copied(gradient.device)
                seen.add(gradient._buffer)
            stored.append((leaf, gradient, stream))
        if self._taking is not None:
            self._taking.end(self._roots[0][1], {leaf: gradient for leaf, gradient, _ in stored})
        sums: list[tuple[Variable, Array | None, Any]] = [(leaf, None, None) for leaf, _, _ in stored]
        changed: Sequence[int] = range(len(stored))
        while changed:
            for turn, place in enumerate(changed):
                if turn % NODES_A_LOOK == NODES_A_LOOK - 1 and fairness.clock() >= self._until:
                    await self._yield()
                sums[place] = self._summed(*stored[place], sums[place])
            changed = store_all(sums)
        if self._recording is not None and sums:
            leaves = [leaf for leaf, _, _ in sums]
            self._recording.at_replays(functools.partial(StoredGradients, leaves, self._recording))
        self._scope.leave()
        self._leaves.clear()
        while stored:  # to free ten thousand arrays takes a tenth of a second
            hand_on(stored.pop(), sums.pop())
        sweep()

    def _summed(
        self, leaf: Variable, gradient: Any, stream: Stream, earlier: tuple[Variable, Array | None, Any]
    ) -> tuple[Variable, Array | None, Any]:
        """A leaf, what it has, and the sum of that and a gradient; ``earlier`` is what came of it before, if anything.

        Raises:
            CaptureError: see :meth:`_check_sum`; or the captured work adds in place to what the leaf does not have any more.
        """
        if under_way:
            self._check_sum(leaf, stream)
        if self._recording is not None and earlier[1] is not None and earlier[2] is earlier[1]:
            self._recording.refuse("replays add to the gradient that a leaf had, in place, and another pass has replaced it")
        before = leaf._grad
        self._scope.switch(stream)
        return leaf, before, added(before, gradient, stream, self._recording)

    def _check_sum(self, leaf: Variable, stream: Stream) -> None:
        """See that a gradient can be added to what a leaf has, while something is being captured.

        Raises:
            CaptureError: another capture has made that; or replays could not add to it in place.
        """
        before, recording = leaf._grad, stream.timeline.recording
        if before is None:
            return
        for other, _ in before._buffer.uses():
            if other.recording is not None and other.recording is not recording:
                other.recording.refuse("a leaf has a gradient that is being captured; have each capture make all of them")
        if recording is None or recording.made(before._buffer):
            return
        if self._create_graph or before.__class__ is Variable or not before.writable:
            what = "which has a graph, or gets one" if before.writable else "which is read-only"
            recording.refuse(f"replays add to the gradient that a leaf had before, in place, {what}; have zero_grad come first")

    def _join(self) -> None:
        """Order the caller's streams after those that its gradients are ready on."""
        for stream in self._ends:
            caller = current_stream(stream.device)
            if caller is not stream:
                caller.wait_event(stream.record_event())

    # Tasks

    async def _drain_with_tasks(self) -> None:
        async with anyio.create_task_group() as group:
            try:
                while self._started or self._flying:
                    for node, awaitable, given in self._started:
                        self._flying += 1
                        group.start_soon(self._fly, group.cancel_scope, node, awaitable, given)
                    self._started.clear()
                    self._arrived = anyio.Event()
                    await self._drain()
                    if not self._started and self._flying:
                        self._scope.leave()
                        await self._arrived.wait()
                        await self._drain()
            except (GradientError, CaptureError) as error:
                self._failure = self._failure or error
                group.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _fly(self, cancel_scope: anyio.CancelScope, node: Any, awaitable: Awaitable[Any], given: Any) -> None:
        """Run a node whose gradient function is a coroutine, on its stream."""
        edges, gradients = given
        outer, own = self._scope, StreamScope()
        try:
            own.switch(node.stream)
            gradient = node._normalised(await awaitable)
            if self._anomaly:
                await _look_for_nan(gradient)
            self._scope = own  # no other task runs until it is put back
            self._finish(node, edges, gradients, gradient)
        except Exception as error:
            self._failure = self._failure or _failed(node, error)
            cancel_scope.cancel()
        except anyio.get_cancelled_exc_class() as error:
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Nobody has cancelled the pass: what the node waits for was.
            self._failure = self._failure or _failed(node, error)
            cancel_scope.cancel()
        finally:
            self._scope = outer
            own.leave()
            self._flying -= 1
            assert self._arrived is not None
            self._arrived.set()

    async def _yield(self) -> None:
        if self._taking is not None:
            self._taking.pause(True)
        await _turn
        if self._taking is not None:
            self._taking.pause(False)
        self._until = fairness.clock() + PERIOD_NS


class _Turn:
    """Stand in line with the loop's other tasks whose time is over, so that of several passes each waits for all timers."""

    def __await__(self) -> Wait:
        yield from current_reactor().pause()


_turn = _Turn()
_RELEASED = "an earlier pass has released it; retain_graph=True keeps a graph"
#: Before all nodes.
_LEAVES = -(1 << 62)


class _Nothing:
    """Stands for a node where there is none."""

    is_released = True


_NOTHING = _Nothing()


class _Root:
    """Stands for the first use of a leaf that is a root."""

    sequence = 0

    def __init__(self, stream: Stream) -> None:
        self.stream = stream


class _Leads:
    """Whether an edge leads to something that is asked for."""

    __slots__ = ("_asked", "_needed")

    def __init__(self, needed: set[Node], asked: frozenset[Any]) -> None:
        self._needed, self._asked = needed, asked

    def __call__(self, edge: Edge) -> bool:
        if edge is None:
            return False
        return edge in self._asked or (edge.__class__ is tuple and edge[0] in self._needed)


def _one(form: Form, stream: Stream) -> Array:
    """What a single element by itself has for a gradient; :func:`ones` would find out the rest, too."""
    one = allocate(form.shape, form.dtype, stream)
    fill_array(one, stream, 1, _pattern(form.dtype))
    return one


@functools.cache
def _pattern(dtype: DType) -> bytes:
    return np.ones((), dtype).tobytes()


def _replaced(returned: Any, gradient: Any) -> Any:
    """What a hook has made of a gradient."""
    if returned is None:
        return gradient
    if not isinstance(returned, Array):
        raise TypeError(f"a hook: expected an array, or None, got {type(returned).__name__}")
    return fitted(returned, gradient._form)


def _after(node: Node, found: Sequence[Any], gradients: Sequence[Any]) -> Sequence[Any]:
    assert node.hooks is not None
    for hook in list(node.hooks.after.values()):
        found = _all_replaced(hook(tuple(found), tuple(gradients)), found)
    return found


def _all_replaced(returned: Any, gradients: Sequence[Any]) -> list[Any]:
    if returned is None:
        return list(gradients)
    if not isinstance(returned, tuple | list) or len(returned) != len(gradients):
        raise TypeError(f"a hook of a node: expected None or a tuple of {len(gradients)} gradients, got {returned!r}")
    return list(returned)


def _failed(node: Any, error: BaseException) -> Exception:
    """What a pass raises when a node has failed, with its cause; a refusal to capture as it is, since it names itself."""
    if isinstance(error, GradientError):
        return error
    if isinstance(error, CaptureError):
        error.add_note(f"in the gradient of {node.name}, called at {describe_site(node.site)}")
        return error
    stack = None if node.stack is None else "".join(node.stack)
    failure = GradientError(node.name, describe_site(node.site), stack)
    failure.__cause__ = error
    return failure


async def _look_for_nan(gradients: Iterable[Any]) -> None:
    for place, gradient in enumerate(gradients):
        if gradient is not None and await kernels.any(kernels.isnan(plain_of(gradient))).item():
            raise FloatingPointError(f"the gradient of its operand {place} has NaN")
