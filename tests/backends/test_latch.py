"""Latches hold streams of the core, on the simulated device as on the CPU."""

from __future__ import annotations

import pytest

import aiodev
from aiodev.testing import Latch, SimulatedBackend


@pytest.fixture(params=["cpu", "sim"])
def stream(request: pytest.FixtureRequest) -> aiodev.Stream:
    """A stream of a device of each kind."""
    if request.param not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    return aiodev.Stream(request.param)


async def test_latch_holds_until_its_block_ends(stream: aiodev.Stream) -> None:
    """Work behind a latch is pending inside the block and done soon after."""
    with Latch(stream):
        event = stream.record_event()
        assert not event.query()
    await event
    assert event.query()


async def test_latch_can_fail_the_stream(stream: aiodev.Stream) -> None:
    """A latch that is released with an error fails the stream with it, once."""
    latch = Latch(stream)
    latch.release(ValueError("chosen"))
    latch.release()
    with pytest.raises(ValueError, match="chosen"):
        await stream.synchronize()
    await stream.synchronize()
