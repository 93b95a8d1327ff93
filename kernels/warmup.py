"""Warm-up: compiling the standard kernels ahead of time.

What there is to compile is found by calling each function with arrays, as programs will: two operands of one shape, a row, a
column or an element that is repeated, a number; along no axis, the first and the last, of few and of many elements. A
function whose parameters say nothing of what they take registers a sample call of its own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

import aiodev
from aiodev.dtypes import parse_dtype

__all__ = ["COMMON_DTYPES", "functions", "register_sample", "samples", "warm_up"]

#: Those that are compiled for when nobody says which.
COMMON_DTYPES = ("float32", "float64", "int64")

#: Calls a function of the library with arrays of a dtype.
Sample = Callable[[Any], object]
_LENGTH = 4
#: What a function along an axis is called with: few elements; one long row; rows of many elements and of few. Each is what one
#: or the other function has kernels of its own for.
_ALONG = ((_LENGTH, _LENGTH), ((1 << 17) + 1,), (1 << 9, 1 << 6), (1 << 10, 1 << 3))
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Those of the library's, besides its own, that have functions.
_NAMESPACES = ("random", "linalg", "fft")
_samples: dict[str, list[Sample]] = {}


class Progress(Protocol):
    """The progress that a bar is told."""

    def update(self) -> object:
        """One more call has been compiled."""


def register_sample(name: str, sample: Sample) -> None:
    """Have ``warm_up`` make ``sample(dtype)`` for the function ``name``, in place of what its parameters suggest.

    A name has its namespace before it where that is not the library's own, as ``random.normal`` has.
    """
    _samples.setdefault(name, []).append(sample)


def _array(dtype: Any, shape: tuple[int, ...] = (_LENGTH, _LENGTH)) -> aiodev.Array:
    return aiodev.ones(shape, dtype=dtype)


def _indices() -> aiodev.Array:
    return aiodev.zeros((_LENGTH, _LENGTH), dtype=np.int64)


#: Ways to give a second operand: an array of the same shape, a row, a column, a single element, a number.
_OPERANDS = 5
#: What goes to a parameter of each name, for a dtype: all the ways to try.
_ARGUMENTS: Mapping[str, Callable[[Any], list[Any]]] = {
    "x": lambda dtype: [_array(dtype)],
    "x1": lambda dtype: [_array(dtype)],
    "x2": lambda dtype: [
        _array(dtype), _array(dtype)[:1], _array(dtype)[:, :1], _array(dtype)[0, 0], parse_dtype(dtype).type(2).item()
    ],
    "values": lambda dtype: [_array(dtype)],
    "condition": lambda dtype: [_array(np.bool_)],
    "indices": lambda dtype: [_indices()],
    "arrays": lambda dtype: [[_array(dtype), _array(dtype)]],
    "axis": lambda dtype: [0],
    "shift": lambda dtype: [1],
    "width": lambda dtype: [1],
}


def samples(name: str, function: Callable[..., Any]) -> list[Sample]:
    """The calls that compile what a function of the library launches; none where its parameters do not say."""
    if name in _samples:
        return _samples[name]
    parameters = inspect.signature(function).parameters
    required = [p for p in parameters.values() if p.default is p.empty]
    if not required or any(p.kind not in _POSITIONAL or p.name not in _ARGUMENTS for p in required):
        return []
    names = [p.name for p in required]
    if names == ["x"] and "axis" in parameters:
        return [
            functools.partial(_call_along, function, shape, named)
            for shape in _ALONG
            for named in ({}, *({"axis": axis} for axis in (0, -1)[: len(shape)]))
        ]
    along = [{"axis": axis} for axis in (0, -1)] if "axis" in parameters and "axis" not in names else []

    def call(way: int, named: dict[str, int], dtype: Any) -> object:
        given = ((choices := _ARGUMENTS[name](dtype))[min(way, len(choices) - 1)] for name in names)
        return function(*given, **named)

    ways = range(_OPERANDS if "x2" in names else 1)
    return [functools.partial(call, way, named) for way in ways for named in ({}, *along)]


def _call_along(function: Callable[..., Any], shape: tuple[int, ...], named: dict[str, int], dtype: Any) -> object:
    return function(_array(dtype, shape), **named)


async def warm_up(
    names: Iterable[str] | None = None,
    *,
    dtypes: Iterable[Any] = COMMON_DTYPES,
    device: aiodev.DeviceLike | None = None,
    progress: bool | None = None,
) -> None:
    """Compile the standard kernels into the disk cache, off the loop, and load them.

    Those that are in the cache are only loaded. A dtype that a function refuses, such as complex numbers for ``floor``, is left
    out. Cancelling it stops the waiting; what was handed to the compiler is compiled.

    Args:
        names: of functions, such as ``["add", "random.normal"]``; all by default, those of ``random``, ``linalg`` and ``fft``
            too.
        dtypes: of the arrays that programs will use.
        device: where they will run; the current device by default.
        progress: show a bar on standard error; by default where that is a terminal and tqdm is installed.

    Raises:
        ValueError: the library has no function of that name.
        ImportError: ``progress=True`` without tqdm.

    Example:
        >>> import aiodev.kernels
        >>> asyncio.run(aiodev.kernels.warm_up(["add", "sqrt"], dtypes=["float32"]))
    """
    chosen = _chosen(names)
    wanted = [parse_dtype(dtype) for dtype in dtypes]
    calls = [(sample, dtype) for name, function in chosen.items() for sample in samples(name, function) for dtype in wanted]
    with await _bar(progress, len(calls)) as bar:
        where = aiodev.device(device if device is not None else aiodev.current_device())
        async with where, anyio.create_task_group() as group:
            for sample, dtype in calls:
                group.start_soon(_compile, sample, dtype, bar)
                await anyio.lowlevel.checkpoint()  # a call has kernels to make: between two, the loop has its turn


async def _compile(sample: Sample, dtype: Any, bar: Progress | None) -> None:
    stream = aiodev.Stream()  # of its own: what fails on it is nobody else's business
    async with stream:
        with contextlib.suppress(TypeError, ValueError):  # the function does not take this dtype
            sample(dtype)
    with contextlib.suppress(aiodev.KernelError):  # as any launch of it will say
        await stream.synchronize()
    if bar is not None:
        bar.update()


def functions() -> dict[str, Callable[..., Any]]:
    """What can be compiled ahead, by the names that ``warm_up`` takes."""
    library = sys.modules[__package__]
    by_name = dict(_public(library, ""))
    del by_name["warm_up"]
    for namespace in _NAMESPACES:
        further = _public(getattr(library, namespace), f"{namespace}.")
        by_name |= {name: one for name, one in further if one not in by_name.values()}
    return by_name


def _public(module: Any, before: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in module.__all__:
        if inspect.isfunction(value := getattr(module, name)):
            yield before + name, value


def _chosen(names: Iterable[str] | None) -> dict[str, Callable[..., Any]]:
    known = functions()
    if names is None:
        return known
    chosen = list(names)
    for name in chosen:
        if name not in known:
            raise ValueError(f"warm_up: aiodev.kernels has no function {name!r}")
    return {name: known[name] for name in chosen}


async def _bar(progress: bool | None, total: int) -> contextlib.AbstractContextManager[Progress | None]:
    wanted = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None if progress is None else progress
    if not wanted:
        return contextlib.nullcontext(None)
    return await anyio.to_thread.run_sync(_make_bar, total)


def _make_bar(total: int) -> contextlib.AbstractContextManager[Progress | None]:
    from tqdm import tqdm  # which takes a while, so not on the loop

    return contextlib.closing(tqdm(total=total, unit="call", desc="compiling kernels", file=sys.stderr))
