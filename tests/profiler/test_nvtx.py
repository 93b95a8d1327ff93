"""NVTX ranges of submissions."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import aiodev
from aiodev import profiler
from aiodev.testing import SimulatedBackend


class CudaLike(SimulatedBackend):
    """A simulated device that says that it is CUDA's."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(cuda_interfaces=True)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ranges that were marked."""
    marked: list[str] = []
    module = SimpleNamespace(
        push_range=lambda name, domain: marked.append(f"{domain}: {name}"), pop_range=lambda domain: marked.append("end")
    )
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return marked


async def test_submissions_to_cuda_are_ranges(register, ranges) -> None:
    """Each submission to a CUDA device is a range, named after what is submitted; others are none."""
    name = register(CudaLike)
    await aiodev.init(name)
    stream, other = aiodev.Stream(name), aiodev.Stream("cpu")
    x, y = aiodev.empty(4, device=name), aiodev.empty(4, device="cpu")
    async with profiler.profile(nvtx=True) as prof:
        await stream.copy(x, np.ones(4))
        await other.copy(y, np.ones(4))
    assert ranges == ["aiodev: copy", "end"]
    assert len([each for each in prof.operations if each.runs]) == 2
    await stream.copy(x, np.ones(4))
    assert len(ranges) == 2


async def test_ranges_within_a_profile_without(register, ranges) -> None:
    """A profile with ranges inside one without has them."""
    name = register(CudaLike)
    await aiodev.init(name)
    stream, x = aiodev.Stream(name), aiodev.empty(4, device=name)
    async with profiler.profile():
        await stream.copy(x, np.ones(4))
        async with profiler.profile(nvtx=True):
            await stream.copy(x, np.ones(4))
        await stream.copy(x, np.ones(4))
    assert ranges == ["aiodev: copy", "end"]


def test_without_the_package(monkeypatch) -> None:
    """Ranges need the package nvtx, and say so."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ModuleNotFoundError, match="pip install nvtx"):
        profiler.profile(nvtx=True)


