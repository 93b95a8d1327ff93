"""A kernel that fails leaves what it only reads as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import KernelError

pytestmark = pytest.mark.anyio


@aiodev.kernel
def check(i: int, x: Any, out: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)
    out[i] = x[i]


@aiodev.kernel
def copy(i: int, x: Any, out: Any) -> None:
    out[i] = x[i]


@pytest.mark.parametrize("count", [8, 20_000])
@pytest.mark.parametrize("same_stream", [True, False])
async def test_inputs_of_a_failed_kernel_are_good(count: int, same_stream: bool) -> None:
    """They can be read while it is pending and after it, whichever stream it is on; its outputs cannot."""
    host = np.arange(float(count))
    made, used = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    if same_stream:
        used = made
    async with made:
        x, out = aiodev.asarray(host), aiodev.zeros(count)
        used.wait_stream(made)
    for _ in range(2):  # the first launch waits for the compiler
        failing = check[count, used](x, out)
        assert (await x.numpy() == host).all()
        with pytest.raises(KernelError):
            await out.numpy()
        with pytest.raises(KernelError):
            await failing
        assert (await x.numpy() == host).all()
        assert (np.asarray(x) == host).all()
        with pytest.raises(KernelError):
            await out.numpy()
    async with used:
        copy[count](x, out)
        assert (await out.numpy() == host).all()
    failing = check[count, used](x, out)
    assert (x.numpy_blocking() == host).all()
    with pytest.raises(KernelError):
        await failing


async def test_a_reader_that_runs_keeps_no_other_reader_out() -> None:
    """An array that a pending kernel reads is read at once."""
    x, out = aiodev.asarray(np.ones(8)), aiodev.zeros(8)
    await aiodev.synchronize()
    stream = aiodev.Stream("cpu")
    gate = stream._gate()
    pending = copy[8, stream](x, out)
    assert (await x.numpy() == 1).all() and not pending.query()
    gate.open()
    await pending


async def test_memory_that_is_read_serves_nobody_else() -> None:
    """It is handed out again when its readers are done, though it had been written long before."""
    stream, out = aiodev.Stream("cpu"), aiodev.zeros(1000)
    await aiodev.synchronize()
    x = aiodev.asarray(np.ones(1000))
    await aiodev.synchronize()
    gate = stream._gate()
    done = copy[1000, stream](x, out)
    address = x._address
    del x
    others = [aiodev.zeros(1000) for _ in range(4)]
    assert all(other._address != address for other in others)
    gate.open()
    await done
    assert (await out.numpy() == 1).all()
