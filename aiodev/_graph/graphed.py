"""Functions that are captured when they are first called with arguments of some kind, and replayed from then on.

The arrays of a call are put in the place of those that the function was captured with, and so is fresh memory in the place of
each result: as for the function itself, results are the caller's. Nothing is copied but numbers that are returned. The function
is captured with arrays of memory of their own, since what it closes over may be an array of that call.

Any thread may call. From the first argument that is put in its place to the submission a call is alone with its capture: a
lock is held, and a plain function is captured under it. A coroutine function may wait while it is captured, so those who
capture it stand in line as operations of a stream do, each a gate: tasks of whatever loops, first come, first served.

Captures belong to their process. A forked child has none, and captures anew.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import struct
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from aiodev._array.array import Array, array_of
from aiodev._array.form import Form
from aiodev._core import arguments
from aiodev._core.at_fork import in_child
from aiodev._core.backend.device import Device
from aiodev._core.streams.completion import Reached
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import Noting
from aiodev._core.waiting.reactor import others_first
from aiodev._graph.access import span
from aiodev._graph.capture import capture
from aiodev._graph.input import Place
from aiodev._graph.recorder import Recorder
from aiodev._memory.allocators import allocator_of
from aiodev._memory.buffer import Buffer
from aiodev._memory.tuning import GRANULE

__all__ = ["Graphed", "make_graphed"]

P = ParamSpec("P")
R = TypeVar("R")

#: In a tree of containers: here is an array, or a number of NumPy's.
_LEAF = object()
_WORD = 8
#: What is itself in the key of a call.
_CONSTANTS = frozenset((bool, int, float, str, type(None)))
#: Keys of usual calls by which captures are found, for each capture that is kept; when there are more, they are found anew.
_KEYS_EACH = 8


class Graphed(Generic[P, R]):
    """A function that :func:`make_graphed` has made, to be called like the one it was made of.

    Attributes:
        captures: how often it was captured.

    Example:
        >>> import aiodev
        >>> double = aiodev.make_graphed(lambda x: 2 * x)
        >>> double(aiodev.ones(3, device="cpu")).numpy_blocking()
        array([2., 2., 2.])
        >>> double(aiodev.zeros(3, device="cpu")).numpy_blocking(), double.captures
        (array([0., 0., 0.]), 1)
    """

    __name__: str

    def __init__(self, function: Callable[P, R], most: int) -> None:
        self.__name__ = type(function).__name__  # a partial function, and an object that is called, have none of their own
        functools.update_wrapper(self, function)
        self.captures = 0
        self._function = function
        self._awaits = arguments.is_kind(function, inspect.iscoroutinefunction)
        self._most = most
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Know of no capture: to begin with, and in a forked child, where another thread of the parent may hold the lock."""
        self._known: dict[Hashable, _Captured] = {}
        self._usual: dict[tuple[Any, ...], _Captured] = {}  # by what _read_call makes of calls
        self._serials = itertools.count()
        self._lock = threading.RLock()
        self._line: Stream | None = None  # in which tasks that capture a coroutine function stand

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Submit to the current stream of the arrays' device what the function would submit; waits for nothing.

        Of a coroutine function the call is to be awaited, and the capture may yield to the loop.

        Raises:
            CaptureError: the function does what cannot be captured.
            TypeError: an argument cannot be hashed, and is no array; or a plain function makes coroutines.
            RuntimeError: an argument is a variable that gradients are wanted of: of a call nothing is recorded. A step closes
                over the parameters that it differentiates by.
        """
        result: Any = self._call_later(args, kwargs) if self._awaits else self._call(args, kwargs)
        return result  # type: ignore[no-any-return]

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        usual, leaves = _read_call(args, kwargs)
        captured = self._usual.get(usual)
        if captured is not None:
            return self._submit(captured, leaves, current_stream(captured.device))
        leaves = []
        tree, key, stream = self._kind_of(args, kwargs, leaves)
        with self._lock:
            captured = self._known.get(key)
            if captured is None:
                captured = self._capture(tree, key, leaves, stream.device)
            self._enter_usual(usual, captured)
            return self._submit(captured, leaves, stream)

    def _submit(self, captured: _Captured, leaves: Sequence[Any], stream: Stream) -> Any:
        with self._lock:
            captured.used = next(self._serials)
            return captured.submit(leaves, stream)

    async def _call_later(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        await others_first
        usual, leaves = _read_call(args, kwargs)
        captured = self._usual.get(usual)
        if captured is not None:
            return self._submit(captured, leaves, current_stream(captured.device))
        leaves = []
        tree, key, stream = self._kind_of(args, kwargs, leaves)
        captured = self._known.get(key)
        if captured is None:
            async with self._turn(stream):
                captured = self._known.get(key)  # another task may have captured it meanwhile
                if captured is None:
                    captured = _Captured()
                    with captured.recording(tree, leaves, stream.device) as (own, named):
                        result = captured.delivered(await self._function(*own, **named))  # type: ignore[misc]
                    self._enter(key, captured.finish(result))
        self._enter_usual(usual, captured)
        return self._submit(captured, leaves, stream)

    @contextlib.asynccontextmanager
    async def _turn(self, stream: Stream) -> AsyncIterator[None]:
        """Hold the line, from when all who came before have left it."""
        with self._lock:
            line = self._line
            if line is None:
                line = self._line = Stream(stream.device)
        gate = line.timeline.gate()
        try:
            await Reached(line.timeline, gate.value - 1)
            yield
        finally:
            gate.open()

    def _kind_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]
    ) -> tuple[Any, Hashable, Stream]:
        """List the arrays and numbers of a call; gives the tree of what else there is, the key, and the current stream."""
        tree = _split((args, kwargs), leaves, _is_leaf)
        for leaf in leaves:
            if leaf.__class__ is not Array and isinstance(leaf, Array):
                leaf._plainly(f"a call of graphed {self.__name__} with a variable as an argument")
        stream = current_stream(next((leaf.device for leaf in leaves if isinstance(leaf, Array)), None))
        return tree, (stream.device, _frozen(tree, self.__name__), *_kinds(leaves)), stream

    def _capture(self, tree: Any, key: Hashable, leaves: list[Any], device: Any) -> _Captured:
        """Capture a plain function."""
        captured = _Captured()
        with captured.recording(tree, leaves, device) as (args, kwargs):
            result: Any = self._function(*args, **kwargs)
            if inspect.isawaitable(result):
                getattr(result, "close", lambda: None)()
                what = "makes coroutines, and is no coroutine function; write one that awaits them"
                raise TypeError(f"make_graphed: {self._function!r} {what}")
            result = captured.delivered(result)
        return self._enter(key, captured.finish(result))

    def _enter(self, key: Hashable, made: _Captured) -> _Captured:
        with self._lock:
            made.used = next(self._serials)
            self._known[key] = made
            self.captures += 1
            while len(self._known) > self._most:
                del self._known[min(self._known, key=lambda key: self._known[key].used)]
                self._usual.clear()  # which may have known the one that is gone
        return made

    def _enter_usual(self, usual: tuple[Any, ...], captured: _Captured) -> None:
        """Have the next call of this kind find a capture without looking at more of it."""
        if any(part.__class__ is Form for part in usual):  # else the current device decides, too
            with self._lock:
                if len(self._usual) >= _KEYS_EACH * self._most:
                    self._usual.clear()
                self._usual[usual] = captured

    def __repr__(self) -> str:
        return f"<aiodev.Graphed {self.__name__}, captured {self.captures} times>"

    def __reduce__(self) -> NoReturn:
        """Its captures are of this process."""
        raise TypeError("graphed functions are not pickled or copied: make one there, of the same function")


_all: weakref.WeakSet[Graphed[..., Any]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for graphed in list(_all):
        graphed._begin()


in_child(_forget_after_fork)


class _Argument(NamedTuple):
    """A buffer of arguments."""

    leaf: int  #: the first argument in it
    writes: bool
    follows: bool  #: calls are ordered after whatever uses it
    places: list[Place]  #: what moves with it


class _Made(NamedTuple):
    """A buffer of results."""

    nbytes: int
    places: list[Place]


class _Result(NamedTuple):
    """An array among the results."""

    array: Array | None  #: itself, if it is neither of a call's own memory nor an argument's
    argument: int  #: which it is, or whose memory it is in; or -1
    made: int  #: the buffer that it is in, or -1
    distance: int  #: from the argument's address, or that of the buffer
    form: Form | None  #: None for the argument itself


def _read_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """What tells a usual call from others, and its arrays and numbers; nothing of other calls.

    Usual are arrays, each in memory of its own, numbers, constants, and tuples, lists and dictionaries of them.
    """
    key: list[Any] = []
    leaves: list[Any] = []
    for arg in args:
        if arg.__class__ is Array:
            key.append(arg._form)
            leaves.append(arg)
        elif not _read_value(arg, key, leaves):
            return (), leaves
    if kwargs and not _read_value(kwargs, key, leaves):
        return (), leaves
    if len(leaves) > 1:
        buffers = [leaf._buffer for leaf in leaves if leaf.__class__ is Array]
        if len(set(buffers)) < len(buffers):
            return (), leaves
    return tuple(key), leaves


def _read_value(value: Any, key: list[Any], leaves: list[Any]) -> bool:
    """Append what tells an argument from others, and its arrays and numbers; False for what is not usual."""
    kind = value.__class__
    if kind is Array:
        key.append(value._form)
        leaves.append(value)
        return True
    key.append(kind)
    if kind in _CONSTANTS:
        key.append(value)
        return kind is not float or (value != 0 and value == value)  # there are two zeros, and NaN
    if kind is tuple or kind is list:
        key.append(len(value))
        return all(_read_value(one, key, leaves) for one in value)
    if kind is dict:
        key.append(tuple(value))
        return all(name.__class__ is str and _read_value(one, key, leaves) for name, one in value.items())
    leaves.append(value)
    return isinstance(value, np.generic)


class _Words:
    """What replays are told of their call: addresses of arguments and results, and numbers, as one list of words.

    It is made when the executor has the commands of all runs. Before that, and where it takes none, commands are changed by
    :meth:`Inputs.rebind`.
    """

    def __init__(
        self, words: dict[int, bytes], moves: Sequence[tuple[int, Place]], numbers: Sequence[tuple[int, Array]]
    ) -> None:
        """Of ``words``, as they are now, by address: what moves with which address, and what is which argument's number."""
        places = {address: 2 * n + 1 for n, address in enumerate(words)}
        values = [int.from_bytes(word, "little", signed=True) for word in words.values()]
        self._words = [word for pair in zip(words, values, strict=True) for word in pair]
        self._moves = [(places[run.places[k] + at], source, distance) for source, (run, k, at, distance) in moves]
        self._numbers = [(leaf, places[array._address], -(-array.nbytes // _WORD)) for leaf, array in numbers]
        self._pack = struct.Struct(f"<{len(self._words)}q").pack

    def patches(self, addresses: Sequence[int], leaves: Sequence[Any]) -> bytes:
        """What a replay is to write."""
        words = self._words.copy()
        for place, source, distance in self._moves:
            words[place] = addresses[source] + distance
        for leaf, place, count in self._numbers:
            data = np.asarray(leaves[leaf]).tobytes().ljust(count * _WORD, b"\0")
            words[place : place + 2 * count : 2] = struct.unpack(f"<{count}q", data)
        return self._pack(*words)


class _Captured:
    """One capture of a function: for arguments of some kind.

    Attributes:
        device: where it runs.
        used: a number that is larger for what was called later.
    """

    device: Device
    used = 0

    @contextlib.contextmanager
    def recording(self, tree: Any, leaves: Sequence[Any], device: Any) -> Iterator[tuple[Any, Any]]:
        """Capture what is submitted in the block, which calls the function with the arguments that it is given."""
        block = capture()
        self.device = device
        self._leaves = _stand_ins(leaves)
        self._graph = graph = block._enter(Stream(device))
        self._recorder = recorder = graph._recording()
        is_whole = False
        recorder.inputs.update(leaf._buffer for leaf in self._leaves if isinstance(leaf, Array))
        try:
            self._numbers = [n for n, leaf in enumerate(leaves) if not isinstance(leaf, Array)]
            self._own = {n: graph.input(str(n), leaves[n]) for n in self._numbers}
            yield _join(tree, iter([self._own.get(n, leaf) for n, leaf in enumerate(self._leaves)]))
            is_whole = True
        finally:
            block._leave(is_whole)

    def delivered(self, result: Any) -> Any:
        """What the function has returned, with copies of numbers, which each call writes anew; to be called in the block."""
        arrays: list[Array] = []
        tree = _split(result, arrays, _is_array)
        numbers = {number._buffer: number for number in self._own.values()}
        copies: dict[Buffer, Array] = {}
        for n, array in enumerate(arrays):
            buffer = array._buffer
            if buffer in numbers:
                number = numbers[buffer]
                copy = copies.get(buffer)
                if copy is None:
                    copy = copies[buffer] = number._copied(number.device)
                arrays[n] = array_of(copy._buffer, copy._address + array._address - number._address, array._form)
        return _join(tree, iter(arrays))

    def finish(self, result: Any) -> _Captured:
        """Find out what moves with arguments and results; gives itself."""
        arrays: list[Array] = []
        self._tree = _split(result, arrays, _is_array)
        self._arguments = self._find_arguments(self._leaves)
        self._find_results(arrays, self._leaves, self._recorder)
        #: Of each buffer of arguments, and of each of results.
        self._places = [argument.places for argument in self._arguments] + [made.places for made in self._made]
        self._number_arrays = [self._own[n] for n in self._numbers]
        del self._recorder, self._own, self._leaves
        self._words: _Words | None = None
        self._shares_state = any(self._graph._sealed().held.values())
        return self

    def _find_arguments(self, leaves: Sequence[Any]) -> list[_Argument]:
        """The buffers of arguments that the graph uses, which it does not hold from now on."""
        graph, resources = self._graph, self._graph._sealed()
        groups: dict[Buffer, list[int]] = {}
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, Array):
                groups.setdefault(leaf._buffer, []).append(n)
        arguments = []
        for buffer, members in groups.items():
            spans = [span(leaves[n]) for n in members]
            first, last = min(first for first, _ in spans), max(last for _, last in spans)
            places = graph._inputs.find_places(first, last, leaves[members[0]]._address)
            if buffer in resources.held:
                arguments.append(_Argument(members[0], resources.held.pop(buffer), buffer in resources.followed, places))
                resources.followed.discard(buffer)
        resources.sort_uses()
        return arguments

    def _find_results(self, found: list[Array], leaves: Sequence[Any], recorder: Recorder) -> None:
        """What each array of the result is, and the memory that is made anew for each call."""
        graph, resources, made = self._graph, self._graph._sealed(), recorder.memory.made
        first = {leaf._buffer: n for n, leaf in reversed(list(enumerate(leaves))) if isinstance(leaf, Array)}
        self._made: list[_Made] = []
        self._results: list[_Result] = []
        buffers: dict[Buffer, int] = {}
        for array in found:
            buffer = array._buffer
            if buffer in first:
                itself = next((n for n, leaf in enumerate(leaves) if leaf is array), None)
                if itself is not None:
                    self._results.append(_Result(None, itself, -1, 0, None))
                    continue
                n = first[buffer]
                self._results.append(_Result(None, n, -1, array._address - leaves[n]._address, array._form))
            elif buffer in made and buffer not in recorder.stationary:
                if buffer not in buffers:
                    buffers[buffer], one = len(self._made), made[buffer]
                    places = graph._inputs.find_places(buffer.address, buffer.address + max(1, one.nbytes), buffer.address)
                    nodes = [run.nodes[k] for run, k, _, _ in places]
                    own = [one.may_be_used_by(node.lane, node.value) for node in nodes]
                    places = list(itertools.compress(places, own))
                    self._made.append(_Made(one.nbytes, places))
                distance = array._address - buffer.address
                self._results.append(_Result(None, -1, buffers[buffer], distance, array._form))
            else:
                self._results.append(_Result(array, -1, -1, 0, array._form))
        resources.made[:] = [own for own in resources.made if own() not in buffers]

    def submit(self, leaves: Sequence[Any], stream: Stream) -> Any:
        """Replay it with other arguments, which are like those that it was captured with."""
        graph, inputs, timeline = self._graph, self._graph._inputs, stream.timeline
        replays = graph._sealed().replays
        if timeline.recording is None and replays.timeline is not None:
            replays.come_to(timeline, self._shares_state)
        for argument in self._arguments:
            if argument.follows:
                leaves[argument.leaf]._buffer.join_uses(timeline)
        memory = allocator_of(timeline)
        buffers = [memory.allocate(made.nbytes, timeline) for made in self._made]
        addresses = [leaves[argument.leaf]._address for argument in self._arguments]
        addresses += [buffer.address for buffer in buffers]
        words = self._words
        if words is None:
            self._put(addresses, leaves)
            self._find_words()
        else:
            inputs.patches = words.patches(addresses, leaves)
        with Noting():
            value = graph.replay(stream).value
            for argument in self._arguments:
                used = leaves[argument.leaf]._buffer
                if argument.writes:
                    used._record_write(timeline, value)
                else:
                    used._record_read(timeline, value)
        for buffer in buffers:
            if buffer._writer is timeline:
                buffer._written = value
            else:
                buffer._record_write(timeline, value)
        results = [self._array(result, leaves, buffers) for result in self._results]
        return results[0] if self._tree is _LEAF else _join(self._tree, iter(results))

    def _put(self, addresses: Sequence[int], leaves: Sequence[Any]) -> None:
        """Put addresses and numbers in the places that they have in the commands."""
        inputs = self._graph._inputs
        for leaf, array in zip(self._numbers, self._number_arrays, strict=True):
            inputs.set_number(array, np.asarray(leaves[leaf]).tobytes())
        for places, address in zip(self._places, addresses, strict=True):
            inputs.rebind(places, address)
        inputs.pack_words()

    def _find_words(self) -> None:
        """From now on, put them into the words that replays write; if the executor has all commands."""
        moves = [(n, place) for n, places in enumerate(self._places) for place in places]
        if all(run.buffer for _, (run, *_) in moves):
            numbers = list(zip(self._numbers, self._number_arrays, strict=True))
            self._words = _Words(self._graph._inputs.words(), moves, numbers)

    @staticmethod
    def _array(result: _Result, leaves: Sequence[Any], buffers: Sequence[Buffer]) -> Array:
        if result.array is not None:
            return result.array
        if result.form is None:
            argument: Array = leaves[result.argument]
            return argument
        if result.made >= 0:
            buffer = buffers[result.made]
            return array_of(buffer, buffer.address + result.distance, result.form)
        base = leaves[result.argument]
        return array_of(base._buffer, base._address + result.distance, result.form)


def _stand_ins(leaves: Sequence[Any]) -> list[Any]:
    """Arrays like those of a call, in memory of their own, and the numbers: the function is captured with them.

    What the function closes over may be an array of the call, or share memory with one, and other calls do not move that.
    """
    spans: dict[Buffer, tuple[int, int]] = {}
    arrays = [leaf for leaf in leaves if isinstance(leaf, Array)]
    for leaf in arrays:
        first, last = span(leaf)
        begin, end = spans.get(leaf._buffer, (first, last))
        spans[leaf._buffer] = min(begin, first), max(end, last)
    moved: dict[Buffer, tuple[Buffer, int]] = {}
    for leaf in arrays:
        if leaf._buffer not in moved:
            begin, end = spans[leaf._buffer]
            timeline, offset = current_stream(leaf.device).timeline, begin % GRANULE
            own = allocator_of(timeline).allocate(end - begin + offset, timeline)
            moved[leaf._buffer] = own, own.address + offset - begin
    made: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Array):
            buffer, distance = moved[leaf._buffer]
            made.append(array_of(buffer, leaf._address + distance, leaf._form))
        else:
            made.append(leaf)
    return made


def _is_array(value: Any) -> bool:
    return isinstance(value, Array)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Array | np.generic)


def _split(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Any:
    """A tree of tuples, lists and dictionaries without its leaves, which are listed."""
    if is_leaf(value):
        leaves.append(value)
        return _LEAF
    kind = type(value)
    if kind is dict:
        return {name: _split(one, leaves, is_leaf) for name, one in value.items()}
    if kind in (list, tuple) or isinstance(value, tuple):
        parts = [_split(one, leaves, is_leaf) for one in value]
        return kind(*parts) if hasattr(value, "_fields") else kind(parts)
    return value


def _join(tree: Any, leaves: Iterator[Any]) -> Any:
    """The tree with leaves."""
    if tree is _LEAF:
        return next(leaves)
    kind = type(tree)
    if kind is dict:
        return {name: _join(one, leaves) for name, one in tree.items()}
    if kind in (list, tuple) or isinstance(tree, tuple):
        parts = [_join(one, leaves) for one in tree]
        return kind(*parts) if hasattr(tree, "_fields") else kind(parts)
    return tree


def _frozen(tree: Any, name: str) -> Hashable:
    """What tells a tree from others.

    Raises:
        TypeError: something in it cannot be hashed.
    """
    kind = type(tree)
    if kind is dict:
        return kind, *[(key, _frozen(one, name)) for key, one in tree.items()]
    if kind in (list, tuple):
        return kind, *[_frozen(one, name) for one in tree]
    try:
        hash(tree)
    except TypeError:
        shown = arguments.shown(tree)
        expected = "examples and arguments are arrays, or constants that can be hashed"
        raise TypeError(f"graphed {name}: {expected}, not {shown}{arguments.advice(tree)}") from None
    if kind is float or kind is complex:
        return kind, repr(tree)  # there are two zeros, and NaN is no other than NaN
    return kind, tree


def _kinds(leaves: Sequence[Any]) -> Iterator[Hashable]:
    """What tells leaves from others that need another capture: layouts, dtypes, and which of them share memory."""
    first: dict[Buffer, tuple[int, int]] = {}
    for n, leaf in enumerate(leaves):
        if isinstance(leaf, Array):
            place, address = first.setdefault(leaf._buffer, (n, leaf._address))
            form = leaf._form
            yield form.device, form.shape, form.dtype, form.strides, form.writable, place, leaf._address - address
        else:
            yield leaf.dtype


def make_graphed(function: Callable[P, R], /, *examples: Any, most: int = 8) -> Graphed[P, R]:
    """A function that is called like ``function`` and captures it once for each kind of arguments: later calls are replays.

    Kinds are told apart by the shapes, strides and dtypes of arrays, by which of them share memory, by the dtypes of NumPy's
    numbers, and by the values of everything else, which are constants of the capture. Results are fresh arrays, or the
    arguments themselves, as the function returns them, in tuples, lists and dictionaries. Calls on several streams run one
    after the other, since they share the graph's memory. One that fails, or is withdrawn, is nothing to those behind it on
    other streams, unless the function writes to arrays that it closes over: then they would go on with half of what it wrote,
    and fail with it. Any thread may call. A forked child captures anew.

    The function runs when it is captured, and not for each call: what it prints, or counts, it does once for each kind. It is
    given arrays like those of the call, in memory of their own without values. So what it closes over stays what it is, whether
    a call has that as an argument or not.

    Args:
        function: what is captured; a plain function that submits, and waits for nothing; or a coroutine function that waits
            for nothing that is captured, such as a step of training. Calls of that are awaited, and wait for no replay.
        examples: arguments to capture it for at once; it does not run on the device. Not of a coroutine function, which is
            captured when it is first awaited.
        most: captures that are kept; of more, the one that was used longest ago is dropped.

    Raises:
        TypeError: it is no function, or examples of a coroutine function are given.
        ValueError: ``most`` is less than 1.

    Example:
        >>> import aiodev
        >>> from aiodev import kernels
        >>> @aiodev.make_graphed
        ... def normalized(x, shift):
        ...     centered = x - kernels.mean(x)
        ...     return centered / kernels.std(x) + shift
        >>> x = aiodev.asarray([1.0, 3.0], device="cpu")
        >>> normalized(x, 0).numpy_blocking(), normalized(2 * x, 0).numpy_blocking(), normalized.captures
        (array([-1.,  1.]), array([-1.,  1.]), 1)
    """
    arguments.function("make_graphed", "function", function)
    if examples and inspect.iscoroutinefunction(function):
        raise TypeError(f"make_graphed: {function!r} is captured when it is first awaited; leave the examples out")
    if arguments.integer("make_graphed", "most", most) < 1:
        raise ValueError(f"make_graphed: most={most}: expected 1 or more")
    made: Graphed[P, R] = Graphed(function, most)
    if examples:
        leaves: list[Any] = []
        tree, key, stream = made._kind_of(examples, {}, leaves)
        made._capture(tree, key, leaves, stream.device)
    return made
