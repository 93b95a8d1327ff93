"""What the fuzzer gives to parameters: right for their names now and then, and wrong or extreme in every way that is known."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime
import decimal
import fractions
import functools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from turns import run_at_once

import aiodev

Make = Callable[[], Any]


class HostileError(Exception):
    """What hostile objects raise: it is the caller's own, so that it may come out as it is."""


def _raise(*_: object, **__: object) -> Any:
    raise HostileError("hostile")


class Hostile:
    """Whatever is asked of it, it raises."""

    __eq__ = __hash__ = __lt__ = __repr__ = __str__ = __bool__ = __len__ = __iter__ = _raise  # type: ignore[assignment]
    __index__ = __int__ = __float__ = __complex__ = __call__ = __getitem__ = __array__ = __await__ = _raise
    __dlpack__ = __dlpack_device__ = __enter__ = __exit__ = __cuda_stream__ = _raise


class Opaque:
    """It has no attribute whatsoever, and says so in its own way."""

    def __getattr__(self, name: str) -> Any:
        raise HostileError(name)


class Liar:
    """Its methods give what such methods must not give."""

    __index__ = __int__ = __float__ = lambda self: "liar"
    __len__ = lambda self: -1  # noqa: E731
    __iter__ = lambda self: 5  # noqa: E731
    __array__ = lambda self, *args, **named: "liar"  # noqa: E731
    __dlpack__ = lambda self, **named: "no capsule"  # noqa: E731
    __dlpack_device__ = lambda self: "liar"  # noqa: E731
    __cuda_array_interface__ = "liar"
    __cuda_stream__ = lambda self: "liar"  # noqa: E731


class Agreeable:
    """It equals everything, and cannot be hashed."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class OwnInt(int):
    """An int that is not quite one."""


class Unfinished(concurrent.futures.Future[None]):
    """Nobody finishes it; the fuzzer cancels it when the call has returned."""


class Elsewhere:
    """A loop that runs in a thread of its own, and opens what waits for it after a moment."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="elsewhere", daemon=True).start()

    def moment(self) -> concurrent.futures.Future[None]:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0.002), self.loop)

    def completion(self) -> aiodev.Completion[None]:
        """Of a stream that is held until then, made in that thread."""

        async def submit() -> aiodev.Completion[None]:
            return aiodev.Stream("cpu").wait_future(asyncio.sleep(0.002))

        return asyncio.run_coroutine_threadsafe(submit(), self.loop).result(30)


@aiodev.kernel
def fuzzed(i, a, x):
    x[i] = a + i


@aiodev.kernel(ndim=2)
def fuzzed2(i, j, x):
    x[i, j] = i + j


def _freed() -> aiodev.Array:
    array = aiodev.ones(4, "float32", "cpu")
    array.free()
    return array


def _closed() -> aiodev.Stream:
    stream = aiodev.Stream("cpu")
    run_at_once(stream.aclose())
    return stream


def _failed() -> aiodev.Completion[None]:
    done = aiodev.Stream("cpu").call(int, "x")
    with contextlib.suppress(ValueError):
        done.synchronize_blocking(30)
    return done


def _recorded(**options: bool) -> aiodev.Event:
    event = aiodev.Event(**options)
    event.record(aiodev.default_stream("cpu"))
    return event


def _closed_future() -> asyncio.Future[None]:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    return future


async def _coroutine() -> int:
    return 1


async def _async_generator() -> Any:
    yield 1


class Values:
    """A seeded source of values; ``arrays`` and the like are made anew each time, since calls write to them."""

    def __init__(self, seed: int, elsewhere: Elsewhere) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.arrays: list[Make] = [
            lambda: aiodev.ones((2, 3), "float32", "cpu"),
            lambda: aiodev.ones((2, 3), "float32", "cpu"),
            lambda: aiodev.ones((3, 3), "float32", "cpu"),
            lambda: aiodev.zeros(4, "int64", "cpu"),
            lambda: aiodev.zeros(6, "int64", "cpu"),
            lambda: aiodev.zeros((2, 3), "bool", "cpu"),
        ]
        self.odd_arrays: list[Make] = [
            lambda: aiodev.ones((), "float32", "cpu"),
            lambda: aiodev.ones((0,), "float32", "cpu"),
            lambda: aiodev.ones((2, 0, 3), "float64", "cpu"),
            lambda: aiodev.ones((2, 3), "complex64", "cpu"),
            lambda: aiodev.ones((2, 3), "float16", "cpu"),
            lambda: aiodev.ones((2, 3), "uint8", "cpu"),
            lambda: aiodev.ones((2, 3), "float32", "cpu").T,
            lambda: aiodev.broadcast_to(aiodev.ones(3, "float32", "cpu"), (2, 3)),
            lambda: aiodev.ones((1,) * 12, "float32", "cpu"),
            lambda: aiodev.ones((2, 3), "float32", "cpu:1"),
            lambda: aiodev.ones((2, 3), "float32", "sim:0"),
            _freed,
        ]
        self.numbers: list[Make] = [
            lambda: pick([0, 1, 2, 3, -1, 7]),
            lambda: pick([0.0, 0.5, 1.0, 2.5, -0.5]),
            lambda: pick([True, False]),
            lambda: pick([-2, -(2**31), 2**40, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, -(2**64), 2**200, 10**400]),
            lambda: pick([float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -0.0, 1e19]),
            lambda: pick([1j, complex("nan"), decimal.Decimal("0.1"), decimal.Decimal("nan"), fractions.Fraction(1, 3)]),
            lambda: pick([np.int64(3), np.float32(2), np.bool_(True), np.uint8(255), np.float64("nan"), np.complex64(1)]),
            lambda: OwnInt(2),
        ]
        self.runtime: list[Make] = [
            lambda: aiodev.Stream("cpu"),
            lambda: aiodev.Stream("cpu:1", maxsize=1),
            lambda: aiodev.Stream("sim:0"),
            _closed,
            lambda: _recorded(),
            lambda: _recorded(enable_timing=True),
            lambda: aiodev.Event(),
            lambda: aiodev.default_stream("cpu").call(int),
            elsewhere.completion,
            elsewhere.moment,
            _failed,
            lambda: aiodev.Device("cpu"),
            lambda: aiodev.Device("cpu", 99),
            lambda: aiodev.Device("abacus"),
            lambda: aiodev.Generator("cpu"),
            lambda: aiodev.Generator("sim"),
            lambda: aiodev.default_generator("cpu"),
            lambda: fuzzed,
            lambda: fuzzed2,
            lambda: aiodev.StreamGroup("cpu"),
            lambda: aiodev.device("cpu"),
            lambda: aiodev.get_backend("cpu"),
            lambda: aiodev.memory.lease(10, "cpu"),
            lambda: aiodev.memory.MemoryPool("cpu"),
            lambda: aiodev.get_device_properties("cpu"),
        ]
        self.hosts: list[Make] = [
            lambda: np.ones((2, 3), "float32"),
            lambda: np.arange(4),
            lambda: np.array(5.0),
            lambda: np.array(["text", "more"]),
            lambda: np.array([None, 3]),
            lambda: np.zeros(2, [("a", "i4"), ("b", "f8")]),
            lambda: np.zeros(3, ">f4"),
            lambda: np.zeros(3, "M8[s]"),
            lambda: np.float128(1) if hasattr(np, "float128") else None,
            lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
            lambda: memoryview(b"abc"),
            lambda: bytearray(b"abc"),
        ]
        self.junk: list[Make] = [
            lambda: None,
            lambda: pick(["", "x", "cpu", "cpu:7", "cpu:-1", "cpu:" + "9" * 5000, "abacus", "sim"]),
            lambda: pick(["float32", "no\0no", "\udcff", "ä"]),
            lambda: "long " * 10_000,
            lambda: pick([b"", b"abc", b"\xff" * 16]),
            list,
            lambda: [1, "x", None],
            lambda: [[1, 2], [3]],
            lambda: [0, 1],
            lambda: (2, 3),
            lambda: (2, -3),
            lambda: (2, 3.0),
            lambda: (2**40, 2**40),
            lambda: (1,) * 70,
            lambda: ((),),
            lambda: (slice(None), None, ...),
            lambda: pick([slice(None), slice("a", "b"), slice(0, 5, 0), slice(2**70), ...]),
            dict,
            lambda: {"a": 1},
            lambda: {1, 2},
            lambda: range(3),
            lambda: iter([1, 2]),
            lambda: (number for number in (1, "x")),
            lambda: _coroutine(),
            lambda: _async_generator(),
            Unfinished,
            _closed_future,
            lambda: len,
            lambda: functools.partial(int, "7"),
            lambda: lambda *args: None,
            lambda: lambda: 1 / 0,
            lambda: _coroutine,
            lambda: int,
            lambda: Hostile,
            lambda: np,
            lambda: np.dtype("float32"),
            lambda: np.dtype("O"),
            lambda: ValueError("a value"),
            lambda: ValueError,
            lambda: object(),
            Hostile,
            Opaque,
            Liar,
            Agreeable,
            lambda: Path("/"),
            lambda: datetime.datetime(2000, 1, 1),
            lambda: threading.Lock(),
            lambda: NotImplemented,
            elsewhere.moment,
        ]
        self.kinds = [self.arrays, self.odd_arrays, self.numbers, self.runtime, self.hosts, self.junk]
        self.weights = [3, 3, 4, 3, 2, 7]
        self.right = self._right()

    def any(self) -> Any:
        """Whatever there is; a container of it now and then."""
        kind = self.random.choices(self.kinds, self.weights)[0]
        made = self.random.choice(kind)()
        roll = self.random.random()
        if roll < 0.03:
            return [made, self.random.choice(self.arrays)()]
        if roll < 0.06:
            return (made, 1)
        if roll < 0.07:
            return {"a": made}
        return made

    def fit(self, name: str) -> Any:
        """What a parameter of that name takes, as a rule; anything where that is not known."""
        makers = self.right.get(name)
        return self.random.choice(makers)() if makers else self.any()

    def _right(self) -> dict[str, list[Make]]:
        """By name of parameter."""
        pick = self.random.choice
        array = self.arrays
        axis: list[Make] = [lambda: pick([0, 1, -1, None])]
        flag: list[Make] = [lambda: pick([True, False])]
        real: list[Make] = [lambda: pick([0.5, 1.0, 2, 3.0])]
        small: list[Make] = [lambda: pick([0, 1, 2, 3])]
        right: dict[str, list[Make]] = {
            "kernel_size": [lambda: pick([1, 2, (1, 2)])],
            "stride": [lambda: pick([1, 2, (1, 2)])],
            "padding": [lambda: pick([0, 1, (1, 0)])],
            "dilation": [lambda: pick([1, (1, 2)])],
            "groups": [lambda: pick([1, 2])],
            "is_causal": flag,
            "count_include_pad": flag,
            "shape": [lambda: pick([(2, 3), 6, (6,), (3, 2), (), (1, 2, 3)])],
            "dtype": [lambda: pick(["float32", "int64", None, np.float32, "bool"])],
            "device": [lambda: pick(["cpu", "cpu:0", aiodev.Device("cpu"), 0, None])],
            "stream": [lambda: aiodev.Stream("cpu")],
            "event": [lambda: _recorded()],
            "end": [lambda: _recorded(enable_timing=True)],
            "completion": [lambda: aiodev.default_stream("cpu").call(int)],
            "completions": [lambda: [aiodev.default_stream("cpu").call(int) for _ in range(2)]],
            "generator": [lambda: aiodev.Generator("cpu"), lambda: None],
            "kernel": [lambda: fuzzed],
            "function": [lambda: fuzzed.py_func, lambda: (lambda x: x + 1)],
            "fn": [lambda: int, lambda: (lambda *args: None)],
            "factory": [lambda: (lambda: None)],
            "hook": [lambda: (lambda device, nbytes: None)],
            "awaitable": [lambda: _coroutine()],
            "timeout": [lambda: pick([None, 1.0, 0])],
            "type": [lambda: pick(["cpu", "sim", None])],
            "device_type": [lambda: "cpu"],
            "obj": [lambda: [1, 2], *array],
            "arrays": [lambda: [pick(array)() for _ in range(2)]],
            "indices": [lambda: aiodev.zeros(2, "int64", "cpu")],
            "condition": [lambda: aiodev.ones((2, 3), "bool", "cpu")],
            "mode": [lambda: pick(["raise", "wrap", "clip", "constant", "default", "reduced", "complete"])],
            "norm": [lambda: pick(["backward", "ortho", "forward"])],
            "s": [lambda: pick([(2, 3), (3,), None])],
            "rtol": [lambda: pick([None, 0.5]), *array],
            "side": [lambda: pick(["left", "right"])],
            "state": [lambda: b"\0" * 16],
            "axes": [lambda: pick([(1, 0), 1, None])],
            "ord": [lambda: pick([2, 1, None, "fro", float("inf")])],
            "bins": [lambda: pick([3, 10])],
            "range": [lambda: (0.0, 1.0)],
            "fraction": real,
            "out": [lambda: None, lambda: aiodev.empty((2, 3), "float32", "cpu")],
            "names": [lambda: ["add"]],
            "dtypes": [lambda: ["float32"]],
            "error": [lambda: ValueError("given")],
            "priority": [lambda: pick([-1, 0, 1])],
            "nbytes": [lambda: pick([0, 1, 64, 4096])],
            "copy": [lambda: pick([True, False, None])],
            "context": [lambda: None],
            "external": [lambda: None],
            "snapshot": [lambda: aiodev.memory.memory_snapshot("cpu")],
            "ndim": [lambda: pick([1, 2, 3])],
        }
        right |= dict.fromkeys(("x", "x1", "x2", "y", "a", "src", "dst", "values", "weight", "array"), array)
        right |= dict.fromkeys(("axis", "source", "destination", "shift", "repetitions", "repeats"), axis[:1])
        right |= dict.fromkeys(("keepdims", "descending", "stable", "exclusive", "include_initial", "density"), flag)
        right |= dict.fromkeys(("full_matrices", "upper"), flag)
        right |= dict.fromkeys(("reserve", "cancel", "enable_timing", "blocking", "enabled", "replace", "endpoint"), flag)
        right |= dict.fromkeys(("low", "high", "scale", "loc", "lam", "alpha", "p", "eps", "min", "max", "d"), real)
        right |= dict.fromkeys(("n", "count", "maxsize", "low_water", "seed", "correction", "offset"), small)
        right |= dict.fromkeys(("start", "stop", "step"), small)
        return right
