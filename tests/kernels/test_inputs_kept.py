"""A request that fails takes its own results along, and nothing that it only read: whatever functions it called."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from selection import some

import aiodev
from aiodev import kernels as k
from aiodev.kernels import linalg
from aiodev.testing.latch import Latch

#: Rows too few to share, and one that takes several launches.
SHAPES = [(8, 8), (1, 300_000)]

CALLS: dict[str, Callable[[Any], Any]] = {
    name: getattr(k, name)
    for name in (
        "exp", "negative", "sum", "prod", "mean", "var", "std", "min", "max", "argmin", "argmax", "all", "any",
        "sort", "argsort", "unique_values", "unique_counts", "nonzero", "flip",
        "softmax", "log_softmax", "layer_norm", "histogram",
    )
} | {
    "add": lambda x: k.add(x, x),
    "where": lambda x: k.where(x, x, x),
    "clip": lambda x: k.clip(x, 0, 1),
    "astype": lambda x: k.astype(x, "f8"),
    "sum of columns": lambda x: k.sum(x, axis=0),
    "var of rows": lambda x: k.var(x, axis=1),
    "argmax of columns": lambda x: k.argmax(x, axis=0),
    "running sum of rows": lambda x: k.cumulative_sum(x, axis=1),
    "running sum of columns": lambda x: k.cumulative_sum(x, axis=0),
    "running sum of long columns": lambda x: k.cumulative_sum(x.reshape(2, x.size // 2), axis=0),
    "running product of rows": lambda x: k.cumulative_prod(x, axis=1, include_initial=True),
    "sort of rows": lambda x: k.sort(x, axis=1),
    "matmul": lambda x: k.matmul(x[:, :8], x[:8, :8].T),
    "vecdot": lambda x: k.vecdot(x, x),
    "norm": linalg.norm,
    "norm of rows": lambda x: linalg.norm(x, axis=1),
    "singular values": linalg.svdvals,
    "transform": k.fft.fft,
    "transform back": k.fft.irfftn,
    "take": lambda x: k.take(x, aiodev.asarray(np.zeros(3, np.int64), device="cpu"), axis=1),
    "take from rows": lambda x: k.take(x.reshape(x.size // 4, 4), aiodev.asarray(np.zeros(3, np.int64), device="cpu"), axis=1),
    "tensordot": lambda x: k.tensordot(x, x, axes=2),
    "copy": lambda x: aiodev.empty((x.size // 4, 4), "f4", "cpu").T.copy_from(x.reshape(4, x.size // 4)),
    "integer norm": lambda x: linalg.vector_norm(k.astype(x, "i4")),
    "searchsorted": lambda x: k.searchsorted(x[0], x[0]),
    "concat": lambda x: k.concat([x, x]),
    "stack": lambda x: k.stack([x, x]),
    "pad": lambda x: k.pad(x, 1),
    "roll": lambda x: k.roll(x, 1),
    "repeat": lambda x: k.repeat(x, 2),
    "histogram of edges": lambda x: k.histogram(x, bins=np.array([0.0, 0.5, 2.0])),
    "weighted histogram": lambda x: k.histogram(x, weights=x),
}  # fmt: skip


@pytest.fixture
def told() -> Iterator[None]:
    """Whoever synchronises the device next is told of no failure of ours."""
    yield
    for _ in range(100):
        try:
            aiodev.synchronize_blocking("cpu")
        except (OSError, aiodev.DependencyError, ExceptionGroup):
            continue
        break


def fail() -> None:
    raise OSError


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("shape", some(SHAPES), ids=str)
@pytest.mark.parametrize("name", CALLS)
async def test_what_was_only_read_stays_as_it_was(name: str, shape: tuple[int, int]) -> None:
    """The call is submitted behind a failure, so nothing of it runs; then its argument is read."""
    x = aiodev.asarray(np.ones(shape, np.float32), device="cpu")
    with aiodev.Stream("cpu") as stream:
        stream.call(fail)
        with contextlib.suppress(OSError, aiodev.DependencyError):
            found = CALLS[name](x)
            if inspect.isawaitable(found):  # who has to know sizes
                await found
        with contextlib.suppress(OSError, aiodev.DependencyError):
            await stream.synchronize()
    assert (await x.numpy() == 1).all()


def test_values_of_the_host_are_taken_at_the_call() -> None:
    """Edges and weights that functions are given as host arrays may change right after the call."""
    edges, weights = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0])
    with aiodev.Stream("cpu") as stream, Latch(stream):
        counts, _ = k.histogram(aiodev.asarray([0.5, 1.5, 1.7]), edges)
        drawn = k.random.choice(2, 20, p=weights)
        edges[:], weights[:] = 0, [1.0, 0.0]
    assert counts.numpy_blocking().tolist() == [1, 2]
    assert drawn.numpy_blocking().all()
