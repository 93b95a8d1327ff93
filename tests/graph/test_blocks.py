"""Loops and branches on values in device memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.kernels import random as numbers
from aiodev.testing import Latch

pytestmark = pytest.mark.parametrize("device", ["cpu", "sim"], indirect=True)

SIZE = 8


@aiodev.kernel
def add_one(i, x):
    x[i] += 1


@aiodev.kernel
def count_down(i, left):
    left[i] -= 1


@aiodev.kernel
def unless(i, stop, goes_on):
    goes_on[i] = 1 - stop[i]


@aiodev.kernel
def mix(i, a, x, y):
    y[i] = (3 * y[i] + a * x[i] + i) % 10007


@aiodev.kernel
def is_odd(i, x, out):
    out[i] = x[0] % 2


@aiodev.kernel
def low_bits(i, x, out):
    out[i] = x[0] % 3


@aiodev.kernel
def refuse_at(i, at, left):
    if left[i] == at[()]:
        raise ValueError("refused")


async def ready(device: str, *values: Any) -> list[aiodev.Array]:
    arrays = [aiodev.asarray(value, device=device) for value in values]
    await aiodev.synchronize(device)
    return arrays


async def test_a_loop_runs_while_its_condition_holds(device: str) -> None:
    """A loop runs as often as the device says, not at all included; each replay anew, with the numbers of its own."""
    left, x = await ready(device, np.zeros(1, np.int32), np.zeros(4, np.int64))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        aiodev.current_stream(device).copy(left, graph.input("rounds", 0, "int32").reshape(1))
        with graph.while_(left):
            add_one[4](x)
            count_down[1](left)
    assert len(graph) == 3
    total = 0
    for rounds in (0, 1, 7, 0, 100):
        graph.update(rounds=rounds)
        await graph.replay()
        total += rounds
        assert await x.tolist() == [total] * 4


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64"])
async def test_conditions_are_elements(device: str, dtype: str) -> None:
    """A condition is one element, whatever its neighbours are, of any type of integers."""
    flags, x = await ready(device, np.array([1, 0, 1, 1, 0], dtype), np.zeros(5, np.int64))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        for k in range(5):
            with graph.if_(flags[k]):
                add_one[1](x[k:])
    await graph.replay()
    assert await x.tolist() == [1, 0, 1, 1, 0]


async def test_memory_of_a_loop(device: str) -> None:
    """Temporaries of a round are made anew in each; what was made before the loop keeps its memory while it runs."""
    left, x = await ready(device, np.full(1, 5), np.arange(4.0))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        before = kernels.multiply(x, 10)
        total = aiodev.zeros(4, device=device)
        with graph.while_(left):
            step = kernels.add(before, 1)
            before, kept = step, [before]  # the name is of this round alone
            kept.clear()
            other = kernels.multiply(step, 2)
            total[:] = total + other
            del step, other
            count_down[1](left)
    await graph.replay()
    assert await total.tolist() == [5 * 2 * (10 * value + 1) for value in range(4)]


async def test_failure_in_a_loop(device: str) -> None:
    """A round that fails ends the replay; the next one begins the loop anew."""
    stream = aiodev.Stream(device)
    left, x = await ready(device, np.full(1, 5), np.zeros(1, np.int64))
    async with aiodev.capture(stream) as graph:
        at = graph.input("at", 3)
        with graph.while_(left):
            refuse_at[1](at, left)
            add_one[1](x)
            count_down[1](left)
        add_one[1](x)
    with pytest.raises(aiodev.KernelError, match="refuse_at") as caught:
        await graph.replay(stream)
    assert caught.value.node == 1
    host = np.zeros(1, np.int64)
    await stream.copy(host, x)
    assert host.tolist() == [2]
    graph.update(at=-1)
    await graph.replay(stream)
    await stream.copy(host, x)
    assert host.tolist() == [6]


async def test_a_loop_gives_way(device: str) -> None:
    """A loop that goes on until another stream ends it does not keep that, or the event loop, from running."""
    stream, other = aiodev.Stream(device), aiodev.Stream(device, priority=-1)
    goes_on, x = await ready(device, np.ones(1, np.int64), np.zeros(1, np.int64))
    stop, one = await ready(device, np.zeros(1, np.int64), np.ones(1, np.int64))
    async with aiodev.capture(stream) as graph:
        with graph.while_(goes_on):
            add_one[1](x)
            unless[1](stop, goes_on)
    done = graph.replay(stream)
    await asyncio.sleep(0)
    assert not done.query()
    other.copy(stop, one)
    await done
    host = np.zeros(1, np.int64)
    await stream.copy(host, x)
    assert host[0] >= 0


async def test_streams_fork_behind_a_block(device: str) -> None:
    """A point within a block, for who waits for it, is the end of the block."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    left, x, y = await ready(device, np.full(1, 3), np.zeros(1, np.int64), np.zeros(1, np.int64))
    async with aiodev.capture(first) as graph:
        with graph.while_(left):
            add_one[1](x)
            event = first.record_event()
            count_down[1](left)
        second.wait_event(event)
        second.copy(y, x)
        first.wait_stream(second)
    await graph.replay()
    assert await y.tolist() == [3]


async def test_calls_beside_blocks(device: str) -> None:
    """Calls of the host before and behind a block are captured; the block stays whole."""
    seen: list[str] = []
    (left,) = await ready(device, np.full(1, 3))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        stream = aiodev.current_stream(device)
        stream.call(seen.append, "before")
        with graph.while_(left):
            count_down[1](left)
        stream.call(seen.append, "behind")
    await graph.replay()
    assert seen == ["before", "behind"] and await left.tolist() == [0]
    assert [line.split()[2] for line in str(graph).splitlines()[3:6]] == ["while", "count_down", "end"]


REFUSALS: dict[str, Callable[[aiodev.Stream, aiodev.Array], object]] = {
    "a call": lambda stream, x: stream.call(int),
    "a fork": lambda stream, x: aiodev.Stream(stream.device).wait_stream(stream),
    "a wait": lambda stream, x: stream.synchronize_blocking(),
}


@pytest.mark.filterwarnings("ignore::aiodev.SyncWarning")
@pytest.mark.parametrize("what", REFUSALS)
async def test_refused_in_a_block(device: str, what: str) -> None:
    """What the host has a part in, and other streams, do not go into a block; the capture goes on without."""
    stream = aiodev.Stream(device)
    left, x = await ready(device, np.full(1, 3), np.zeros(1, np.int64))
    async with aiodev.capture(stream) as graph:
        with graph.while_(left):
            with pytest.raises(aiodev.CaptureError):
                REFUSALS[what](stream, x)
            add_one[1](x)
            count_down[1](left)
    await graph.replay(stream)
    host = np.zeros(1, np.int64)
    await stream.copy(host, x)
    assert host.tolist() == [3]


def refuse(stream: aiodev.Stream) -> None:
    stream.call(int)


def fail(stream: aiodev.Stream) -> None:
    raise KeyError("of the program")


@pytest.mark.parametrize("what", [refuse, fail], ids=lambda what: what.__name__)
@pytest.mark.parametrize("label", ["while", "if"])
async def test_a_block_that_an_exception_leaves_fails_the_capture(device: str, label: str, what: Any) -> None:
    """An exception that leaves a block, and is caught before the capture ends, is the cause of that end's error."""
    stream = aiodev.Stream(device)
    left, x = await ready(device, np.full(1, 3), np.zeros(1, np.int64))
    caught: list[BaseException] = []
    with pytest.raises(aiodev.CaptureError, match=rf"capture at .*the block of {label}_ at .*left by an exception") as failed:
        async with aiodev.capture(stream) as graph:
            try:
                with graph.while_(left) if label == "while" else graph.if_(left):
                    add_one[1](x)
                    what(stream)
                    count_down[1](left)
            except (aiodev.CaptureError, KeyError) as error:
                caught.append(error)
            add_one[1](x)
    assert failed.value.__cause__ is caught[0] and str(caught[0]) in str(failed.value)
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay(stream)
    await add_one[1, stream](x)
    assert await x.tolist() == [1]


@pytest.mark.parametrize("outer", ["while", "if"])
@pytest.mark.parametrize("inner", ["while", "if"])
async def test_an_exception_that_leaves_an_inner_block(device: str, outer: str, inner: str) -> None:
    """The capture fails also where the exception is caught in an outer block, which is then left as any."""
    left, x = await ready(device, np.full(2, 3), np.zeros(4, np.int64))
    generator = aiodev.Generator(device)
    with pytest.raises(aiodev.CaptureError, match=f"the block of {inner}_ at .*: KeyError"):
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            with graph.while_(left[:1]) if outer == "while" else graph.if_(left[:1]):
                with contextlib.suppress(KeyError), graph.while_(left[1:]) if inner == "while" else graph.if_(left[1:]):
                    kernels.add(numbers.random(4, device=device, generator=generator), x)
                    raise KeyError
                kernels.add(numbers.random(4, device=device, generator=generator), x)
                with graph.if_(left[1:]):
                    add_one[1](x)
            numbers.random(4, device=device, generator=generator)
    assert generator.get_offset() == 0


async def test_a_block_that_is_not_left(device: str) -> None:
    """A capture that ends within a block fails; the block's own end has nothing to say then."""
    left, x = await ready(device, np.full(1, 3), np.zeros(1, np.int64))
    with pytest.raises(aiodev.CaptureError, match="the block of while_ at .* was not left"), contextlib.ExitStack() as stack:
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            stack.enter_context(graph.while_(left))
            count_down[1](left)
    assert await x.tolist() == [0]


async def test_an_exception_that_leaves_the_capture_is_not_replaced(device: str) -> None:
    """What leaves a block and the capture arrives as it was raised, and nothing is held of it."""
    (left,) = await ready(device, np.full(1, 3))
    with pytest.raises(KeyError) as caught:
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            with graph.while_(left):
                raise KeyError
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def _view(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    count_down[1](left.reshape(1, 1)[0])


def _copy(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    aiodev.current_stream(left.device).copy(left, other)


def _host_copy(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    aiodev.current_stream(left.device).copy(left, np.zeros(1, np.int64))


def _fill(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    left[:] = 0


def _function(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    kernels.minimum(other, 0, out=left)


def _draw(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    numbers.integers(0, 1, dtype="int64", out=left)


@aiodev.kernel
def write_at(i, address, size, memset):
    aiodev.lang.call_native(memset, address, 0, size)


def _by_address(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
    write_at[1](left.address, left.nbytes, memset)


def _nested(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    with graph.if_(left):
        count_down[1](left)


def _nested_loop(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    with graph.while_(other):
        count_down[1](other)
        count_down[1](left)
    other[:] = 1


@pytest.mark.parametrize(
    "write",
    [_view, _copy, _host_copy, _fill, _function, _draw, _by_address, _nested, _nested_loop],
    ids=lambda write: write.__name__,
)
async def test_loops_whose_condition_is_written(device: str, write: Any) -> None:
    """Whatever writes the condition, in a block within the loop, too, the loop is captured, and ends."""
    if write is _by_address and device != "cpu":
        pytest.skip("native functions are called on the CPU")
    stream = aiodev.Stream(device)
    left, other, x = await ready(device, np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))
    async with aiodev.capture(stream) as graph:
        left[:], other[:] = 1, int(write is _nested_loop)
        with graph.while_(left):
            write(left, other, graph)
            add_one[1](x)
    await graph.replay(stream)
    assert await x.tolist() == [1]


def _nothing(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    pass


def _read(left: aiodev.Array, other: aiodev.Array, graph: aiodev.Graph) -> None:
    kernels.add(left, 1, out=other)
    aiodev.current_stream(left.device).copy(other, left)
    with graph.if_(left):
        add_one[1](other)


@pytest.mark.parametrize("body", [_nothing, _read], ids=lambda body: body.__name__)
async def test_loops_whose_condition_nothing_writes(device: str, body: Any) -> None:
    """A loop that could not end is refused at the end of its block, by name; what was written before it is no part of it."""
    left, other = await ready(device, np.ones(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(aiodev.CaptureError, match=r"^Graph.while_ at .*condition: no operation .* writes it") as caught:
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            count_down[1](left)
            with graph.if_(left):
                body(left, other, graph)
            with graph.while_(left):
                body(left, other, graph)
    assert caught.value.call == "Graph.while_" and (caught.value.place or "").startswith(__file__)
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay()


async def test_an_inner_loop_whose_condition_the_outer_one_writes(device: str) -> None:
    """It is the loop's own block that must write its condition; and the refusal, if it is caught, fails the capture."""
    outer, inner = await ready(device, np.ones(1, np.int64), np.ones(1, np.int64))
    with pytest.raises(aiodev.CaptureError, match="capture at .*the block of while_ at .*no operation of the block writes it"):
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            with graph.while_(outer):
                with contextlib.suppress(aiodev.CaptureError), graph.while_(inner):
                    count_down[1](outer)
                count_down[1](inner)


async def test_conditions_that_are_refused(device: str) -> None:
    """A condition is one integer or truth value in memory that stays where it is."""
    x, several, inputs = await ready(device, np.zeros(1), np.ones(2, np.int64), np.ones(1, np.int64))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        for condition, error in ((x, TypeError), (3, TypeError), (several, ValueError), (graph.input("n", inputs), ValueError)):
            with pytest.raises(error, match="condition"), graph.if_(condition):  # type: ignore[arg-type]
                pass
    with pytest.raises(aiodev.CaptureError, match="captured with the graph"), graph.if_(several[:1]):
        pass


@pytest.mark.parametrize("seed", range(10))
async def test_random_blocks(device: str, seed: int) -> None:
    """Nested loops and branches do what the same program does in Python."""
    chance = random.Random(seed)
    stream = aiodev.Stream(device)
    start = [np.array([chance.randrange(100) for _ in range(SIZE)]) for _ in range(3)]
    arrays = await ready(device, *start)
    flags = await ready(device, *[np.zeros(1, np.int64) for _ in range(12)])
    names = iter(range(len(flags)))
    Step = Callable[[list[Any]], None]

    def body(graph: aiodev.Graph, depth: int) -> list[Step]:
        steps: list[Step] = []
        for _ in range(chance.randrange(1, 5)):
            kind = chance.choice(["mix", "mix", "if", "while"]) if depth < 3 else "mix"
            name = next(names, None) if kind != "mix" else None
            x, y = chance.sample(range(3), 2)
            if name is None:
                a = chance.randrange(1, 9)
                mix[SIZE](a, arrays[x], arrays[y])
                steps.append(lambda own, a=a, x=x, y=y: _mix(own, a, x, y))
                continue
            flag = flags[name]
            if kind == "if":
                is_odd[1](arrays[x], flag)
                with graph.if_(flag):
                    inner = body(graph, depth + 1)
                steps.append(lambda own, x=x, inner=inner: own[x][0] % 2 and _run(inner, own))
            else:
                low_bits[1](arrays[x], flag)
                with graph.while_(flag):
                    inner = body(graph, depth + 1)
                    count_down[1](flag)
                steps.append(lambda own, x=x, inner=inner: [_run(inner, own) for _ in range(own[x][0] % 3)])
        return steps

    async with aiodev.capture(stream) as graph:
        steps = body(graph, 0)
    own = [values.copy() for values in start]
    with Latch(stream):
        for _ in range(3):
            graph.replay(stream)
            _run(steps, own)
    hosts = [np.zeros(SIZE, np.int64) for _ in arrays]
    for host, array in zip(hosts, arrays, strict=True):
        stream.copy(host, array)
    await stream.synchronize()
    assert [host.tolist() for host in hosts] == [values.tolist() for values in own]


def _mix(own: list[Any], a: int, x: int, y: int) -> None:
    own[y][:] = (3 * own[y] + a * own[x] + np.arange(SIZE)) % 10007


def _run(steps: list[Callable[[list[Any]], Any]], own: list[Any]) -> None:
    for step in steps:
        step(own)
