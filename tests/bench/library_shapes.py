"""What the library does with two million elements in shapes and with values that are not all alike.

Rows and columns of a few elements, rows at random places, many numbers added to few places, NaN among the numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from harness import Figure, Run
from library_peers import NUMPY, TORCH, Call, has_torch, rates, tensors

import aiodev
import aiodev.kernels as kernels

__all__ = ["FIGURES"]

HostArray = np.ndarray[Any, Any]
#: Of the host's array and its numbers: ours, NumPy's, and, given tensors of the same numbers, PyTorch's.
Make = Callable[[HostArray], tuple[Call, Call, Callable[[], Call]]]
_ELEMENTS = 2 * 10**6
#: Of each peer's rate: as fast, within what rates differ from run to run.
_AT_LEAST = {NUMPY: 0.9, TORCH: 0.9}


def shaped(shown: str, shape: tuple[int, ...], make: Make) -> Callable[[Run], Awaitable[Figure]]:
    """A function of an array of this shape, in its elements."""

    async def figure(run: Run) -> Figure:
        lengths = (max(16, run.scale(shape[0])), *shape[1:])
        host = np.random.default_rng(1).standard_normal(lengths).astype(np.float32)
        ours, numpys, torchs = make(host)
        peers = {NUMPY: numpys} | ({TORCH: torchs()} if has_torch() else {})
        note = f"{' × '.join(f'{n:,}' for n in lengths)} float32"
        return await rates(run, shown, "G elements/s", host.size, ours, peers, note, _AT_LEAST, count=5)

    return figure


def _device(host: HostArray) -> aiodev.Array:
    return aiodev.asarray(host, device="cpu")


def along(name: str, axis: int | tuple[int, ...], torchs: str, numpys: str | None = None) -> Make:
    """A function along one axis or several, by its names."""

    def make(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
        in_numpy: Any = getattr(np, numpys or name)
        result = in_numpy(host, axis=axis)
        x, out, ours = _device(host), aiodev.empty(result.shape, result.dtype, "cpu"), getattr(kernels, name)

        def of_torch() -> Call:
            import torch

            (t, to), function = tensors(host, result), getattr(torch, torchs)
            return lambda: function(t, axis, out=to)

        return lambda: ours(x, axis=axis, out=out), lambda: in_numpy(host, axis=axis, out=result), of_torch

    return make


def softmax(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """Of each row."""
    x, out, result = _device(host), aiodev.empty(host.shape, "f4", "cpu"), np.empty_like(host)

    def in_numpy() -> None:
        np.subtract(host, host.max(axis=1, keepdims=True), out=result)
        np.exp(result, out=result)
        np.divide(result, result.sum(axis=1, keepdims=True), out=result)

    def of_torch() -> Call:
        import torch

        t, to = tensors(host, result)
        return lambda: torch.softmax(t, 1, out=to)

    return lambda: kernels.softmax(x, axis=1, out=out), in_numpy, of_torch


def rows_at_random(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """As many rows as there are, from random places."""
    places, result = np.random.default_rng(2).integers(0, len(host), len(host)), np.empty_like(host)
    x, where, out = _device(host), _device(places), aiodev.empty(host.shape, "f4", "cpu")

    def of_torch() -> Call:
        import torch

        t, at, to = tensors(host, places, result)
        return lambda: torch.index_select(t, 0, at, out=to)

    return (
        lambda: kernels.take(x, where, axis=0, out=out),
        lambda: np.take(host, places, axis=0, out=result, mode="clip"),
        of_torch,
    )


def added_to_few(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """Each number to one of 1,000 places."""
    places, sums = np.random.default_rng(2).integers(0, 1000, len(host)), np.zeros(1000, np.float32)
    x, where, totals = _device(host), _device(places), _device(sums)

    def of_torch() -> Call:
        t, at, to = tensors(host, places, sums)
        return lambda: to.index_add_(0, at, t)

    return lambda: kernels.scatter_add(totals, where, x), lambda: np.add.at(sums, places, host), of_torch


def rolled(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """Each row by one; neither peer takes the result."""
    x, out = _device(host), aiodev.empty(host.shape, "f4", "cpu")

    def of_torch() -> Call:
        import torch

        (t,) = tensors(host)
        return lambda: torch.roll(t, 1, 1)

    return lambda: kernels.roll(x, 1, axis=1, out=out), lambda: np.roll(host, 1, axis=1), of_torch


def transposed(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """A matrix, as a copy."""
    result = np.empty(host.shape[::-1], np.float32)
    x, out = _device(host), aiodev.empty(result.shape, "f4", "cpu")

    def of_torch() -> Call:
        t, to = tensors(host, result)
        return lambda: to.copy_(t.T)

    return lambda: aiodev.current_stream().copy(out, x.T), lambda: np.copyto(result, host.T), of_torch


def joined(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """Rows of two arrays, one after the other."""
    result = np.concatenate([host, host], axis=1)
    x, out = _device(host), aiodev.empty(result.shape, "f4", "cpu")

    def of_torch() -> Call:
        import torch

        t, to = tensors(host, result)
        return lambda: torch.cat([t, t], 1, out=to)

    return lambda: kernels.concat([x, x], axis=1, out=out), lambda: np.concatenate([host, host], 1, out=result), of_torch


def times_vector(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """A matrix times a vector."""
    vector, result = np.ones((host.shape[1], 1), np.float32), np.empty((len(host), 1), np.float32)
    x, y, out = _device(host), _device(vector), aiodev.empty(result.shape, "f4", "cpu")

    def of_torch() -> Call:
        import torch

        t, v, to = tensors(host, vector, result)
        return lambda: torch.matmul(t, v, out=to)

    return lambda: kernels.matmul(x, y, out=out), lambda: np.matmul(host, vector, out=result), of_torch


def logarithm_with_nan(host: HostArray) -> tuple[Call, Call, Callable[[], Call]]:
    """Of positive numbers, a third of which is NaN."""
    host = np.where(np.random.default_rng(2).random(host.shape) < 1 / 3, np.float32(np.nan), np.abs(host))
    x, out, result = _device(host), aiodev.empty(host.shape, "f4", "cpu"), np.empty_like(host)

    def of_torch() -> Call:
        import torch

        t, to = tensors(host, result)
        return lambda: torch.log(t, out=to)

    return lambda: kernels.log(x, out=out), lambda: np.log(host, out=result), of_torch


_THREE, _EIGHT, _SIXTEEN = ((_ELEMENTS // width, width) for width in (3, 8, 16))
_IMAGES, _FOUR_AXES = (32, 20, 56, 56), (20, 10, 100, 100)
FIGURES = {
    "sum-rows-of-3": shaped("sum of each row", _THREE, along("sum", 1, "sum")),
    "max-rows-of-3": shaped("largest of each row", _THREE, along("max", 1, "amax")),
    "sum-3-columns": shaped("sum of each column", _THREE, along("sum", 0, "sum")),
    "sum-of-channels": shaped("sum of each channel of images", _IMAGES, along("sum", (0, 2, 3), "sum")),
    "max-of-two-axes": shaped("largest along the first and third axis", _FOUR_AXES, along("max", (0, 2), "amax")),
    "cumulative-sum-rows-of-8": shaped(
        "running sum of each row", _EIGHT, along("cumulative_sum", 1, "cumsum", "cumsum")
    ),
    "softmax-rows-of-16": shaped("softmax of each row", _SIXTEEN, softmax),
    "take-rows-of-8": shaped("rows at random places", _EIGHT, rows_at_random),
    "concat-rows-of-3": shaped("rows of two arrays, joined", _THREE, joined),
    "roll-rows": shaped("each row rolled by one", (2000, 1000), rolled),
    "transpose": shaped("transposed", (2000, 1000), transposed),
    "transpose-power-of-two": shaped("transposed", (2048, 1024), transposed),
    "scatter-add-to-few": shaped("each number added to one of 1,000", (_ELEMENTS,), added_to_few),
    "matmul-tall-vector": shaped("product of a tall matrix with a vector", (140_625, 64), times_vector),
    "log-with-nan": shaped("natural logarithm, a third NaN", (_ELEMENTS,), logarithm_with_nan),
}
