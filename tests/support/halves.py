"""Arrays that several streams write a part of, and kernels that fill them or fail."""

from __future__ import annotations

from typing import Any

import aiodev

LARGE = 100_000  # too large to be copied at once


@aiodev.kernel
def put(i: int, x: Any, value: float) -> None:
    """Fill."""
    x[i] = value


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    """Write something, and fail."""
    x[i] = -1.0
    if i == 0:
        raise ValueError("no such tile")


def halves(size: int) -> tuple[aiodev.Array, aiodev.Array, aiodev.Array]:
    """An array of zeros that nothing uses, and its halves."""
    with aiodev.Stream("cpu") as stream:
        array = aiodev.zeros(size)
    stream.synchronize_blocking()
    return array, array[: size // 2], array[size // 2 :]
