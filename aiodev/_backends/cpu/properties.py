"""Properties of this machine's CPU and memory, read without starting anything."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any

from aiodev._backends.cpu.tuning import SPARED, SPARED_PART, TABLES
from aiodev._core.backend.interface import DeviceProperties
from aiodev._core.control_groups import groups_of, read_file
from aiodev._core.usable_cores import UsableCores, allowed_cores, core_watch

__all__ = ["anonymous_memory", "available_memory", "cache_bytes", "cpu_properties", "cores_of", "total_memory", "worker_count"]

#: Width in bytes of the widest vector registers that a CPU flag promises, widest first.
_SIMD = (("avx512f", 64), ("avx2", 32), ("avx", 32), ("sse2", 16), ("asimd", 16), ("neon", 16))
#: A control group's files of its memory's limit and use, by version.
_MEMORY_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
_ROOT = Path("/")
#: A limit above this is cgroup v1's way of saying that there is none.
_NO_LIMIT = 1 << 60


def cores_of(index: int, device_count: int) -> tuple[int, ...]:
    """Cores of device ``index`` of ``device_count``: a contiguous share; with too few to go round, one of them."""
    cores = allowed_cores()
    if device_count > len(cores):
        return (cores[index % len(cores)],)
    return cores[index * len(cores) // device_count : (index + 1) * len(cores) // device_count]


def worker_count(usable: UsableCores, device_count: int, asked: int = 0) -> int:
    """How many workers each of ``device_count`` devices has, of as many together as are ``asked`` for, or 0."""
    return max(1, (asked or usable.count) // device_count)


def cpu_properties(index: int, device_count: int) -> DeviceProperties:
    """Properties of CPU device ``index`` of the ``device_count`` that the machine is split into."""
    fields = _cpu_fields()
    cores, quota = cores_of(index, device_count), core_watch.cores.quota
    count = len(cores) if quota is None else min(len(cores), worker_count(core_watch.cores, device_count))
    flags = frozenset(fields.get("flags", fields.get("Features", "")).split())
    simd = next((width for flag, width in _SIMD if flag in flags), 16)
    extra: dict[str, Any] = {
        "cores": cores,
        "cpu_quota": None if quota is None else quota.cores,
        "architecture": platform.machine(),
        "vendor": fields.get("vendor_id", ""),
        "l2_cache_bytes": cache_bytes(2, cores[0]),
        "l3_cache_bytes": cache_bytes(3, cores[0]),
        "page_bytes": os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096,
    }
    name = fields.get("model name") or platform.processor() or platform.machine() or "CPU"
    return DeviceProperties(
        name=" ".join(name.split()),
        type="cpu",
        index=index,
        total_memory=total_memory() // device_count,
        multi_processor_count=count,
        capability=(simd, 0),
        extra=extra,
    )


@functools.cache
def total_memory() -> int:
    """Bytes that this process may use at most: the machine's memory, or its control group's limit."""
    physical = _physical_memory()
    return min([physical, *(limit for limit, _ in _cgroup_memory())])


def available_memory(root: Path = _ROOT) -> int:
    """Bytes that could be had now without pushing anything out; of a control group's limit some are spared for all else.

    Args:
        root: where the file system begins that is looked at.
    """
    machine = _meminfo("MemAvailable", root)
    if machine is None:
        machine = total_memory()
    left = (limit - _spared(limit) - used for limit, used in _cgroup_memory(root))
    return max(0, min([machine, *left]))


def _spared(limit: int) -> int:
    """Bytes of a control group's limit that its processes have for what is not the device's memory."""
    return min(limit // SPARED_PART, SPARED) + limit // TABLES


def anonymous_memory() -> int | None:
    """Bytes of this process that are resident and no file's; None where the system does not tell."""
    fields = read_file(Path("/proc/self/statm")).split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 2 else None


def _physical_memory() -> int:
    total = _meminfo("MemTotal")
    if total is not None:
        return total
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 << 30  # A system that does not tell has at least what a 32-bit address space had.


def _meminfo(key: str, root: Path = _ROOT) -> int | None:
    text = read_file(root / "proc/meminfo")
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return int(rest.split()[0]) << 10
    return None


def _cgroup_memory(root: Path = _ROOT) -> list[tuple[int, int]]:
    """(limit, bytes used) of each control group that limits this process's memory, from its own up to the root."""
    limits = []
    for directory, version in _cgroup_directories(root):
        limit_name, used_name = _MEMORY_FILES[version]
        limit = read_file(directory / limit_name).strip()
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            used = read_file(directory / used_name).strip()
            if used.isdigit():
                limits.append((int(limit), int(used) - _cgroup_cache(directory)))
    return limits


def _cgroup_cache(directory: Path) -> int:
    """Bytes of a control group's use that are file cache, which the system drops on demand."""
    for line in read_file(directory / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


@functools.cache
def _cgroup_directories(root: Path) -> tuple[tuple[Path, int], ...]:
    """Control groups of this process that may hold a memory limit, with the version of their interface."""
    groups = groups_of("memory", root)
    return tuple((group, version) for group, version in groups if read_file(group / _MEMORY_FILES[version][0]))


@functools.cache
def _cpu_fields() -> dict[str, str]:
    """The first processor's lines of ``/proc/cpuinfo``; empty where there is none."""
    fields: dict[str, str] = {}
    for line in read_file(Path("/proc/cpuinfo")).splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields


@functools.cache
def cache_bytes(level: int, core: int = 0) -> int:
    """Size of a core's cache of ``level``; 0 when unknown."""
    for directory in sorted(Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*")):
        if read_file(directory / "level").strip() != str(level) or read_file(directory / "type").strip() == "Instruction":
            continue
        size = read_file(directory / "size").strip()
        if size.endswith("K") and size[:-1].isdigit():
            return int(size[:-1]) << 10
    return 0
