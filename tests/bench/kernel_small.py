"""What small operations cost in Python, submission only, next to NumPy's whole call: views, library calls, copies, reads.

Of lengths that grow by one at each call, as a sequence does, there are figures of their own: each is new to views and plans.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Bar, Case, Figure, Run
from peers import awaited, numpy_add, timed

import aiodev
from aiodev import kernels

__all__ = ["FIGURES"]


def _on_device(host: np.ndarray[Any, Any]) -> aiodev.Array:
    return aiodev.asarray(host, device="cpu")


def _submitted(stream: aiodev.Stream, submit: Callable[[], object], count: int) -> Case:
    """Submit by a stream, which is empty before and after."""

    async def case() -> float:
        with stream:
            value = timed(submit, count)
        await stream.synchronize()
        return value

    return case


async def _known(stream: aiodev.Stream, ours: dict[str, Callable[[], object]], count: int) -> dict[str, Case]:
    """Cases that submit what was submitted before."""
    with stream:
        for function in ours.values():
            for _ in range(4):
                function()
                await stream.synchronize()
    return {name: _submitted(stream, function, count) for name, function in ours.items()}


def _growing(function: Callable[[int], object]) -> Callable[[], object]:
    """Call with 2, 3, 4, …"""
    lengths = itertools.count(2)
    return lambda: function(next(lengths))


async def views(run: Run) -> Figure:
    """A slice that leaves gaps; with a column, other shapes and orders beside it."""
    host = np.zeros((4, 64, 32), np.float32)
    x, count = _on_device(host), run.scale(20_000)
    cases: dict[str, Callable[[Any], object]] = {
        "x[:, :7]": lambda x: x[:, :7],
        "x[:, 7]": lambda x: x[:, 7],
        "reshape": lambda x: x.reshape((4, 2048)),
        "transpose": lambda x: x.transpose(0, 2, 1),
        "x.T": lambda x: x.T,
    }

    def of(view: Callable[[Any], object], array: Any) -> Case:
        return lambda: timed(lambda: view(array), count)

    measured: dict[str, Case] = {}
    bars = []
    for name, view in cases.items():
        ours = "aiodev" if not bars else name
        measured[ours], measured[f"NumPy, {name}"] = of(view, x), of(view, host)
        bars.append(Bar(f"NumPy, {name}", at_most=5, case=ours))
    return Figure("views of a small array: x[:, :7], and others", "µs", await run.medians(measured), bars)


async def operators(run: Run) -> Figure:
    """``a * x + y``, next to the two functions that it calls, and to NumPy's own operators."""
    stream, count = aiodev.Stream("cpu"), run.scale(2_000)
    host = np.ones(8, np.float32)
    with stream:
        x, y = _on_device(host), _on_device(host)
    cases: dict[str, Case] = {
        "aiodev": _submitted(stream, lambda: 2.0 * x + y, count),
        "the functions": _submitted(stream, lambda: kernels.add(kernels.multiply(2.0, x), y), count),
        "NumPy": lambda: timed(lambda: 2.0 * host + host, count),
    }
    bars = [Bar("the functions", at_most=1.5)]
    return Figure("operators: a * x + y of 8 elements, submitted", "µs", await run.medians(cases), bars)


async def calls(run: Run) -> Figure:
    """Functions of the library, of a shape that was seen before: with a result to write to, and with a new one."""
    stream, count = aiodev.Stream("cpu"), run.scale(2_000)
    with stream:
        x, out = _on_device(np.ones((1, 128), np.float32)), aiodev.zeros((1, 128), "float32", "cpu")
        number = np.float32(0.5)
        ours: dict[str, Callable[[], object]] = {
            "aiodev": lambda: kernels.add(x, x),
            "add, out=": lambda: kernels.add(x, x, out=out),
            "multiply by a number": lambda: kernels.multiply(x, number),
            "softmax": lambda: kernels.softmax(x),
            "argmax": lambda: kernels.argmax(x),
        }
    values = await run.medians(await _known(stream, ours, count) | {"np.add": lambda: numpy_add(run.scale(20_000))})
    bars = [Bar("np.add", at_most=4, case=name) for name in ours]
    return Figure("library call of a known shape: add", "µs", values, bars)


def _attention(q: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scores = q @ q.swapaxes(1, 2) * np.float32(0.25)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ q  # type: ignore[no-any-return]


async def composed(run: Run) -> Figure:
    """Functions of several steps: attention of 2 heads of 8 queries, and elements that two arrays of indices choose."""
    stream, count = aiodev.Stream("cpu"), run.scale(2_000)
    host, places = np.random.default_rng(0).random((2, 8, 16), np.float32), np.array([1, 0, 1])
    with stream:
        q, at = _on_device(host), _on_device(places)
    ours: dict[str, Callable[[], object]] = {
        "aiodev": lambda: kernels.scaled_dot_product_attention(q, q, q),
        "x[i, j]": lambda: q[at, at],
    }
    cases = await _known(stream, ours, count)
    cases |= {
        "NumPy": lambda: timed(lambda: _attention(host), count),
        "NumPy, x[i, j]": lambda: timed(lambda: host[places, places], count),
    }
    bars = [Bar("NumPy", at_most=1), Bar("NumPy, x[i, j]", at_most=10, case="x[i, j]")]
    return Figure("calls of several kernels: attention", "µs", await run.medians(cases), bars)


async def copies(run: Run) -> Figure:
    """A row that is copied into an array with gaps between its parts."""
    stream, count = aiodev.Stream("cpu"), run.scale(2_000)
    to, fro = np.zeros((4, 64, 32), np.float32), np.ones((4, 32), np.float32)
    with stream:
        target, row = _on_device(to)[:, 5], _on_device(fro)
        for _ in range(4):
            await stream.copy(target, row)
    cases: dict[str, Case] = {
        "aiodev": _submitted(stream, lambda: stream.copy(target, row), count),
        "np.add": lambda: numpy_add(run.scale(20_000)),
        "np.copyto": lambda: timed(lambda: np.copyto(to[:, 5], fro), count),
    }
    return Figure("copy between device arrays, 4 rows", "µs", await run.medians(cases), [Bar("np.add", at_most=6.5)])


async def assignments(run: Run) -> Figure:
    """A number everywhere, and at one element; a row that is copied; a number at rows that an array chooses."""
    stream, count = aiodev.Stream("cpu"), run.scale(2_000)
    to, fro, places = np.zeros((8, 64), np.float32), np.ones((4, 64), np.float32), np.array([1, 5, 2])
    with stream:
        x, y, at = _on_device(to), _on_device(fro), _on_device(places)
    ours: dict[str, Callable[[], object]] = {
        "aiodev": lambda: x.__setitem__(slice(None), 0.0),
        "x[2, 3] = 1": lambda: x.__setitem__((2, 3), 1.0),
        "x[1] = y[0]": lambda: x.__setitem__(1, y[0]),
        "x[places] = 1": lambda: x.__setitem__(at, 1.0),
    }
    cases = await _known(stream, ours, count)
    cases |= {
        "np.add": lambda: numpy_add(run.scale(20_000)),
        "NumPy": lambda: timed(lambda: to.__setitem__(slice(None), 0.0), count),
        "NumPy, x[places] = 1": lambda: timed(lambda: to.__setitem__(places, 1.0), count),
    }
    bars = [Bar("np.add", at_most=6.5, case=name) for name in ours if name != "x[places] = 1"]
    bars.append(Bar("NumPy, x[places] = 1", at_most=10, case="x[places] = 1"))
    return Figure("assignments: x[:] = 0, and others", "µs", await run.medians(cases), bars)


async def new_arrays(run: Run) -> Figure:
    """Arrays of 8 rows of 64, made of the host's values, and of one value, each dropped at once."""
    stream, count, host = aiodev.Stream("cpu"), run.scale(2_000), np.ones((8, 64), np.float32)
    with stream:
        cases: dict[str, Case] = {
            "aiodev": _submitted(stream, lambda: aiodev.asarray(host), count),
            "zeros": _submitted(stream, lambda: aiodev.zeros((8, 64), np.float32), count),
            "np.add": lambda: numpy_add(run.scale(20_000)),
            "NumPy": lambda: timed(lambda: np.array(host), count),
        }
        values = await run.medians(cases)
    bars = [Bar("np.add", at_most=6.5, case=name) for name in ("aiodev", "zeros")]
    return Figure("new arrays: asarray of 2 KB", "µs", values, bars)


async def reads(run: Run) -> Figure:
    """What a finished scalar costs."""
    x, count = _on_device(np.ones((), np.float32)), run.scale(10_000)
    await aiodev.synchronize("cpu")
    cases: dict[str, Case] = {
        "aiodev": lambda: awaited(lambda: x.item(), count),
        "numpy()": lambda: awaited(lambda: x.numpy(), count),
        "np.add": lambda: numpy_add(run.scale(20_000)),
    }
    bars = [Bar("np.add", at_most=5, case=case) for case in ("aiodev", "numpy()")]
    return Figure("item() of a finished scalar", "µs", await run.medians(cases), bars)


async def growing(run: Run) -> Figure:
    """Lengths that grow by one at each call: a view, a copy of a column, calls of the library with views that are there.

    Each round is of another width, and new; plans are there, from sequences of a few other widths. Arrays are small, so that
    what is measured is to submit: larger kernels would take the cores meanwhile. A sum of what has gaps is three launches.
    """
    stream, count, widths = aiodev.Stream("cpu"), run.scale(300), itertools.count(3)

    def array() -> aiodev.Array:
        return aiodev.zeros((4, count + 2, next(widths)), "float32", "cpu")

    def ours(function: Callable[..., object], operands: Callable[[aiodev.Array, int], tuple[Any, ...]]) -> Case:
        async def case() -> float:
            with stream:
                x = array()
                given = [operands(x, t) for t in range(2, count + 2)]
                await stream.synchronize()
                place = iter(given)
                value = timed(lambda: function(*next(place)), count)
            await stream.synchronize()
            return value

        return case

    def numpys() -> float:
        host = np.zeros((4, count + 2, next(widths)), np.float32)
        return timed(_growing(lambda t: host[:, :t]), count)

    rows: dict[int, aiodev.Array] = {}

    def row(x: aiodev.Array, *shape: int) -> aiodev.Array:
        return rows.setdefault(hash((x.shape, shape)), aiodev.ones((*shape, x.shape[2]), "float32", "cpu"))

    number = np.float32(2)
    calls: dict[str, Case] = {
        "multiply": ours(kernels.multiply, lambda x, t: (x[0, :t], number)),
        "add": ours(kernels.add, lambda x, t: (x[:2, :t], x[2:, :t])),
        "sum": ours(functools.partial(kernels.sum, axis=1), lambda x, t: (x[0, :t],)),
        "softmax": ours(kernels.softmax, lambda x, t: (x[0, :t],)),
        "rms_norm": ours(kernels.rms_norm, lambda x, t: (x[0, :t], row(x))),
        "matmul": ours(kernels.matmul, lambda x, t: (x[:, :1], x[:, :t].transpose(0, 2, 1))),
    }
    cases: dict[str, Case] = {
        "aiodev": ours(lambda x, t: x[:, :t], lambda x, t: (x, t)),
        "copy to x[:, t]": ours(lambda x, t, row: stream.copy(x[:, t - 1], row), lambda x, t: (x, t, row(x, 4))),
        **calls,
        "sum of x[:, :t]": ours(functools.partial(kernels.sum, axis=1), lambda x, t: (x[:, :t],)),
        "NumPy, x[:, :t]": numpys,
        "np.add": lambda: numpy_add(run.scale(20_000)),
    }
    for case in [*cases.values()] * (1 if run.smoke else 4):
        await case() if inspect.iscoroutinefunction(case) else case()
    bars = [
        Bar("NumPy, x[:, :t]", at_most=10),
        Bar("np.add", at_most=13, case="copy to x[:, t]"),
        *(Bar("np.add", at_most=8, case=name) for name in calls),
    ]
    return Figure("x[:, :t], t growing by one", "µs", await run.medians(cases), bars)


FIGURES = {
    "views": views, "operators": operators, "small-calls": calls, "small-composed": composed, "small-copy": copies,
    "small-assign": assignments, "small-new": new_arrays, "small-read": reads, "growing": growing,
}  # fmt: skip
