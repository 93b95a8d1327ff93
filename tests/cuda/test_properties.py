"""How many devices there are, by NVML and by the driver, without starting the driver here."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import standin

from aiodev._backends.cuda import CUDABackend, backend as cuda_backend, properties
from aiodev._backends.cuda.driver import DEFAULT_CHANNELS, LIBRARY, MOST_CHANNELS
from aiodev._backends.cuda.properties import visible_count
from aiodev._backends.cuda.tuning import CHANNELS
from aiodev._core.config import Settings
from aiodev._core.usable_cores import CoreWatch, Quota, UsableCores


class NVMLError(Exception):
    """What NVML raises."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with a driver and NVML, whose answers a test may change."""
    uuids = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]
    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13000,
        nvmlDeviceGetCount=lambda: len(uuids),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: uuids[handle],
        nvmlDeviceGetMigMode=lambda handle: (0, 0),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    properties._count_by_nvml.cache_clear()
    return fake


@pytest.fixture(autouse=True)
def forget() -> Any:
    """Answers are kept for the process."""
    yield
    properties._count_by_nvml.cache_clear()


def test_nvml_counts(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """All devices, or those that ``CUDA_VISIBLE_DEVICES`` lets through, as it is now."""
    assert properties.count_devices(LIBRARY) == (None, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert properties.count_devices(LIBRARY) == (None, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert properties.count_devices(LIBRARY) == ("no CUDA device is visible", 0)


def test_nvml_knows_the_driver(nvml: SimpleNamespace) -> None:
    """A driver that is too old is one."""
    nvml.nvmlSystemGetCudaDriverVersion_v2 = lambda: 11080
    reason, count = properties.count_devices(LIBRARY)
    assert count == 0 and "11.8" in str(reason) and "12.0" in str(reason)


def test_where_nvml_cannot_say(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is asked, in another process."""

    def fail() -> None:
        raise NVMLError("not here")

    nvml.nvmlInit = fail
    monkeypatch.setattr(properties, "find_devices", lambda library: properties.Findings("asked the driver"))
    assert properties.count_devices(LIBRARY) == ("asked the driver", 0)


def test_visible_devices_are_counted_as_the_driver_does() -> None:
    """Visible devices are counted as the driver counts them."""
    uuids = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]
    assert visible_count(None, uuids) == 3
    assert visible_count("", uuids) == 0
    assert visible_count("0,2", uuids) == 2
    assert visible_count("1,7,0", uuids) == 1
    assert visible_count("0,0", uuids) == 0
    assert visible_count("GPU-cc,GPU-aaa", uuids) == 2
    assert visible_count("GPU-aa", uuids) == 0
    assert visible_count("-1", uuids) == 0
    assert visible_count("MIG-x", uuids) is None


def test_divided_gpus_are_counted_by_the_driver(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML counts whole GPUs; of one in MIG mode the driver shows parts. GPUs that know no such mode are counted as ever."""
    monkeypatch.setattr(properties, "find_devices", lambda library: properties.Findings("asked the driver"))

    def unknown(handle: int) -> tuple[int, int]:
        raise NVMLError("not supported")

    nvml.nvmlDeviceGetMigMode = unknown
    assert properties.count_devices(LIBRARY) == (None, 3)
    properties._count_by_nvml.cache_clear()
    nvml.nvmlDeviceGetMigMode = lambda handle: (int(handle == 1), 1)
    assert properties.count_devices(LIBRARY) == ("asked the driver", 0)


@pytest.mark.parametrize(("name", "kind"), [("Stand-in", "GPU"), ("Stand-in MIG 1g.10gb", "MIG")])
def test_parts_of_a_gpu_have_identities_of_their_own(name: str, kind: str, run: Callable[..., str]) -> None:
    """As ``CUDA_VISIBLE_DEVICES`` has them."""
    said = run("print(backend.device_properties(0).extra['uuid'])", STANDIN_NAME=name)
    assert said.startswith(f"{kind}-0101")


def test_a_driver_that_did_not_answer_is_asked_again(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy, the process that asks may not come to its end in time; the next one may."""
    properties._find.cache_clear()
    monkeypatch.setattr(properties, "_TIMEOUT", 0.001)
    assert "could not be asked" in str(properties.find_devices(library).reason)
    monkeypatch.undo()
    assert len(properties.find_devices(library).devices) == 2


def test_the_environment_is_left_as_it_was(run: Callable[..., str]) -> None:
    """What is set for the driver while it starts, processes that are started later do not inherit."""
    said = run(
        """
import os
name = "CUDA_DEVICE_MAX_CONNECTIONS"
os.environ.pop(name, None)
from aiodev._backends.cuda import backend as module
start = module.Driver
module.Driver = lambda library: print(os.environ[name]) or start(library)
backend.start()
print(os.environ.get(name))
"""
    )
    assert said == f"{CHANNELS}\nNone\n"


def test_a_device_without_room_for_a_context_says_so(run: Callable[..., str]) -> None:
    """Whose memory need not be full: each process takes some of the device's channels, and the message says how many."""
    said = run(
        """
driver.inject("cuDevicePrimaryCtxRetain", 2)
try:
    backend.start()
except MemoryError as error:
    print(error)
""",
        CUDA_DEVICE_MAX_CONNECTIONS="12",
    )
    assert "starting cuda:0: the device has no room for another context" in said and "12 of its channels" in said


@pytest.mark.parametrize("asked_for", ["4", "64", None])
@pytest.mark.parametrize("is_there", [False, True])
def test_streams_divide_the_channels_of_the_context(run: Callable[..., str], asked_for: str | None, is_there: bool) -> None:
    """One that another library made may be of when nothing was set: no more than the driver's default is counted on."""
    said = run(
        f"""
import ctypes
if {is_there}:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module = ctypes.CDLL(library)
    module.cuInit(0)
    module.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
backend.start()
print(backend.executor.devices[0]._channels)
""",
        **({} if asked_for is None else {"CUDA_DEVICE_MAX_CONNECTIONS": asked_for}),
    )
    expected = min(int(asked_for or CHANNELS), DEFAULT_CHANNELS if is_there else MOST_CHANNELS)
    assert said == f"{expected}\n"


def test_watching_threads_spin_as_the_usable_cores_allow(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all devices, from the start on and whenever that changes; once the backend has stopped it is told no more."""
    usable = UsableCores(8, Quota(1.5, "/groups/cpu.max"))
    watch = CoreWatch(lambda: usable)
    watch.look()
    monkeypatch.setattr(cuda_backend, "core_watch", watch)
    backend = CUDABackend(Settings(), library=library, compiler=standin.StandInCompiler())
    backend.start()
    spins = [{device.native.spin for device in backend.executor.devices}]
    usable = UsableCores(8)
    watch.look()
    spins.append({device.native.spin for device in backend.executor.devices})
    backend.stop()
    usable = UsableCores(1)
    watch.look()
    spins.append({device.native.spin for device in backend.executor.devices})
    assert spins == [{20_000}, {200_000}, {200_000}]
