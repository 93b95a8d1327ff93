"""The allocator's common case is written twice: tests of its policy are of either."""

from __future__ import annotations

import pytest
from native import load_native

from aiodev._memory.allocator import CachingAllocator, DeviceBuffer

#: Those that call the allocator itself.
OF_POLICY = {"test_abandonment", "test_caching", "test_many_streams", "test_segments", "test_traces"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None and metafunc.module.__name__.rpartition(".")[2] in OF_POLICY:
        metafunc.parametrize("code", ["native", "python"], indirect=True)


@pytest.fixture(autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose common case it is."""
    load_native()
    if getattr(request, "param", "native") == "python":
        monkeypatch.setattr(CachingAllocator, "allocate", CachingAllocator._allocate)
        monkeypatch.setattr(DeviceBuffer, "__del__", DeviceBuffer._release)
