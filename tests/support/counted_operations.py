"""Operations that count how often their bodies run, and the kernels that they launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from native import load_native

import aiodev


@aiodev.kernel
def add_scaled(i: int, factor: float, x: Any, out: Any) -> None:
    out[i] += factor * x[i]


@aiodev.kernel
def subtract(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] - y[i]


class Counted:
    """An operation, and how often its body has run."""

    def __init__(self, body: Callable[..., Any], **roles: Any) -> None:
        def counted(*args: Any, **named: Any) -> Any:
            self.ran += 1
            return body(*args, **named)

        self.ran = self.called = 0
        counted.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
        self.function = aiodev.operation(**roles)(counted)

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.called += 1
        return self.function(*args, **named)

    @property
    def repeated(self) -> int:
        return self.called - self.ran


def accumulating(most: int = 1024) -> Counted:
    """``out += factor * x`` of arrays of any shape; calls with another ``tag`` have nothing in common."""

    def accumulate(call: aiodev.Call, factor: Any, x: aiodev.Array, out: aiodev.Array, *, tag: int = 0) -> aiodev.Array:
        call.launch(add_scaled, x.size, factor.astype(x.dtype), x.reshape(-1), out.reshape(-1))
        return out

    return Counted(accumulate, numbers=["factor"], reads=["x"], writes="out", most=most)


def on_device(host: Any, dtype: str = "f4") -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(host, dtype), device="cpu")


async def compile_kernels() -> None:
    """What is not compiled yet is launched, but not remembered; nor is anything without native code."""
    load_native()
    x, wide, gaps = aiodev.zeros(2, "f4", "cpu"), aiodev.zeros(2, "f8", "cpu"), on_device([1, 2, 3])[::2]
    for array in (x, wide, gaps):
        await add_scaled.compile(array.dtype.type(2), array, array)
    await subtract.compile(x, x, x)
