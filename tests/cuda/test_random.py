"""Random operations, failures among them, give the same memory and the same faults as on the simple portable executor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import world
from selection import some

from aiodev._backends.cuda import CUDABackend
from aiodev._core.backend.interface import Backend
from aiodev.testing import SimulatedBackend


@pytest.fixture(scope="module")
def model() -> Iterator[Backend]:
    """The portable executor, which runs one operation after the other under one lock."""
    made = SimulatedBackend(1)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("seed", some(range(25), 5))
def test_random_operations(seed: int, backend: CUDABackend, model: Backend) -> None:
    """On the stand-in."""
    world.compare(seed, backend, model)
