"""Functions that are captured once for each kind of arguments."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import math
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs import search_path
from selection import some

import aiodev
from aiodev import kernels
from aiodev.kernels import random as draws
from aiodev.testing import Latch, SimulatedBackend


@aiodev.kernel
def add_into(i, x, y):
    y[i] += x[i]


def floats(*values: float, device: str) -> aiodev.Array:
    return aiodev.asarray(list(values), "float64", device)


class Scale:
    """Called as functions are."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: aiodev.Array) -> aiodev.Array:
        return x * self.by


class ScaleLater(Scale):
    async def __call__(self, x: aiodev.Array) -> aiodev.Array:  # type: ignore[override]
        return x * self.by


@pytest.mark.parametrize("make", [Scale, lambda by: functools.partial(Scale(by).__call__), ScaleLater])
async def test_whatever_is_called(device: str, make: Callable[[float], Any]) -> None:
    """Objects and partial functions, too; they have no name of their own."""
    graphed = aiodev.make_graphed(make(3.0))
    assert graphed.__name__ in repr(graphed)
    for number in range(3):
        found = graphed(floats(1, number, device=device))
        found = await found if make is ScaleLater else found
        assert (await found.numpy()).tolist() == [3, 3 * number]
    assert graphed.captures == 1


async def test_called_like_the_function(device: str) -> None:
    """Calls with other arrays of the same kind are replays with their values; results are the caller's."""
    seen = []

    def step(x: aiodev.Array, y: aiodev.Array) -> dict[str, Any]:
        seen.append(x.shape)
        total = x + y
        return {"sum": total, "parts": (kernels.sum(total), total[1:]), "name": "step"}

    graphed = aiodev.make_graphed(step)
    results = []
    for k in range(4):
        x, y = floats(1, 2, 3, device=device), floats(k, k, k, device=device)
        results.append(graphed(x, y=y))
        del x, y
    for k, result in enumerate(results):
        assert await result["sum"].tolist() == [1 + k, 2 + k, 3 + k]
        assert await result["parts"][0].item() == 6 + 3 * k
        assert await result["parts"][1].tolist() == [2 + k, 3 + k]
        assert result["parts"][1]._buffer is result["sum"]._buffer and result["name"] == "step"
    assert seen == [(3,)] and graphed.captures == 1 and graphed.__name__ == "step"


async def test_kinds_of_arguments(device: str) -> None:
    """Another shape, dtype, layout or constant is another capture; a number of NumPy's may have any value."""

    def scale(x: aiodev.Array, factor: Any, power: int = 1) -> aiodev.Array:
        for _ in range(power):
            x = x * factor
        return x

    graphed = aiodev.make_graphed(scale)
    x = np.arange(6.0).reshape(2, 3)
    calls: list[tuple[Any, ...]] = [
        (x, 2.0), (x, 2.0), (x, 3.0), (x.astype("f4"), 2.0), (x[:1], 2.0), (x, np.float64(2)), (x, np.float64(7)), (x, 2.0, 2),
    ]  # fmt: skip
    for host, *others in calls:
        array = aiodev.asarray(host, device=device)
        assert np.array_equal(await graphed(array, *others).numpy(), scale(host, *others))
    assert np.array_equal(await graphed(aiodev.asarray(x, device=device).T, 2.0).numpy(), x.T * 2)
    assert graphed.captures == 7


async def test_arguments_that_are_written(device: str) -> None:
    """What the function writes to is the argument of the call, and may be what it returns."""

    def accumulate(x: aiodev.Array, y: aiodev.Array) -> aiodev.Array:
        add_into[3](x, y)
        return y[::-1]

    graphed = aiodev.make_graphed(accumulate, floats(0, 0, 0, device=device), floats(0, 0, 0, device=device))
    with aiodev.device(device):
        for k in range(3):
            x, y = floats(1, 2, 3, device=device), floats(k, k, k, device=device)
            result = graphed(x, y)
            assert result._buffer is y._buffer
            assert await result.tolist() == [3 + k, 2 + k, 1 + k]
            assert await x.tolist() == [1, 2, 3]
    assert graphed.captures == 1


async def test_arguments_that_share_memory(device: str) -> None:
    """Calls in which arguments share memory are of another kind than those in which they do not."""
    graphed = aiodev.make_graphed(lambda x, y: x + y)
    with aiodev.device(device):
        for _ in range(2):
            x = floats(1, 2, 3, 4, device=device)
            assert await graphed(x[:2], x[2:]).tolist() == [4, 6]
            assert await graphed(x[:2], x[1:3]).tolist() == [3, 5]
            assert await graphed(x[:2], x[:2]).tolist() == [2, 4]
            assert await graphed(floats(1, 2, device=device), floats(5, 6, device=device)).tolist() == [6, 8]
    assert graphed.captures == 4


@pytest.mark.parametrize("seed", some(range(40), 4))
async def test_calls_of_any_kind(device: str, seed: int) -> None:
    """Arguments that share memory or not, numbers, constants, by position or by name, at random: as the function by itself.

    More kinds than are kept, on two streams, and what is written to belongs to some of the arguments.
    """
    chance = random.Random(seed)

    def step(x: Any, y: Any, factor: Any, writes: bool = False) -> dict[str, Any]:
        z = x * factor + y
        if writes and isinstance(y, np.ndarray):
            y += x
        elif writes:
            add_into[y.size](x, y)
        return {"z": z, "parts": [z[1:], x[::-1]], "y": y}

    graphed = aiodev.make_graphed(step, most=chance.choice((1, 2, 6)))
    hosts = [np.asarray([chance.randrange(100) for _ in range(12)], "f8") for _ in range(3)]
    arrays = [aiodev.asarray(host, device=device) for host in hosts]
    streams = [aiodev.Stream(device) for _ in range(2)]
    results: list[tuple[aiodev.Array, np.ndarray[Any, Any]]] = []
    last = aiodev.default_stream(device)
    for _ in range(30):
        count, x, y, by = chance.choice((3, 4)), chance.randrange(3), chance.randrange(3), chance.choice((1, 2))
        places = [slice(start, start + count * by, by) for start, by in ((chance.randrange(3), by), (chance.randrange(3), 1))]
        factor = chance.choice((2.0, 3.0, np.float64(chance.randrange(9)), None))
        (host_x, host_y), (array_x, array_y) = ((of[x][places[0]], of[y][places[1]]) for of in (hosts, arrays))
        host_factor, array_factor = factor, factor
        if factor is None:  # an array, which may be one of the others
            host_factor, array_factor = chance.choice(((host_y, array_y), (hosts[0][:count], arrays[0][:count])))
        named = {"writes": True} if x != y and chance.random() < 0.5 else {}
        stream = chance.choice(streams)
        stream.wait_stream(last)
        last = stream
        with stream:
            if chance.random() < 0.5:
                got = graphed(array_x, array_y, array_factor, **named)
            else:
                got = graphed(array_x, factor=array_factor, y=array_y, **named)
        expected = step(host_x, host_y, host_factor, **named)
        assert got["y"] is array_y
        results += [(got["z"], expected["z"]), (got["parts"][0], expected["parts"][0])]
        if chance.random() < 0.3:
            assert np.array_equal(await got["y"].numpy(), expected["y"])
            assert np.array_equal(await got["parts"][1].numpy(), expected["parts"][1])
    for result, wanted in results:
        assert result.dtype == wanted.dtype and np.array_equal(await result.numpy(), wanted)
    for array, host in zip(arrays, hosts, strict=True):
        assert np.array_equal(await array.numpy(), host)


def mixed(xp: Any, chance: random.Random, x: Any, y: Any) -> Any:
    """Steps at random, of parts of what each of them has just made, and dropped: results come to lie where those were."""
    length, h = x.shape[0], x
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(1, length)
        match chance.randrange(5):
            case 0:
                t = xp.concat([h, y])
                h = t[:length] * t[-length:]
            case 1:
                t = h * 2
                h = t[::-1] + y[:1]
            case 2:
                t = h - y
                h = xp.concat([t[at:], t[:at]])
            case 3:
                t = xp.tanh(h)
                h = t + t[at : at + 1]
            case _:
                t = h
                h = xp.sort(h) + y
        del t
    return h[: chance.randint(1, length)] * 1.5


@pytest.mark.parametrize("seed", some(range(200), 12))
async def test_results_lie_where_other_arrays_were(device: str, seed: int) -> None:
    """What was there before is the graph's own, however much larger it was."""
    length = random.Random(seed).choice([2, 5, 20, 64, 200])
    graphed = aiodev.make_graphed(lambda x, y: mixed(kernels, random.Random(seed), x, y))
    for call in range(3):
        x, y = np.random.default_rng([seed, call]).standard_normal((2, length))
        found = await graphed(aiodev.asarray(x, device=device), aiodev.asarray(y, device=device)).numpy()
        np.testing.assert_allclose(found, mixed(np, random.Random(seed), x, y), rtol=1e-12, atol=1e-12)
    assert graphed.captures == 1


async def test_an_argument_that_the_function_closes_over_too(device: str) -> None:
    """Whichever call comes first: another one has other arguments, and the same closure."""
    w = floats(10, 20, 30, device=device)
    plus = aiodev.make_graphed(lambda x: x + w)
    part = aiodev.make_graphed(lambda x: x + w[1:2])
    for x, y in ((w, floats(1, 2, 3, device=device)), (floats(4, 5, 6, device=device), w)):
        for given in (x, y):
            values = await given.numpy()
            assert await plus(given).tolist() == (values + [10, 20, 30]).tolist()
            assert await part(given).tolist() == (values + 20).tolist()

    def grow(x: aiodev.Array) -> aiodev.Array:
        w[:] = w + x
        return x * 2

    grown, other = aiodev.make_graphed(grow), floats(1, 1, 1, device=device)
    assert await grown(w).tolist() == [40, 80, 120]  # of what it is by then
    assert await grown(other).tolist() == [2, 2, 2]
    assert await w.tolist() == [21, 41, 61] and await other.tolist() == [1, 1, 1]


async def test_numbers_among_the_results(device: str) -> None:
    """They are the caller's, as other results, and a part of one is a part of it."""
    graphed = aiodev.make_graphed(lambda x, s: (x + s, s, s.reshape(1)))
    results = [graphed(floats(1, device=device), np.float64(k)) for k in range(3)]
    for k, (total, number, part) in enumerate(results):
        assert [await total.tolist(), await number.item(), await part.tolist()] == [[1 + k], k, [k]]
        assert number._buffer is part._buffer and number._address == part._address
    assert graphed.captures == 1


async def test_constants_that_are_alike(device: str) -> None:
    """There are two zeros, of which each is a constant of its own, and NaN is no other than NaN."""
    graphed = aiodev.make_graphed(lambda x, s: 1 / (x * s))
    for number in (0.0, -0.0, 0.0):
        assert await graphed(floats(1, device=device), number).tolist() == [math.copysign(math.inf, number)]
    for _ in range(3):
        assert math.isnan(await graphed(floats(1, device=device), float("nan")).item())
    assert graphed.captures == 3


async def test_closed_over_arrays_are_held(device: str) -> None:
    """Arrays that are no arguments, such as weights, are the same in every call, and live as long as the captures."""
    weights = floats(10, 20, 30, device=device)
    graphed = aiodev.make_graphed(lambda x, weights=None: kernels.multiply(x, held[0]))
    held = [weights]
    assert await graphed(floats(1, 2, 3, device=device)).tolist() == [10, 40, 90]
    buffer = weakref.ref(weights._buffer)
    held.clear()
    del weights
    assert await graphed(floats(1, 1, 1, device=device)).tolist() == [10, 20, 30]
    assert buffer() is not None


async def test_arguments_are_not_held(device: str) -> None:
    """Arrays of calls, the first one included, go when the caller drops them."""
    graphed = aiodev.make_graphed(lambda x: kernels.add(x, 1))
    for _ in range(2):
        x = floats(1, 2, 3, device=device)
        result = graphed(x)
        buffers = weakref.ref(x._buffer), weakref.ref(result._buffer)
        assert await result.tolist() == [2, 3, 4]
        del x, result
        gc.collect()
        assert [buffer() for buffer in buffers] == [None, None]


async def test_bound_on_captures(device: str) -> None:
    """Of more kinds than are kept, the one that was used longest ago is captured again."""
    graphed = aiodev.make_graphed(lambda x: kernels.add(x, 1), most=2)
    for count in (1, 2, 1, 3, 1, 2):
        assert await graphed(aiodev.zeros(count, device=device)).tolist() == [1] * count
    assert graphed.captures == 4


async def test_calls_on_several_streams(device: str) -> None:
    """Calls on another stream wait for the last one, and each gives its own result."""
    graphed = aiodev.make_graphed(lambda x: kernels.multiply(kernels.add(x, 1), 2))
    x = floats(1, 2, 3, device=device)
    await aiodev.synchronize(device)
    streams = [aiodev.Stream(device) for _ in range(3)]
    with Latch(streams[0]):
        results = []
        for k in range(9):
            with streams[k % 3]:
                results.append(graphed(x))
    for result in results:
        assert await result.tolist() == [4, 6, 8]


@aiodev.kernel
def checked_root(i, x, y):
    if x[i] < 0:
        raise ValueError("negative")
    y[i] = math.sqrt(x[i])  # which every device rounds alike


@aiodev.kernel
def add_checked(i, x, total):
    if x[i] < 0:
        raise ValueError("negative")
    total[i] += x[i]


def root(x: aiodev.Array) -> aiodev.Array:
    """One more than the square roots; what is negative fails."""
    y = aiodev.empty(x.shape, x.dtype, x.device)
    checked_root[x.size](x, y)
    return kernels.add(y, 1)


def wait_until_empty(stream: aiodev.Stream) -> None:
    """Without being told of a failure."""
    while stream.qsize():
        time.sleep(0.001)


async def test_a_call_that_fails_is_nothing_to_those_on_other_streams(device: str) -> None:
    """Nor is one that is withdrawn, whether it was over when the others were submitted, or not."""
    graphed = aiodev.make_graphed(root)
    good, bad = floats(4, 9, device=device), floats(4, -9, device=device)
    await aiodev.synchronize(device)
    assert await graphed(good).tolist() == [3, 4]
    streams = [aiodev.Stream(device) for _ in range(4)]
    for is_over in (False, True):
        with Latch(streams[0]) as latch:
            results = []
            for k, x in enumerate((bad, good, bad, good)):
                with streams[k]:
                    results.append(graphed(x))
                if is_over and k == 0:
                    latch.release()
                    wait_until_empty(streams[0])
            with streams[1]:
                behind = graphed(good)
            with streams[2]:
                lost = graphed(good)
        for result in (results[1], results[3], behind):
            assert await result.tolist() == [3, 4]
        for result in (results[0], results[2], lost):  # one of them for its place on the stream
            with pytest.raises(aiodev.AiodevError):
                await result.tolist()
        for stream in streams:
            with contextlib.suppress(aiodev.AiodevError):
                await stream.synchronize()
    with Latch(streams[0]):
        with streams[0]:
            withdrawn = graphed(good)
        with streams[1]:
            result = graphed(good)
        assert streams[0].cancel() > 0
    assert await result.tolist() == [3, 4]
    with pytest.raises(aiodev.WithdrawnError):
        await withdrawn.tolist()


@pytest.mark.parametrize("seed", some(range(20), 2))
async def test_requests_have_their_own_outcome(device: str, seed: int) -> None:
    """Each on a stream of its own, some with bad input, some withdrawn before they began, at random: as if each were alone."""
    graphed, chance = aiodev.make_graphed(root), random.Random(seed)
    assert await graphed(floats(4, 9, device=device)).tolist() == [3, 4]
    for _ in range(4):
        results: list[tuple[aiodev.Array, type[Exception] | None]] = []
        held = aiodev.Stream(device)
        with Latch(held):
            for number in range(chance.randrange(2, 25)):
                stream = held if number == 0 else aiodev.Stream(device)
                with stream:
                    is_bad = chance.random() < 0.3
                    x = floats(4, -9 if is_bad else 9, device=device)
                    result = graphed(x)
                error: type[Exception] | None = aiodev.KernelError if is_bad else None
                if number and chance.random() < 0.2 and stream.cancel():
                    error = aiodev.WithdrawnError
                results.append((result, error))
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
        for result, error in chance.sample(results, len(results)):
            if error is None:
                assert await result.tolist() == [3, 4]
            else:
                with pytest.raises(error):
                    await result.tolist()


async def test_calls_that_share_state_fail_together(device: str) -> None:
    """Where a function writes to what it closes over, a call behind one that fails would go on with half of that."""
    total = aiodev.zeros(2, device=device)

    def add(x: aiodev.Array) -> aiodev.Array:
        add_checked[2](x, total)
        return kernels.add(total, 0)

    graphed = aiodev.make_graphed(add)
    good, bad = floats(4, 9, device=device), floats(4, -9, device=device)
    await aiodev.synchronize(device)
    assert await graphed(good).tolist() == [4, 9]
    streams = [aiodev.Stream(device) for _ in range(2)]
    with Latch(streams[0]):
        with streams[0]:
            first = graphed(bad)
        with streams[1]:
            second = graphed(good)
    for result in (first, second):
        with pytest.raises(aiodev.AiodevError):
            await result.tolist()


async def test_draws(device: str) -> None:
    """Calls draw what the function would."""

    def draw(n: int) -> aiodev.Array:
        return draws.random(n, device=device)

    aiodev.manual_seed(9)
    expected = [await draw(5).tolist() for _ in range(4)]
    aiodev.manual_seed(9)
    with aiodev.device(device):
        graphed = aiodev.make_graphed(draw)
        assert [await graphed(5).tolist() for _ in range(4)] == expected


class Pair(NamedTuple):
    first: Any
    second: Any


async def test_containers(device: str) -> None:
    """Arguments and results may be in tuples, named tuples, lists and dictionaries."""

    def swap(pair: Pair, more: dict[str, list[Any]]) -> Any:
        return Pair(pair.second + 1, [more["xs"][0] + pair.first, more["k"]])

    graphed = aiodev.make_graphed(swap)
    for k in (1, 2):
        x, y = floats(k, device=device), floats(2 * k, device=device)
        found = graphed(Pair(x, y), {"xs": [y], "k": "name"})
        assert isinstance(found, Pair) and await found.first.tolist() == [2 * k + 1]
        assert await found.second[0].tolist() == [3 * k] and found.second[1] == "name"
    assert graphed.captures == 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: aiodev.make_graphed(3), TypeError, "make_graphed: argument function"),
        (lambda: aiodev.make_graphed(asyncio.sleep, 0.0), TypeError, "when it is first awaited"),
        (lambda: aiodev.make_graphed(lambda: asyncio.sleep(0))(), TypeError, "makes coroutines"),
        (lambda: aiodev.make_graphed(abs, most=0), ValueError, "most=0: expected 1 or more"),
        (lambda: aiodev.make_graphed(lambda x: x)(bytearray()), TypeError, "arrays, or constants that can be hashed"),
        (lambda: aiodev.make_graphed(float)(aiodev.ones((), device="cpu")), aiodev.CaptureError, "cannot"),
    ],
)
def test_refusals(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    """What cannot be captured is refused, and leaves nothing captured."""
    with aiodev.device("cpu"), pytest.raises(error, match=message):
        make()
    assert aiodev.current_stream("cpu").timeline.recording is None


@pytest.mark.filterwarnings("ignore::aiodev.SyncWarning")  # memory is the started device's, and a loop runs
async def test_before_the_device_has_started(register: Any) -> None:
    """A function is captured and called while its device starts; nothing waits for that."""

    class Fresh(SimulatedBackend):
        def start(self) -> None:
            begun.wait(10)
            super().start()

    begun = threading.Event()
    name = register(Fresh)
    with aiodev.device(name):
        graphed = aiodev.make_graphed(lambda x: kernels.add(x, x))
        stream = aiodev.current_stream()
        assert stream.timeline.deferred
        begun.set()
        assert await graphed(aiodev.ones(3)).tolist() == [2, 2, 2]
        assert await graphed(aiodev.zeros(3)).tolist() == [0, 0, 0]


#: The first use of the device is by requests, of which every other one is bad.
REQUESTS = """
import asyncio, math
import aiodev

@aiodev.kernel
def checked_root(i, x, y):
    if x[i] < 0:
        raise ValueError("negative")
    y[i] = math.sqrt(x[i])

@aiodev.make_graphed
def root(x):
    y = aiodev.empty_like(x)
    checked_root[x.size](x, y)
    return y

async def main():
    results = []
    for number in range(4):
        with aiodev.Stream("cpu") as stream:
            assert stream.timeline.deferred or number, "the device has started"
            results.append(root(aiodev.asarray([4.0, -9.0 if number % 2 else 9.0])))
    for number, result in enumerate(results):
        try:
            print(await result.tolist())
        except aiodev.AiodevError as error:
            print(type(error).__name__)

asyncio.run(main())
"""


def test_requests_that_come_before_the_device_has_started() -> None:
    """They have their own outcomes, too, though their streams have no queues yet."""
    environment = {**os.environ, "PYTHONPATH": search_path()}
    done = subprocess.run([sys.executable, "-c", REQUESTS], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == 2 * ["[2.0, 3.0]", "KernelError"], done.stderr


def give_way(frame: Any, event: str, argument: object) -> None:
    """Called at each call of a function: have another thread go on there, if it is one of the graphs'."""
    if event == "call" and f"{os.sep}_graph{os.sep}" in frame.f_code.co_filename:
        time.sleep(0)


def in_threads(count: int, target: Callable[[int], object]) -> list[Any]:
    """What a function gives for each number, in threads that give way to each other wherever they can."""

    def begin(number: int) -> object:
        sys.setprofile(give_way)
        try:
            return target(number)
        finally:
            sys.setprofile(None)

    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return list(threads.map(begin, range(count)))


def test_calls_from_several_threads(device: str) -> None:
    """Each call has its own arguments and results, whoever calls meanwhile, or drops the capture that it uses."""

    def doubled(*arrays: aiodev.Array) -> list[aiodev.Array]:
        return [array * 2 for array in arrays]

    graphed = aiodev.make_graphed(doubled, most=1)

    def call(thread: int) -> bool:
        found = []
        with aiodev.Stream(device):
            for n in range(40):
                value = 100.0 * thread + n
                results = graphed(*[aiodev.full(1 + n // 30, value) for _ in range(6)])
                found += [float(result.numpy_blocking()[0]) == 2 * value for result in results]
        return all(found)

    assert all(in_threads(3, call))


def test_coroutine_functions_are_captured_by_one_task_at_a_time(device: str) -> None:
    """Tasks of several loops, one of which is cancelled while it waits for its turn."""
    capturing = 0

    @aiodev.make_graphed
    async def scaled(x: aiodev.Array, factor: float) -> aiodev.Array:
        nonlocal capturing
        capturing += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return x * (factor if capturing == 1 else np.nan)
        finally:
            capturing -= 1

    async def run(number: int) -> bool:
        async with aiodev.Stream(device):
            given_up = asyncio.create_task(scaled(aiodev.ones(1), -1.0 - number))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            results = [await scaled(aiodev.full(2, 3.0), factor) for factor in (2.0, 5.0, 2.0)]
            return [await result.tolist() for result in results] == [[6, 6], [15, 15], [6, 6]]

    assert in_threads(3, lambda number: asyncio.run(asyncio.wait_for(run(number), 30))) == [True, True, True]
