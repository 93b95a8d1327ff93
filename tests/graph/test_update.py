"""Inputs: what changes between replays."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from captured import double, ready

import aiodev
from aiodev import kernels
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
        (lambda: {"n": 1 << 40}, OverflowError, "n: 1099511627776 is out of bounds for int32"),
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
