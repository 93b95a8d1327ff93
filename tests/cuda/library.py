"""What the functions of :mod:`aiodev.kernels` launch: each is called with whatever it takes, and nothing is compiled.

Functions are added to the library all the time: each is offered many argument lists, of several types, and those that it
refuses are passed over. Which kernels it launches depends on sizes and options, so some arrays are large, and functions with
options of their own are named here. They are called on a simulated device that can what CUDA's can, under its name, with
rows in one piece and in several.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import aiodev
from aiodev import kernels
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import CompileError
from aiodev._kernel.compile import service
from aiodev.kernels import thread_block
from aiodev.kernels.fft import cufft
from aiodev.kernels.indexing import gradients
from aiodev.kernels.indexing.search import Selection
from aiodev.kernels.linalg import cublas, cusolver, inverses
from aiodev.kernels.nn import convolution, embedding, pooling
from aiodev.kernels.reductions import launch as reduction_launches
from aiodev.kernels.sorting import cuda_radix
from aiodev.testing import SimulatedBackend

__all__ = ["REAL", "argument_lists", "functions", "recorded"]

#: Functions that mean nothing for complex numbers, and are not refused before they are compiled.
REAL = frozenset({"clip", "greater", "greater_equal", "less", "less_equal"})

TYPES = ("f4", "f8", "i8", "c8")
#: What a function is called with beside positional arguments, by its name, or any function; a function is called with these.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "": [{"axis": 0}],
    "histogram": [
        {"density": True}, {"range": (0.0, 9.0)}, {"weights": lambda x, *rest: x}, {"bins": [0.0, 1.0, 5.0]},
        {"bins": [0.0, 1.0, 5.0], "weights": lambda x: x}, {"bins": 5000, "density": True},
    ],
    "linspace": [{"dtype": "i8"}],
    "put": [{"mode": "clip"}],
    "random.choice": [{"replace": False}, {"replace": False, "p": [0.5, 0.25, 0.125, 0.125, 0.0]}],
    "take": [{"axis": 1}, {"mode": "wrap"}],
    "take_along_axis": [{"axis": 1}],
    "scatter_add": [{"axis": 1}],
    "searchsorted": [{"side": "right"}],
    "cumulative_sum": [{"axis": 1, "include_initial": True}],
    "conv2d": [{"groups": 2}],
    "scaled_dot_product_attention": [{"is_causal": True}],
    "avg_pool2d": [{"count_include_pad": False}],
}  # fmt: skip


def _conv2d_backwards(x: aiodev.Array, weight: aiodev.Array) -> None:
    grads = kernels.conv2d(x, weight, groups=2)
    options: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 2}
    convolution.conv2d_of_input(grads, weight, size=x.shape[2:], **options)  # type: ignore[arg-type]
    convolution.conv2d_of_weight(grads, x, window=weight.shape[2:], **options)  # type: ignore[arg-type]


def _pool_backwards(x: aiodev.Array, size: int) -> None:
    options: dict[str, Any] = {"kernel_size": size, "stride": None, "padding": 0}
    grads = kernels.avg_pool2d(x, size)
    pooling.max_pool2d_of_input(grads, x, dilation=1, **options)
    pooling.avg_pool2d_of_input(grads, size=x.shape[2:], count_include_pad=True, **options)  # type: ignore[arg-type]


def _embedding_backwards(indices: aiodev.Array, weight: aiodev.Array) -> None:
    grads = kernels.embedding(indices, weight)
    embedding.embedding_of_weight(grads, indices, shape=weight.shape)  # type: ignore[arg-type]


def _index(x: aiodev.Array, indices: aiodev.Array) -> None:
    x[indices, indices] = x[indices, indices]
    x[indices, 1] = x[0]
    x[kernels.equal(x[0], 0)] = x[:3]


def _take_backwards(x: aiodev.Array, indices: aiodev.Array) -> None:
    gradients.scattered(x, indices, shape=x.shape, axis=0, mode="raise")  # type: ignore[arg-type]
    gradients.scattered_along(x, indices, length=x.shape[0], axis=0, mode="raise")  # type: ignore[arg-type]


def _det_backwards(x: aiodev.Array) -> None:
    inverses._cofactors(x)


@kernels.fused
def _rotated(x: Any, y: Any, angle: Any) -> Any:
    turned = x * kernels.cos(angle * y) - y * kernels.sin(angle * x)
    turned *= 0.5
    turned += kernels.where(x > y, kernels.exp(-kernels.abs(x)), kernels.hypot(x, y))
    return turned / (1 + turned * turned)


def _fuse(x: aiodev.Array, y: aiodev.Array) -> None:
    _rotated(x, y, 0.5)
    _rotated(x, y[0], y)


#: What operators, assignments, decorators and gradients launch that no public function does.
FURTHER: dict[str, Callable[..., Any]] = {
    "conv2d backwards": _conv2d_backwards, "pool backwards": _pool_backwards, "embedding backwards": _embedding_backwards,
    "take backwards": _take_backwards, "det backwards": _det_backwards, "indices": _index, "fused steps": _fuse,
}  # fmt: skip


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, by name, those of submodules included."""
    for name in kernels.__all__:
        found = getattr(kernels, name)
        if isinstance(found, types.ModuleType):
            inside = ((f"{name}.{inner}", getattr(found, inner)) for inner in getattr(found, "__all__", ()))
        else:
            inside = iter([(name, found)])
        yield from (
            (full, f)
            for full, f in inside
            if callable(f) and not isinstance(f, type) and not inspect.iscoroutinefunction(f) and f is not kernels.warm_up
        )


def _all_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield from functions()
    yield from FURTHER.items()


def argument_lists(code: str, device: str) -> Iterator[tuple[Any, ...]]:
    """Argument lists of many kinds, whose arrays are of one type and on a device."""
    chance = np.random.default_rng(0)
    plane = aiodev.asarray((chance.random((4, 4)) * 10).astype(code), device=device)
    line = aiodev.asarray((chance.random(4) * 10).astype(code), device=device)
    mask = aiodev.asarray(chance.random((4, 4)) > 0.5, device=device)
    index = aiodev.asarray(np.arange(4), device=device)
    yield from [(plane,), (plane, plane), (mask, plane, plane), (plane, index), (plane, index, line)]
    yield from [(plane, index, plane), ([plane, plane],), (plane, 1), (plane, 2, 3), (plane, (1, 1)), (line, line)]
    yield from [(plane, ((1, 1), (1, 1))), (line, index, line), (line,), (plane, np.dtype("f4")), (plane, 0, 1)]
    yield from [(mask,), (mask, mask), (index,), (plane, 0.5), (line, 2), (plane, plane, plane), (line, 4)]
    yield from [((3, 3),), ((3,), 1.0), ((3,), 0.5, 2.0), (0, 5, (3,)), (5,), (0.25, (3,)), (5, (0.25, 0.75), (3,))]
    yield (0, 5, 7)
    images = aiodev.asarray((chance.random((2, 4, 5, 5)) * 10).astype(code), device=device)
    windows = aiodev.asarray((chance.random((4, 2, 3, 3)) * 10).astype(code), device=device)
    yield from [(images, windows), (images, windows, line), (images, 2), (index, plane), (plane, plane, plane, mask)]
    yield (plane, plane, plane, plane)
    vectors = aiodev.asarray((chance.random((4, 3)) * 10).astype(code), device=device)
    yield from [(vectors, vectors), (_negated, plane), (_less, plane, plane), (plane, (1, 0)), (plane[:1], 0), (_negated,)]


def large_lists(code: str, device: str) -> Iterator[tuple[Any, ...]]:
    """Argument lists with arrays of any contents that are so large that functions choose other kernels for them."""
    wide, tall, cube, line = (aiodev.empty(shape, code, device) for shape in ((3, 5000), (5000, 3), (2, 96, 96), 100_000))
    index, few = aiodev.empty(1000, "i8", device), aiodev.empty((3, 7), "i8", device)
    yield from [(wide,), (tall,), (cube,), (line,), (cube, cube), (wide, tall), (line, line), (cube[0], cube[0, 0])]
    yield from [(wide, 1), (tall, 1), (cube, 1), (line, 1000), (wide, few), (line, index), (wide, index), (tall, index)]
    yield from [(line, index, line[:1000]), (tall, index, tall[:1000]), (wide, few, wide[:, :7]), (100_000,)]
    yield from [([line] * 3,), ([wide, wide],), ([cube] * 4,), ([line[:7]] * 4,), (wide, (0, 7)), (line, index.astype("f8"))]
    places = aiodev.empty((2, 7, 96), "i8", device)
    yield from [(cube, places), (line, index, 1.0), (cube[:, :, :9],), (cube[0, :5, :3],), (cube, places, cube[:, :7])]
    yield from [(cube, ((1, 1), (0, 0), (2, 2))), (wide, [3] * 3), (index, line), (cube.T,), (wide.T, tall.T), (5, (3,))]


def _negated(value: Any) -> Any:
    return -value


def _less(one: Any, other: Any) -> Any:
    return one - other


class _Named(SimulatedBackend):
    """The simulated device under CUDA's name, said to have blocks of threads."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(thread_blocks=True, cuda_interfaces=True)


async def _two(selection: Selection) -> int:
    return 2


@contextlib.contextmanager
def _libraries() -> Iterator[None]:
    """Have kernels be launched around what NVIDIA's libraries do, which is left out; products are the kernels' own."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(cublas, "find_library", lambda: None))
        for module, name in ((cusolver, "submit_routines"), (cufft, "submit")):
            patches.enter_context(mock.patch.object(module, "find_library", lambda: "the library"))
            patches.enter_context(mock.patch.object(module, name, lambda *given: None))
        yield


@contextlib.contextmanager
def _cut() -> Iterator[None]:
    """Have short rows cut into pieces, as long ones are."""
    slabs = mock.patch.object(reduction_launches, "slabs_of", lambda *sizes: 2)
    with mock.patch.object(thread_block, "TEAM_PIECE", 1), mock.patch.object(cuda_radix, "TILE", 1), slabs:
        yield


def recorded() -> tuple[dict[str, list[KernelSpec]], set[str]]:
    """(kernels by the function that launches them first, names of functions that took no arguments at all).

    Functions which say that they are not implemented for such a device are none of these.
    """
    aiodev.register_backend("cuda", _Named)
    seen: set[Any] = set()
    found: dict[str, list[KernelSpec]] = {}
    refused: set[str] = set()
    name = ""

    def record(loading: service.PendingKernel) -> None:
        spec = loading.spec
        key = (spec.name, spec.function.__code__, spec.ndim, spec.arguments, spec.options)
        if key not in seen:
            seen.add(key)
            found.setdefault(name, []).append(spec)
        loading.finish(CompileError(spec.name, "recorded, not compiled"))

    with mock.patch.object(service.service, "load", record), _libraries():
        for cut in (False, True):
            with aiodev.device("cuda"), _cut() if cut else contextlib.nullcontext():
                small = [given for code in TYPES for given in argument_lists(code, "cuda")]
                large = [given for code in TYPES[:1] for given in large_lists(code, "cuda")]
                for name, function in _all_functions():
                    taken = sum([_call(function, given) for given in (*small, *large)])
                    for options in (*OPTIONS[""], *OPTIONS.get(name, ())):
                        taken += sum([_call(function, given, **options) for given in (*small[: len(small) // 4], *large)])
                    if not taken:
                        refused.add(name)
    return found, refused


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], **named: Any) -> bool:
    """Whether it took the arguments, or would have on the CPU."""
    try:
        found = function(*arguments, **{own: value(*arguments) if callable(value) else value for own, value in named.items()})
        if inspect.iscoroutine(found):
            with mock.patch.object(Selection, "count", _two):
                asyncio.run(found)
    except NotImplementedError:
        return True
    except Exception:  # only whether it takes them is asked
        return False
    return True
