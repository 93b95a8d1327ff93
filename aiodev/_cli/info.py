"""``python -m aiodev info``: what there is to run on, and why the rest cannot."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from importlib import metadata
from typing import Any

import aiodev
from aiodev._core.backend.registry import registry
from aiodev._core.cache_directory import cache
from aiodev._core.config import settings
from aiodev._core.time_slice import shorten_time_slice, time_slice
from aiodev._core.usable_cores import core_watch

__all__ = ["describe"]

#: Distributions whose versions matter to a report of a problem.
DISTRIBUTIONS = ("aiodev", "numba", "llvmlite", "numpy", "anyio", "uvloop", "trio")


def describe() -> str:
    """Backends, devices, versions and settings as text. Starts every backend that can start; blocks meanwhile."""
    return "\n".join([*_versions(), "", *_backends(), "", *_settings()])


def _versions() -> Iterator[str]:
    yield f"python        {platform.python_version()} ({platform.python_implementation()}), {platform.platform()}"
    for name in DISTRIBUTIONS:
        try:
            yield f"{name:13} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"{name:13} not installed"


def _backends() -> Iterator[str]:
    for name in registry.names():
        try:
            aiodev.init_blocking(name)
        except aiodev.BackendUnavailableError as error:
            yield f"backend {name}: cannot start: {error.reason}"
            continue
        yield f"backend {name}: {aiodev.device_count(name)} device(s){_executor(name)}"
        yield from _workers(name)
        for index in range(aiodev.device_count(name)):
            yield from _device(aiodev.Device(name, index))


def _executor(name: str) -> str:
    """How a backend runs work, when it says so (the CPU does)."""
    backend = aiodev.get_backend(name)
    executor = getattr(backend, "executor", None)
    if executor is None:
        return ""
    reason = getattr(backend, "executor_reason", "")
    return f"; executor {executor.kind} ({reason}), {executor.thread_count} worker thread(s) each"


def _workers(name: str) -> Iterator[str]:
    """How many workers a backend has, and why, when it says so (the CPU does)."""
    backend: Any = aiodev.get_backend(name)
    reason = getattr(backend, "workers_reason", "")
    if reason:
        count = backend.executor.thread_count * backend.device_count()
        yield f"    {count} worker{'' if count == 1 else 's'}: {reason}"


def _device(device: aiodev.Device) -> Iterator[str]:
    properties = aiodev.get_device_properties(device)
    yield (
        f"    {str(device):9} {properties.name}: {properties.multi_processor_count} processors, "
        f"{properties.total_memory / 2**30:.1f} GiB, capability {properties.capability[0]}.{properties.capability[1]}"
    )
    for key, value in properties.extra.items():
        yield f"              {key}: {value}"


def _settings() -> Iterator[str]:
    yield "settings"
    spins = {
        "spin_us": settings.spin_ns,
        "worker_spin_us": settings.worker_spin_ns,
        "cuda_spin_us": settings.cuda_spin_ns,
    }
    width = max(len(setting.metadata["name"]) for setting in fields(settings))
    for setting in fields(settings):
        name = setting.metadata["name"]
        origin = "from the environment" if os.environ.get(name, "").strip() else "default"
        value = getattr(settings, setting.name)
        if value is None:
            value = f"auto: {spins[setting.name](core_watch.spin) // 1000} now"
        yield f"    {name:{width}} {value!s:24} {origin}"
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_time_slice).result()
    yield f"compiled code is kept in {cache.directory() or 'memory only'}"


def _time_slice() -> str:
    """Which time slices this thread gets when it asks for them, as those do whose loop waits for a device, and workers."""
    before = time_slice()
    shorten_time_slice()
    after = time_slice()
    if not before:
        return "time slices are the system's, which tells nothing of them"
    asked = "left alone" if after == before else f"{after / 1e6:g} ms for those that wait for devices, and workers"
    return f"time slices of threads: {before / 1e6:g} ms, {asked}"
