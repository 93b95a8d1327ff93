"""What the functions of :mod:`aiodev.kernels` launch: each is called with whatever it takes, and nothing is compiled.

Functions are added to the library all the time, so none is named here: each is offered many argument lists, of several types,
and those that it refuses are passed over. They are called on the simulated device, so that what is recorded is what a device
that is not the CPU runs; and under CUDA's name, for the bodies that teams run, with rows in one piece and in several. Of those
each is recorded once.
"""

from __future__ import annotations

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
from aiodev.kernels.reductions import launch as reduction_launches
from aiodev.kernels.sorting import cuda_radix
from aiodev.testing import SimulatedBackend

__all__ = ["REAL", "argument_lists", "functions", "recorded"]

#: Functions that mean nothing for complex numbers, and are not refused before they are compiled.
REAL = frozenset({"clip", "greater", "greater_equal", "less", "less_equal"})

TYPES = ("f4", "f8", "i8", "c8")


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
            if callable(f) and not inspect.iscoroutinefunction(f) and f is not kernels.warm_up
        )


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
    yield from [((3, 3),), ((3,), 1.0), ((3,), 0.5, 2.0), (0, 5, (3,)), (5,)]


class _Named(SimulatedBackend):
    """The simulated device under CUDA's name, said to have blocks of threads."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(thread_blocks=True)


@contextlib.contextmanager
def _cut() -> Iterator[None]:
    """Have short rows cut into pieces, as long ones are."""
    slabs = mock.patch.object(reduction_launches, "slabs_of", lambda *sizes: 2)
    with mock.patch.object(thread_block, "_PIECE", 1), mock.patch.object(cuda_radix, "TILE", 1), slabs:
        reduction_launches._shares.cache_clear()
        yield
    reduction_launches._shares.cache_clear()


def recorded() -> tuple[dict[str, list[KernelSpec]], set[str]]:
    """(kernels by the function that launches them first, names of functions that took no arguments at all)."""
    aiodev.register_backend("sim", SimulatedBackend)
    aiodev.register_backend("cuda", _Named)
    seen: set[Any] = set()
    found: dict[str, list[KernelSpec]] = {}
    refused: set[str] = set()
    name = ""

    def record(loading: service.PendingKernel) -> None:
        spec = loading.spec
        key = (spec.name, spec.function.__code__, spec.ndim, spec.arguments, spec.options)
        if loading.backend.name == "cuda":
            key = spec.function.__code__ if ("team", True) in spec.options else None
        if key is not None and key not in seen:
            seen.add(key)
            found.setdefault(name, []).append(spec)
        loading.finish(CompileError(spec.name, "recorded, not compiled"))

    with mock.patch.object(service.service, "load", record):
        for device, cut in (("sim", False), ("cuda", False), ("cuda", True)):
            with aiodev.device(device), _cut() if cut else contextlib.nullcontext():
                arguments = {code: list(argument_lists(code, device)) for code in TYPES}
                for name, function in functions():
                    taken = sum(_call(function, given) for code in TYPES for given in arguments[code])
                    if device == "cuda":
                        _call(function, arguments[TYPES[0]][0], axis=0)
                    if not taken and device == "sim":
                        refused.add(name)
    return found, refused


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], **named: int) -> bool:
    """Whether it took the arguments."""
    with contextlib.suppress(Exception):  # only whether it takes them is asked
        function(*arguments, **named)
        return True
    return False
