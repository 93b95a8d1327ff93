"""Operations that are called again, with what each call makes anew: scratch, results, and launches in between."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev._kernel.dispatch import repeated
from aiodev._kernel.dispatch.repeated import SCRATCH, Step


@aiodev.kernel
def add_one(i: int, x: Any, out: Any) -> None:
    out[i] = x[i] + 1


@aiodev.kernel
def reverse(i: int, x: Any, kept: Any, places: Any, out: Any) -> None:
    for k in range(x.size):
        kept[k] = x[k]
        places[k] = x.size - 1 - k
    for k in range(x.size):
        out[k] = kept[places[k]]


@aiodev.kernel
def double_both(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = 2 * (x[i] + y[i])


@aiodev.kernel
def split(i: int, x: Any, halves: Any, signs: Any, scratch: Any) -> None:
    scratch[i] = x[i] / 2
    halves[i] = scratch[i]
    signs[i] = x[i] < 0


def on_device(host: Any, dtype: str = "f4") -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(host, dtype), device="cpu")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What is not compiled yet is launched, but not remembered."""

    async def compile() -> None:
        x, wide = aiodev.zeros(2, "f4", "cpu"), aiodev.zeros(2, "f8", "cpu")
        await reverse.compile(x, wide, aiodev.zeros(2, "i2", "cpu"), x)
        for x_, out in ((x, wide), (wide, x), (x, x), (wide, wide)):
            await add_one.compile(x_, out)
        await double_both.compile(wide, x, x)
        await split.compile(x, wide, aiodev.zeros(2, "?", "cpu"), wide)

    asyncio.run(compile())


def test_results_are_new_where_none_is_given() -> None:
    """Of the shape and dtype that the body made before, and each time another array."""
    ran = 0

    @aiodev.operation(reads=["x"], writes="out")
    def increased(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        nonlocal ran
        ran += 1
        out = call.out(x.shape, "f8")
        call.launch(add_one, x.size, x.reshape(-1), out.reshape(-1))
        return out

    results = []
    for shape in ((3,), (2, 2), (3,), (3,), (2, 2), (2, 2), (1, 3), (3,)):
        host = np.arange(np.prod(shape)).reshape(shape)
        results.append((increased(on_device(host)), host))
        given = aiodev.zeros(shape, "f8", "cpu")
        assert increased(on_device(host), given) is given
        results.append((given, host))
    for result, host in results:
        assert result.shape == host.shape and result.dtype == np.float64
        assert np.array_equal(result.numpy_blocking(), host + 1)
    assert len({result.address for result, _ in results}) == len(results)
    assert ran == len(results) - 6


def test_scratch_belongs_to_one_call() -> None:
    """Calls on streams that wait for something have theirs, also where arrays are of different types and lengths."""
    ran = 0

    @aiodev.operation(reads=["x"], writes="out")
    def reversed_(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        nonlocal ran
        ran += 1
        out = call.out(x.shape, x.dtype)
        call.launch(reverse, 1, x, call.scratch(x.size, "f8"), call.scratch(x.size, "i2"), out)
        return out

    for size in (3, 1001):
        for _ in range(2):
            assert np.array_equal(reversed_(on_device(np.arange(size))).numpy_blocking(), np.arange(size)[::-1])
        streams = [aiodev.Stream("cpu") for _ in range(4)]
        gates, hosts = [stream._gate() for stream in streams], [np.arange(size) + 10.0 * k for k in range(4)]
        arrays = [on_device(host) for host in hosts]
        found = []
        for stream, x in zip(streams, arrays, strict=True):
            stream.wait_stream(aiodev.current_stream("cpu"))
            with stream:
                found += [reversed_(x), reversed_(x, x)]
        for gate in reversed(gates):
            gate.open()
        for stream, host in zip(streams, hosts, strict=True):
            stream.synchronize_blocking()
            for result in found[:2]:
                assert np.array_equal(result.numpy_blocking(), host[::-1])
                assert result._buffer.block.size < 2 * result.nbytes + 512, "much scratch is kept with the result"
            del found[:2]
    assert ran == 2 * 4


def test_several_launches_are_repeated_as_one() -> None:
    """Scratch that several take is one; that of calls which wait on other streams is another."""
    ran = 0

    @aiodev.operation(reads=["x"], writes="out")
    def computed(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        nonlocal ran
        ran += 1
        out = call.out(x.shape, x.dtype)
        one, two = call.scratch(x.size, "f8"), call.scratch(x.size, "f4")
        call.launch(add_one, x.size, x, one)
        call.launch(add_one, (x.size,), one, two)
        call.launch(double_both, x.size, one, two, out)
        return out

    for size in (3, 2001):
        streams = [aiodev.Stream("cpu") for _ in range(3)]
        gates, hosts = [stream._gate() for stream in streams], [np.arange(size) + 10.0 * k for k in range(3)]
        arrays = [on_device(host) for host in hosts]
        for _ in range(2):
            assert np.array_equal(computed(arrays[0]).numpy_blocking(), 4 * hosts[0] + 6)
            computed(arrays[0], aiodev.empty_like(arrays[0]))
        results = []
        for stream, x in zip(streams, arrays, strict=True):
            stream.wait_stream(aiodev.current_stream("cpu"))
            with stream:
                results.append((computed(x), computed(x, aiodev.empty_like(x))))
        for gate in reversed(gates):
            gate.open()
        for stream, host, found in zip(streams, hosts, results, strict=True):
            stream.synchronize_blocking()
            for result in found:
                assert np.array_equal(result.numpy_blocking(), 4 * host + 6)
    assert ran == 2 * 4


def test_several_results() -> None:
    """In the order in which the body gives them, new for each call but for operands; each of its own dtype and shape."""
    ran = 0

    @aiodev.operation(reads=["x"])
    def parts(call: aiodev.Call, x: aiodev.Array) -> tuple[aiodev.Array, ...]:
        nonlocal ran
        ran += 1
        halves, signs = call.new(x.size, "f8"), call.new(x.size, "?")
        call.launch(split, x.size, x, halves, signs, call.scratch(x.size, "f8"))
        return signs, x, halves

    kept = []
    for k in range(5):
        host = np.arange(-3.0, 4.0) * (k + 1)
        x = on_device(host)
        signs, same, halves = parts(x)
        assert same is x
        kept.append((host, halves, signs))
    assert ran == 2
    for host, halves, signs in kept:
        assert np.array_equal(halves.numpy_blocking(), host / 2) and halves.dtype == np.float64
        assert np.array_equal(signs.numpy_blocking(), host < 0) and signs.dtype == np.bool_


def test_results_behind_one_that_is_given() -> None:
    """They are new whether or not the first one is."""

    @aiodev.operation(reads=["x"], writes="out")
    def both(call: aiodev.Call, x: aiodev.Array, *, out: aiodev.Array | None = None) -> tuple[aiodev.Array, aiodev.Array]:
        out, more = call.out(x.shape, "f8"), call.new(x.shape, "f8")
        call.launch(add_one, x.size, x, out)
        call.launch(add_one, x.size, out, more)
        return out, more

    for _ in range(4):
        x, given = on_device([1, 2]), aiodev.zeros(2, "f8", "cpu")
        for out in (given, None):
            one, two = both(x, out=out)
            assert (one is given) == (out is given)
            assert one.numpy_blocking().tolist() == [2, 3] and two.numpy_blocking().tolist() == [3, 4]
    assert len(both.operation.known) == 2


def test_a_view_of_a_result_is_made_by_the_body() -> None:
    """What is neither an operand nor a result is not remembered."""
    ran = 0

    @aiodev.operation(reads=["x"])
    def increased(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
        nonlocal ran
        ran += 1
        out = call.new(x.shape, "f8")
        call.launch(add_one, x.size, x, out)
        return out[::-1]

    for _ in range(4):
        assert increased(on_device([1, 2])).numpy_blocking().tolist() == [3, 2]
    assert ran == 4


@pytest.mark.parametrize("parts", [(8000, 3), (3, 8000)])
def test_scratch_is_as_large_as_the_largest_view_of_it(parts: tuple[int, int]) -> None:
    """Whichever launch takes it: from the first byte of its memory to where the view ends."""
    whole = aiodev.empty(9000, "f8", "cpu")
    steps = [Step(add_one, (1,), (whole[:count],), (SCRATCH,)) for count in parts]
    assert repeated._scratch_of(steps) == {whole._buffer: 8 * 8000}
    steps.append(Step(add_one, (1,), (whole[8990:],), (SCRATCH,)))
    assert repeated._scratch_of(steps) == {whole._buffer: 8 * 9000}
