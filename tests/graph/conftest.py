"""The devices that graphs are tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aiodev
from aiodev.testing import SimulatedBackend


@pytest.fixture(scope="module", params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """An executor with command buffers, and one that is given operations one by one, of memory that the host does not reach."""
    if request.param == "sim" and "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking(request.param)
    yield request.param
