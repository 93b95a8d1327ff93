"""What tests of the profiler share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiodev
from aiodev._array.copy import copy_arrays
from aiodev._core.streams import stream
from aiodev.testing import SimulatedBackend


@pytest.fixture(scope="module", autouse=True)
def unchecked_copies() -> Iterator[None]:
    """A copy is one operation, to be counted, under AIODEV_DEBUG=1, too, which would have another one check it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream.copy_arrays, "call", copy_arrays)
        yield


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest, register: Callable[[type[Any]], str]) -> str:
    """A device of the CPU's executor, and one of the portable executor."""
    if request.param == "cpu":
        aiodev.init_blocking("cpu")
        return "cpu"
    name = register(SimulatedBackend)
    aiodev.init_blocking(name)
    return name
