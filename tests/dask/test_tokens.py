"""What Dask calls arrays: keys that nobody has to wait for, and that another state of an array does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dask.base import tokenize

import aiodev
import aiodev.dask
from aiodev import autograd, kernels
from aiodev.dask import arrays
from aiodev.testing import Latch, SimulatedBackend


def awaiting(gate: asyncio.Future[None]) -> aiodev.Array:
    """Ones, when the gate is open: what computes them waits for a future of this loop."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(8)
        stream.wait_future(gate)
        x += 1
    return x


async def test_scatter_awaits_what_waits_for_the_client_s_loop(client: Any) -> None:
    """As it is called by default, by which Dask makes the key of the array."""
    gate = asyncio.get_running_loop().create_future()
    scattering = asyncio.ensure_future(client.scatter(awaiting(gate)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not scattering.done()  # and the loop goes on
    gate.set_result(None)
    assert await (await client.submit(kernels.negative, await scattering)).tolist() == [-1] * 8


FORMS: dict[str, Callable[[Any, aiodev.Array], Any]] = {
    "submit": lambda client, x: client.submit(kernels.sum, x),
    "submit, in a list": lambda client, x: client.submit(lambda given: kernels.sum(given[0]), [x]),
    "submit, in a function": lambda client, x: client.submit(lambda: kernels.sum(x)),
    "map": lambda client, x: client.map(kernels.sum, [x])[0],
}


@pytest.mark.parametrize("form", FORMS)
async def test_what_waits_for_the_client_s_loop_is_refused_as_an_argument(
    client: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pickled at once, on that loop, which would never go on; when it is computed, it is taken."""
    monkeypatch.setattr(arrays, "PATIENCE", 0.01)
    gate = asyncio.get_running_loop().create_future()
    x = awaiting(gate)
    with pytest.raises(TypeError, match="Could not serialize") as caught:
        FORMS[form](client, x)
    assert isinstance(caught.value.__cause__, aiodev.SyncError)
    assert "`await client.scatter(array)` instead" in str(caught.value.__cause__)
    gate.set_result(None)
    await x.numpy()
    assert await (await FORMS[form](client, x)).item() == 8  # though the failure holds what Dask had made for the first key


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest, register: Callable[[type[Any]], str]) -> str:
    """One whose memory the host has, and one whose memory it has not."""
    return "cpu" if request.param == "cpu" else register(SimulatedBackend)


def test_a_token_reads_nothing() -> None:
    """Not even what is still to be computed."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(8)
    with Latch(stream):
        with stream:
            x += 1
        assert tokenize(x) == tokenize(x)
        assert not x._buffer.is_written()


def test_what_is_written_has_another_token(device: str) -> None:
    """By a kernel, a copy or an assignment, through a view or another stream; what only reads changes nothing."""
    with aiodev.device(device):
        x = aiodev.zeros((4, 4))
        seen = [tokenize(x)]

        def note() -> None:
            seen.append(tokenize(x))

        x + 1
        x.numpy_blocking()
        assert tokenize(x) == seen[0]
        x += 1
        note()
        x[1] = 7
        note()
        x.copy_from(np.ones((4, 4))).synchronize_blocking()
        note()
        with aiodev.Stream():
            x[:, 2] += 1
            note()
    assert len(set(seen)) == len(seen)


def test_views_are_told_apart() -> None:
    """By place, shape, strides and dtype, and by how they are differentiated; arrays of equal values are, too."""
    x = aiodev.zeros((4, 4), device="cpu")
    several = [x, x[1:], x[:-1], x.T[1:].T, x.reshape(16), aiodev.zeros((4, 4), device="cpu"), autograd.Variable(x)]
    several.append(autograd.Variable(x, requires_grad=False))
    assert len(set(map(tokenize, several))) == len(several)
    assert tokenize(x[1:]) == tokenize(x[1:])


def test_memory_of_others_has_no_token_to_go_by() -> None:
    """They write to it without telling."""
    host = np.zeros(3)
    x = aiodev.from_dlpack(host)
    before = tokenize(x)
    host += 1
    assert tokenize(x) != before


async def test_a_pure_task_is_not_run_again(client: Any) -> None:
    """Of the same array, until that is written."""
    x = aiodev.ones(3, device="cpu")
    await x.numpy()
    first, again = client.submit(kernels.sum, x), client.submit(kernels.sum, x)
    assert first.key == again.key
    x += 1
    await x.numpy()
    assert await (await client.submit(kernels.sum, x)).item() == 6
