"""Launches that are found again, with what each of them makes anew: scratch, results, and launches in between."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev._kernel.dispatch import launch_cache


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


def on_device(host: Any, dtype: str = "f4") -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(host, dtype), device="cpu")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What is not compiled yet is launched, but not remembered."""

    async def compile() -> None:
        x, wide = aiodev.zeros(2, "f4", "cpu"), aiodev.zeros(2, "f8", "cpu")
        await reverse.compile(x, wide, aiodev.zeros(2, "i2", "cpu"), x)
        await add_one.compile(x, wide)

    asyncio.run(compile())


def test_results_are_new_where_none_is_given() -> None:
    """Of the shape and dtype that the function made before, and each time another array."""
    launches, known = aiodev.LaunchCache(1), []

    def increased(x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        found = launches.repeat(None, x, out)
        known.append(found is not None)
        if found is not None:
            return found
        made = out is None
        out = aiodev.empty(x.shape, "f8", "cpu") if out is None else out
        launches.launch(None, (x,), out, add_one, x.size, (x.reshape(-1), out.reshape(-1)), (0, 1), made=made)
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
    assert known.count(True) == 6


def test_scratch_belongs_to_one_launch() -> None:
    """Launches on streams that wait for something have theirs, also where arrays are of different types and lengths."""
    launches, known = aiodev.LaunchCache(1), []

    def reversed_(x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        found = launches.repeat(None, x, out)
        known.append(found is not None)
        if found is not None:
            return found
        made = out is None
        out = aiodev.empty_like(x) if out is None else out
        scratch = aiodev.empty(x.size, "f8", "cpu"), aiodev.empty(x.size, "i2", "cpu")
        launches.launch(None, (x,), out, reverse, 1, (x, *scratch, out), (0, -1, -1, 1), made=made)
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
    assert known.count(True) == 2 * 6


@aiodev.kernel
def double_both(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = 2 * (x[i] + y[i])


def test_several_launches_are_remembered_as_one() -> None:
    """Scratch that several take is one; that of launches which wait on other streams is another."""
    launches, known = aiodev.LaunchCache(1), []

    def computed(x: aiodev.Array, out: aiodev.Array | None = None) -> aiodev.Array:
        found = launches.repeat("computed", x, out)
        known.append(found is not None)
        if found is not None:
            return found
        made = out is None
        out = aiodev.empty_like(x) if out is None else out
        one, two = aiodev.empty(x.size, "f8", "cpu"), aiodev.empty(x.size, "f4", "cpu")
        steps = [
            (add_one, x.size, (x, one), (0, -1)),
            (add_one, (x.size,), (one, two), (-1, -1)),
            (double_both, x.size, (one, two, out), (-1, -1, 1)),
        ]
        launches.launch_all("computed", (x,), out, steps, made=made)
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
    assert known.count(True) == 2 * 6


@aiodev.kernel
def split(i: int, x: Any, halves: Any, signs: Any, scratch: Any) -> None:
    scratch[i] = x[i] / 2
    halves[i] = scratch[i]
    signs[i] = x[i] < 0


def test_several_results() -> None:
    """Those after the first are new for each call, of their own dtype and shape."""
    launches, known = aiodev.LaunchCache(1), 0
    kept = []
    for k in range(5):
        host = np.arange(-3.0, 4.0) * (k + 1)
        x = on_device(host)
        found: Any = launches.repeat(None, x, None)
        known += found is not None
        if found is None:
            halves, signs = aiodev.empty(7, "f8", "cpu"), aiodev.empty(7, "?", "cpu")
            args = x, halves, signs, aiodev.empty(7, "f8", "cpu")
            launches.launch_all(None, (x,), halves, [(split, 7, args, (0, 1, 2, -1))], made=True, more=[signs])
            found = halves, signs
            aiodev.synchronize_blocking("cpu")
        kept.append((host, found))
    assert known == 3
    for host, (halves, signs) in kept:
        assert np.array_equal(halves.numpy_blocking(), host / 2) and halves.dtype == np.float64
        assert np.array_equal(signs.numpy_blocking(), host < 0) and signs.dtype == np.bool_


def test_scratch_with_gaps_is_not_remembered() -> None:
    """But launched."""
    launches, x, out = aiodev.LaunchCache(1), on_device([1, 2, 3]), on_device([0, 0, 0])
    for _ in range(3):
        args = x, aiodev.empty(6, "f8", "cpu")[::2], aiodev.empty(3, "i2", "cpu"), out
        launches.launch(None, (x,), out, reverse, 1, args, (0, -1, -1, 1), made=False)
    assert launches.repeat(None, x, out) is None
    assert out.numpy_blocking().tolist() == [3, 2, 1]


@pytest.mark.parametrize("parts", [(8000, 3), (3, 8000)])
def test_scratch_is_as_large_as_the_largest_view_of_it(parts: tuple[int, int]) -> None:
    """Whichever launch takes it: from the first byte of its memory to where the view ends."""
    whole = aiodev.empty(9000, "f8", "cpu")
    steps = [(add_one, 1, (whole[:count],), (-1,)) for count in parts]
    assert launch_cache._scratch_of(steps) == {whole._buffer: 8 * 8000}
    steps.append((add_one, 1, (whole[8990:],), (-1,)))
    assert launch_cache._scratch_of(steps) == {whole._buffer: 8 * 9000}
