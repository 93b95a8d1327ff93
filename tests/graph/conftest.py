"""The devices that graphs are tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aiodev
from aiodev.testing import SimulatedBackend


class Plain(SimulatedBackend):
    """A device without command buffers: it is given the operations one by one."""

    name = "plain"

    def start(self) -> None:
        super().start()
        self.executor.has_buffers = False  # type: ignore[misc]


#: The last one where AIODEV_CPU_DEVICES says that there is one.
DEVICES = ["cpu", "sim", "plain", "cpu:1"][: 3 + (aiodev.device_count("cpu") > 1)]


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The native executor; the portable one, with memory that the host does not reach; and one without command buffers."""
    for name, kind in (("sim", SimulatedBackend), ("plain", Plain)):
        if request.param == name and name not in aiodev.available_backends():
            aiodev.register_backend(name, kind)
    aiodev.init_blocking(request.param)
    yield request.param


@pytest.fixture(autouse=True)
def failures_are_told() -> None:
    """Whoever waits for a device hears of failures that nobody was told of: those of earlier tests are told before."""
    told = False
    while not told:
        try:
            aiodev.synchronize_blocking("cpu")
            told = True
        except (aiodev.BackendError, aiodev.DeviceLostError):  # which no waiting mends
            raise
        except aiodev.AiodevError:
            pass
