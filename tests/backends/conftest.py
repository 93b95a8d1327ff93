"""Backends to hold to the rules: the CPU on both executors, and the simulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiodev._backends.cpu import CPUBackend
from aiodev._backends.cpu.host import HostBackend
from aiodev._core.config import Settings
from aiodev._core.errors import BackendUnavailableError
from aiodev.testing import SimulatedBackend

KINDS = ("native", "python", "sim")


def make_backend(kind: str, devices: int = 2) -> HostBackend:
    """A fresh backend, not started; skips where this machine cannot have it."""
    if kind == "sim":
        return SimulatedBackend(devices)
    environment = {"AIODEV_EXECUTOR": kind, "AIODEV_CPU_DEVICES": str(devices)}
    try:
        return CPUBackend(Settings.from_environment(environment))
    except BackendUnavailableError as error:
        pytest.skip(error.reason)


@pytest.fixture(scope="module", params=KINDS)
def backend(request: pytest.FixtureRequest) -> Iterator[HostBackend]:
    """A started backend with two devices, for a module's tests."""
    made = make_backend(request.param)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module", params=("native", "python"))
def cpu(request: pytest.FixtureRequest) -> Iterator[HostBackend]:
    """A started CPU backend with one device, for a module's tests."""
    made = make_backend(request.param, devices=1)
    made.start()
    yield made
    made.stop()
