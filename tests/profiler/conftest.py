"""What tests of the profiler share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aiodev
from aiodev.testing import SimulatedBackend


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest, register: Callable[[type[Any]], str]) -> str:
    """A device of the CPU's executor, and one of the portable executor."""
    if request.param == "cpu":
        aiodev.init_blocking("cpu")
        return "cpu"
    name = register(SimulatedBackend)
    aiodev.init_blocking(name)
    return name
