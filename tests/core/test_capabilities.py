"""What can be asked of a backend without knowing its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev._core.backend.registry import registry
from aiodev.testing import SimulatedBackend


@pytest.mark.parametrize("device", ["cpu", "cpu:0", aiodev.Device("cpu")], ids=repr)
def test_capabilities_of_a_device(device: aiodev.DeviceLike) -> None:
    """By a device or its name; nothing starts."""
    assert aiodev.capabilities(device) is aiodev.get_backend("cpu").capabilities


def test_capabilities_of_the_current_device(simulated: SimulatedBackend) -> None:
    """By default."""
    with aiodev.device(simulated.name):
        assert aiodev.capabilities() is simulated.capabilities
    assert not registry.handle(simulated.name).started


def test_a_backend_is_found_by_what_it_can_do(add_backend: Callable[..., Any]) -> None:
    """Whether or not it can start here, and past those that cannot even be loaded."""

    def broken() -> Any:
        raise ImportError("no such driver")

    aiodev.register_backend("broken", broken)
    npu = add_backend("npu", reason="no driver")
    npu.capabilities = npu.capabilities._replace(dlpack_types=(77,))
    assert registry.name_of(lambda has: 77 in has.dlpack_types) == "npu"
    assert registry.name_of(lambda has: 78 in has.dlpack_types) is None


def test_an_unknown_kind_of_device_exports_by_its_own_number(simulated: SimulatedBackend) -> None:
    """DLPack's type is the backend's to say."""
    simulated.capabilities = simulated.capabilities._replace(dlpack_types=(77,))
    array = aiodev.zeros(3, device=f"{simulated.name}:1")
    assert array.__dlpack_device__() == (77, 1)


def test_memory_of_no_backend_is_refused() -> None:
    """The error says what is missing."""

    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 99, 0

    with pytest.raises(BufferError, match="DLPack device type 99: no backend here"):
        aiodev.from_dlpack(Elsewhere())


def test_a_backend_without_streams_of_its_own_refuses_native_calls(simulated: SimulatedBackend) -> None:
    """At once, by the backend's name, and the stream goes on."""
    stream = aiodev.Stream(f"{simulated.name}:0")
    with pytest.raises(NotImplementedError, match=f"backend '{simulated.name}' has no streams of its own"):
        stream.call_native((1, 2))
    assert stream.call(int, 3).synchronize_blocking(30) == 3


def test_host_memory_is_an_array_on_the_host() -> None:
    """Whatever device is asked for."""
    assert aiodev.from_dlpack(np.zeros(3)).device == aiodev.Device("cpu")
