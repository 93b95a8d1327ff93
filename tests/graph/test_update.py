"""Inputs: what changes between replays."""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from captured import double, ready

import aiodev
from aiodev import kernels
from aiodev._graph.input import number_of, packer_of
from aiodev.testing import Latch


async def test_update_outlives_a_replay_that_does_not_run(device: str) -> None:
    """What a replay that was withdrawn would have seen, the next one sees."""
    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)

    @aiodev.kernel
    def multiply(i, factor, x):
        x[i] *= factor[()]

    async with aiodev.capture(stream) as graph:
        multiply[4](graph.input("factor", 2.0), x)
    with Latch(stream):
        graph.update(factor=5.0)
        assert graph.replay(stream).cancel()
    done = graph.replay(stream)
    await done
    assert await x.tolist() == [5] * 4


async def test_numbers_are_updated(device: str) -> None:
    """A number is what it was made of until it is updated, and a replay that was submitted before keeps the old one."""

    @aiodev.kernel
    def add(i, factor, shift, x):
        x[i] = factor[()] * x[i] + shift[()]

    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        add[4](graph.input("factor", 2.0), graph.input("shift", 3, "int32"), x)
    with Latch(stream):
        graph.replay(stream)
        graph.update(factor=10.0)
        done = graph.replay(stream)
        graph.update(shift=np.int8(-1), factor=0)
    await done
    assert await x.tolist() == [53] * 4
    await graph.replay(stream)
    assert await x.tolist() == [-1] * 4


async def test_arrays_are_updated(device: str) -> None:
    """Another array takes the place of an input, in views of it as well, from the next replay on."""
    x, y = [await ready(aiodev.asarray(np.arange(6.0) + k, device=device)) for k in (0, 10)]
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        graph.input("x", x)
        out = kernels.add(x[::2], x[1::2])
        double[2](x[4:])
        aiodev.current_stream(device).copy(x[:1], x[5:])
    with Latch(stream):
        graph.replay(stream)
        graph.update(x=y)
        done = graph.replay(stream)
        del y
    await done
    assert await out.tolist() == [21, 25, 29]
    assert await x.tolist() == [10, 1, 2, 3, 8, 10]
    graph.update(x=x)
    await graph.replay(stream)
    assert await out.tolist() == [11, 5, 18]


async def test_only_an_input_and_its_parts_are_replaced(device: str) -> None:
    """Not what lies between its elements, as another column of a matrix does, which may be an input of its own."""
    m, other = [await ready(aiodev.asarray(np.arange(6.0).reshape(3, 2) * k, device=device)) for k in (1, 10)]
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        x = graph.input("x", m[:, 0])
        m[:, 1] = x * 2
        tail = x[1:] + 0
    graph.update(x=other[:, 0])
    await graph.replay()
    assert await m.tolist() == [[0, 0], [2, 40], [4, 80]] and await tail.tolist() == [20, 40]
    assert await other.tolist() == [[0, 10], [20, 30], [40, 50]]
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        x, y = graph.input("x", m[:, 0]), graph.input("y", m[:, 1])
        y += x
    graph.update(y=other[:, 1])
    await graph.replay()
    assert await other.tolist() == [[0, 10], [20, 32], [40, 54]] and await m.tolist() == [[0, 0], [2, 40], [4, 80]]


async def test_an_input_that_is_used_in_part_by_another_array_has_no_replacement(device: str) -> None:
    """As it was captured the graph runs."""
    base = await ready(aiodev.asarray(np.arange(6.0), device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        x = graph.input("x", base[:4])
        base[2:6] *= 2
        total = kernels.sum(x)
    await graph.replay()
    assert await total.item() == 0 + 1 + 4 + 6
    with pytest.raises(ValueError, match="update: x: the graph uses its memory otherwise, too"):
        graph.update(x=aiodev.zeros(4, device=device))


async def test_inputs_that_would_share_memory(device: str) -> None:
    """Of whatever buffers, and in one call; unless both are only read. Parts that lie apart may be of one buffer."""
    base, fresh = [await ready(aiodev.asarray(np.arange(8.0), device=device)) for _ in range(2)]
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        a, b = graph.input("a", base[:2]), graph.input("b", base[4:6])
        b += a
        base[7:] += 1
    for placed in ({"a": base[:2], "b": base[1:3]}, {"a": base[5:7]}, {"a": fresh[:2], "b": fresh[1:3]}):
        with pytest.raises(ValueError, match="it shares memory with input"):
            graph.update(**placed)
    for name in ("a", "b"):
        with pytest.raises(ValueError, match=f"update: {name}: the graph uses elements of that array otherwise"):
            graph.update(**{name: base[6:8]})
    graph.update(a=base[2:4], b=base[:2])
    await graph.replay()
    assert await base.tolist() == [2, 4, 2, 3, 4, 5, 6, 8]
    graph.update(a=fresh[:2], b=fresh[2:4])
    await graph.replay()
    assert await fresh.tolist() == [0, 1, 2, 4, 4, 5, 6, 7]
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        total = graph.input("a", base[:2]) + graph.input("b", base[4:6])
    graph.update(a=fresh[:2], b=fresh[1:3])
    await graph.replay()
    assert await total.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [("int8", np.int64(300), OverflowError), ("uint8", np.int8(-1), OverflowError), ("float64", np.complex128(1j), TypeError),
     ("int64", np.uint64(2**64 - 1), OverflowError), ("float32", 1j, TypeError),
     ("int64", 2.5, ValueError), ("uint8", np.float32(-0.5), ValueError), ("int32", float("nan"), ValueError),
     ("int64", float("inf"), OverflowError), ("int8", np.float32(70000.0), OverflowError),
     ("int8", np.float64(1e300), OverflowError), ("complex64", 10**39, OverflowError),
     ("float32", 1e300, OverflowError), ("float32", -3.5e38, OverflowError), ("float32", np.float64(1e39), OverflowError),
     ("float16", 70000.0, OverflowError), ("float16", 65520, OverflowError), ("bfloat16", 3.4e38, OverflowError),
     pytest.param("bfloat16", 10**400, OverflowError, id="huge"), ("float64", np.complex64(1j), TypeError),
     ("complex64", 1e300, OverflowError), ("complex64", complex(float("inf"), -1e300), OverflowError)],
)  # fmt: skip
async def test_numbers_that_do_not_fit(dtype: str, value: Any, error: type[Exception]) -> None:
    """They are refused, as Python's are, and neither wrapped nor cut off, nor made infinite; where inputs are named, too."""
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        out = graph.input("v", 1, dtype) + 0
        with pytest.raises(error, match="input: w: "):
            graph.input("w", value, dtype)
    with pytest.raises(error, match="update: v: "):
        graph.update(v=value)
    await graph.replay()
    assert await out.item() == 1


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("float16", float("inf"), float("inf")), ("float16", 65519.0, 65504.0), ("bfloat16", float("-inf"), float("-inf")),
     ("bfloat16", 10**38, 9.969209968386869e37), ("float32", np.float64("inf"), float("inf")), ("float32", 1e-300, 0.0),
     ("complex64", complex(float("inf"), 2), complex(float("inf"), 2)), ("int8", np.float64(-128), -128),
     ("bool", 1e300, True)],
)  # fmt: skip
async def test_numbers_that_are_rounded_or_infinite(dtype: str, value: Any, expected: Any) -> None:
    """Infinity is what it was, and a number between two others becomes one of them; nothing is warned of."""
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        v = graph.input("v", 1, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.update(v=value)
        graph.update(v=float("nan") if dtype[0] in "bf" and dtype != "bool" else value)
        graph.update(v=value)
    await graph.replay()
    assert await v.item() == expected


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "bfloat16", "bool"])
def test_what_is_packed_at_once_has_the_same_bytes(dtype: str) -> None:
    """What is not, such as numbers of other types, is looked at as ever."""
    random, parsed = np.random.default_rng(0), aiodev.zeros((), dtype, "cpu").dtype
    pack, packed = packer_of(parsed), 0
    wide = [float(number) for number in random.integers(0, 2**64, 300, np.uint64).view(np.float64)]
    numbers = [0, -1, True, 255, 2**63, -(2**70), 0.5, -0.0, 65519.0, 65520.0, 6e-8, 3.4028235677973366e38, float("inf")]
    for value in numbers + wide + [int(number) for number in random.integers(-(2**40), 2**40, 300)]:
        data = pack(value)
        if data is not None:
            assert data == number_of("update", "x", value, parsed).tobytes() or np.isnan(value)
            packed += 1
    assert packed > 0 or dtype in ("bfloat16", "bool")


async def test_a_number_is_changed_in_as_many_steps_as_any(device: str) -> None:
    """How often the graph uses an array that was replaced is nothing to who changes a number, which every replay writes."""
    counts = []
    for uses in (1, 60):
        x, other = aiodev.ones(4, device=device), aiodev.zeros(4, device=device)
        await aiodev.synchronize(device)
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            array, number = graph.input("x", x), graph.input("n", 1.0)
            for _ in range(uses):
                kernels.add(array, number, out=array)
        await graph.replay()  # from now on addresses are written, too
        for n in (3.0, 2.0):
            graph.update(x=other, n=n)
        count = 0

        def count_calls(frame: Any, event: str, what: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(count_calls)
        try:
            graph.update(n=5.0)
        finally:
            sys.setprofile(None)
        await graph.replay()
        assert await x.tolist() == [1.0 + uses] * 4 and await other.tolist() == [5.0 * uses] * 4
        counts.append(count)
    assert counts[1] < counts[0] + 60  # some, if a finalizer runs meanwhile


async def test_replaced_input_is_let_go_of(device: str) -> None:
    """An array that was replaced belongs to the program again."""
    x, y = aiodev.ones(4, device=device), await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        double[4](graph.input("x", x))
    buffer = weakref.ref(x._buffer)
    graph.update(x=y)
    del x
    assert buffer() is None
    await graph.replay()
    assert await y.tolist() == [2] * 4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: {"z": 1}, TypeError, "z: the graph has no input of that name; it has x, n"),
        (lambda: {"x": 1}, TypeError, "argument x: expected an array, got int"),
        (lambda: {"x": np.ones(4)}, TypeError, r"aiodev.asarray\(value\) copies it to the device"),
        (lambda: {"x": aiodev.ones(5, device="cpu")}, ValueError, r"x: expected the shape \(4,\)"),
        (lambda: {"x": aiodev.ones(4, "float32", "cpu")}, ValueError, "dtype float32"),
        (lambda: {"x": aiodev.ones(8, device="cpu")[::2]}, ValueError, "strides"),
        (lambda: {"n": "one"}, TypeError, "n: expected a number, got str"),
        (lambda: {"n": aiodev.zeros(1, device="cpu")}, TypeError, "n: expected a number, got Array"),
        (lambda: {"n": 1 << 40}, OverflowError, "n: int 1099511627776 is out of bounds for int32"),
        (lambda: {"x": aiodev.broadcast_to(aiodev.ones((), device="cpu"), 4)}, ValueError, "strides"),
    ],
)
async def test_updates_that_do_not_fit(make: Any, error: type[Exception], message: str) -> None:
    """What does not fit an input is refused by its name, and nothing has changed."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        kernels.add(graph.input("x", x), graph.input("n", 5, "int32"), out=x)
    with pytest.raises(error, match=message):
        graph.update(**{"n": 100, **make()})
    await graph.replay()
    assert await x.tolist() == [6] * 4


async def test_inputs_that_are_refused() -> None:
    """Inputs have names of their own, are of before the capture, and do not overlap; they are named in the block alone."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        graph.input("x", x[:2])
        with pytest.raises(ValueError, match="'x': the graph has one"):
            graph.input("x", 1)
        with pytest.raises(ValueError, match="'y': it shares memory with input 'x'"):
            graph.input("y", x[1:])
        graph.input("rest", x[2:])
        with pytest.raises(ValueError, match="made before the capture"):
            graph.input("z", aiodev.zeros(3, device="cpu"))
        with pytest.raises(TypeError, match="an array or a number"):
            graph.input("z", "text")
    with pytest.raises(aiodev.CaptureError, match="while the graph is captured"):
        graph.input("z", 1)


async def test_masks_of_before_are_constants_but_inputs_are_not_read() -> None:
    """What a mask chooses is part of the graph; of one that may change nobody knows how much that is."""
    x, mask = aiodev.arange(6.0, device="cpu"), aiodev.asarray(np.arange(6) % 2 == 0, device="cpu")
    await ready(x), await ready(mask)
    stream = aiodev.Stream("cpu")
    async with aiodev.capture(stream) as graph:
        chosen = x[mask]
        with pytest.raises(aiodev.CaptureError, match="__getitem__"):
            x[graph.input("mask", mask)]
    await graph.replay(stream)
    assert await chosen.tolist() == [0, 2, 4]
