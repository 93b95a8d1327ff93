"""Properties of CUDA devices, asked without starting the driver in this process.

A driver that was started here could not be used in a process that is forked from this one. How many devices there are is asked
of NVML, which has no such state, where ``nvidia-ml-py`` is installed; everything else, or all of it, of the driver in a
short-lived process of its own, where the driver itself applies ``CUDA_VISIBLE_DEVICES``. Answers are kept for as long as that
variable stays as it is, unless the driver did not answer. Where there is no driver nothing is started.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Any

from aiodev._backends.cuda.driver import LIBRARY, MINIMUM_VERSION, Driver, needs
from aiodev._core.backend.interface import DeviceProperties
from aiodev._core.child_process import command
from aiodev._core.errors import BackendUnavailableError

__all__ = ["Findings", "count_devices", "find_devices", "read_devices"]

#: Name: CUdevice_attribute.
_ATTRIBUTES = {
    "multi_processor_count": 16, "major": 75, "minor": 76, "warp_size": 10, "max_threads_per_block": 1,
    "max_shared_memory_per_block_optin": 97, "l2_cache_bytes": 38, "async_engine_count": 40,
    "stream_memory_operations": 122, "unified_addressing": 41, "memory_clock_khz": 36, "memory_bus_bits": 37,
}  # fmt: skip
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Findings:
    """The result of a probe: devices, or why there are none."""

    reason: str | None
    devices: tuple[DeviceProperties, ...] = ()
    driver_version: int = 0


def count_devices(library: str) -> tuple[str | None, int]:
    """(why there is none, or None; how many devices are visible). Starts nothing in this process."""
    if library == LIBRARY:
        count = _count_by_nvml(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if count is not None:
            return count
    answer = find_devices(library)
    return answer.reason, len(answer.devices)


@functools.cache
def _count_by_nvml(visible: str | None) -> tuple[str | None, int] | None:
    """How many devices there are, by NVML; None where it cannot say."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return f"no NVIDIA driver: {error}", 0
    try:
        import pynvml  # slow to import, and not always there
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        if any(_is_divided(pynvml, handle) for handle in handles):
            return None
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    if version < MINIMUM_VERSION:
        return f"the NVIDIA driver is too old: {needs(version)}", 0
    count = visible_count(visible, [uuid.decode() if isinstance(uuid, bytes) else uuid for uuid in uuids])
    if count == 0:
        return "no CUDA device is visible", 0
    return None if count is None else (None, count)


def _is_divided(pynvml: Any, handle: Any) -> bool:
    """Whether a GPU is in MIG mode, where the driver shows parts of it instead."""
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # one that cannot be divided
        return False
    return bool(current)


def visible_count(visible: str | None, uuids: list[str]) -> int | None:
    """How many of the devices ``CUDA_VISIBLE_DEVICES`` lets through; None where that needs the driver (MIG).

    As the driver does it: indices, or beginnings of UUIDs; the first that is none ends the list, and one that comes twice
    makes it empty.
    """
    if visible is None:
        return len(uuids)
    chosen: list[int] = []
    for word in visible.split(","):
        word = word.strip()
        if word.startswith("MIG"):
            return None
        matches = [i for i, uuid in enumerate(uuids) if word.startswith("GPU-") and uuid.startswith(word)]
        if word.isdigit() and int(word) < len(uuids):
            matches = [int(word)]
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return 0
        chosen.append(matches[0])
    return len(chosen)


def find_devices(library: str) -> Findings:
    """The devices that the driver in ``library`` would give if it were started now. Starts nothing in this process."""
    try:
        return _find(library, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
    except _NotAskedError as error:
        return Findings(f"the driver could not be asked: {error}")


class _NotAskedError(Exception):
    """The process that asks did not come to its end, for a reason that may pass: nothing is remembered."""


@functools.cache
def _find(library: str, visible: str | None, order: str | None) -> Findings:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return Findings(f"no NVIDIA driver: {error}")
    code = "from aiodev._backends.cuda import properties; properties.main()"
    try:
        done = subprocess.run(command(code, library), capture_output=True, text=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotAskedError(str(error)) from error
    if done.returncode != 0:
        raise _NotAskedError(done.stderr.strip()[-500:])
    answer = json.loads(done.stdout)
    devices = tuple(_from_json(device) for device in answer["devices"])
    return Findings(answer["reason"], devices, answer["version"])


def read_devices(driver: Driver) -> tuple[DeviceProperties, ...]:
    """The devices of a driver that has been started."""
    count = driver.number("cuDeviceGetCount", doing="counting devices")
    return tuple(_read(driver, index) for index in range(count))


def _read(driver: Driver, index: int) -> DeviceProperties:
    doing = f"asking what cuda:{index} is"
    device = driver.number("cuDeviceGet", index, doing=doing)
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, 256, device, doing=doing)
    identity = ctypes.create_string_buffer(16)
    driver.call("cuDeviceGetUuid", identity, device, doing=doing)
    attributes = {key: driver.number("cuDeviceGetAttribute", code, device, doing=doing) for key, code in _ATTRIBUTES.items()}
    extra: dict[str, Any] = {key: value for key, value in attributes.items() if key not in ("major", "minor")}
    part = b" MIG " in name.value  # of a divided GPU: the name ends in such as "MIG 1g.10gb", the identity is the part's
    extra["uuid"] = f"{'MIG' if part else 'GPU'}-{uuid.UUID(bytes=identity.raw)}"
    extra["driver_version"] = driver.version
    return DeviceProperties(
        name=name.value.decode(errors="replace"),
        type="cuda",
        index=index,
        total_memory=driver.number("cuDeviceTotalMem", device, doing=doing),
        multi_processor_count=extra.pop("multi_processor_count"),
        capability=(attributes["major"], attributes["minor"]),
        extra=extra,
    )


def _from_json(fields: dict[str, Any]) -> DeviceProperties:
    return DeviceProperties(**{**fields, "capability": tuple(fields["capability"])})


def main() -> None:
    """Answer ``find_devices`` of another process, as JSON."""
    devices: list[dict[str, Any]] = []
    reason, version = None, 0
    try:
        driver = Driver(sys.argv[1])
        version = driver.version
        for properties in read_devices(driver):
            if not properties.extra["stream_memory_operations"] or not properties.extra["unified_addressing"]:
                reason = f"cuda:{properties.index} ({properties.name}) has no 64-bit stream memory operations"
            fields = {name: getattr(properties, name) for name in properties.__dataclass_fields__}
            devices.append({**fields, "extra": dict(properties.extra)})
        if not devices:
            reason = "no CUDA device is visible"
    except BackendUnavailableError as error:
        reason = error.reason
    print(json.dumps({"reason": reason, "devices": [] if reason else devices, "version": version}))
