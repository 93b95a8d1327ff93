"""The worker's plugin: a worker gets a device of its own, starts it, and tells of it."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakSet

from distributed.diagnostics.plugin import WorkerPlugin

import aiodev
from aiodev import Device, profiler
from aiodev._core.backend.device import HOST
from aiodev._core.backend.registry import registry
from aiodev._core.config import settings
from aiodev._core.usable_cores import core_watch
from aiodev.dask.cache import CacheWatch
from aiodev.dask.errors import WorkerError
from aiodev.dask.tasks import Running
from aiodev.dask.tuning import LAG_PERIOD
from aiodev.profiler.lag import recent_lags

__all__ = ["DevicePlugin"]

#: The workers of this process that have a device; one at most.
_workers: WeakSet[Any] = WeakSet()


class DevicePlugin(WorkerPlugin):
    """Gives each worker a device; what :func:`install` registers.

    The device becomes the default of the worker's process, so that whatever runs there without naming a device uses this one.
    Of a type that a host has several devices of, each worker of the cluster takes one that the fewest others have; a worker
    that dies gives it back. Workers of CPUs share the host's cores as they share Dask's threads. A worker that is short of
    memory keeps none for arrays to come.

    Have one worker in a process, as Dask has by default. The share of the cores is that of the moment when the worker starts
    its device; ``AIODEV_CPU_THREADS`` in its environment says another one.

    Attributes:
        device: that was asked for: a type, a device, or None.
        seed: what the seeds of the tasks follow from.
        running: the worker's tasks; None on the client.

    Example:
        >>> from aiodev.dask import DevicePlugin
        >>> DevicePlugin("cuda").device
        'cuda'
    """

    name = "aiodev"

    def __init__(
        self, device: str | None = None, *, seed: int = 0, warm_up: Callable[[], object] | None = None
    ) -> None:
        self.device = device
        self.seed = seed
        self.running: Running | None = None
        self._version = aiodev.__version__
        self._warm_up = warm_up
        self._claim: int | None = None
        self._lag: profiler.LoopLag | None = None
        self._cache: CacheWatch | None = None
        self._worker: Any = None

    async def setup(self, worker: Any) -> None:
        """Called by the worker when it starts, or the plugin is registered.

        Raises:
            WorkerError: it cannot take part.
        """
        if self._version != aiodev.__version__:
            reason = f"it has aiodev {aiodev.__version__}, and the client {self._version}; install one version everywhere"
            raise WorkerError(worker.address, reason)
        if _workers and worker not in _workers:
            reason = "another worker of its process has the device; have one worker in a process (LocalCluster: processes=True)"
            raise WorkerError(worker.address, reason)
        _workers.add(worker)
        try:
            device = self._choose(worker)
            if device.type == HOST.type:
                await _share_cores(worker)
            await aiodev.init(device.type)
            registry.resolve(device)
        except (aiodev.BackendError, aiodev.InvalidDeviceError) as error:
            self._release()
            _workers.discard(worker)
            raise WorkerError(worker.address, str(error)) from error
        registry.set_default(device)
        self._worker = worker
        self.running = Running(self.seed)
        await self._warm(device)
        self._lag = profiler.loop_lag(LAG_PERIOD)
        self._lag.start()
        self._cache = CacheWatch(worker)
        worker.metrics.update(_metrics(device, self.running))

    async def _warm(self, device: Device) -> None:
        if self._warm_up is None:
            return
        async with aiodev.Stream(device) as stream:
            returned = self._warm_up()
            if inspect.isawaitable(returned):
                await returned
            await stream.synchronize()

    def teardown(self, worker: Any) -> None:
        """Called by the worker when it ends, or the plugin is replaced."""
        if self._lag is not None:
            self._lag.stop()
        if self._cache is not None:
            self._cache.stop()
        for name in _METRICS:
            worker.metrics.pop(name, None)
        self._release()
        if self._worker is worker:
            _workers.discard(worker)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Called by the worker when a task changes its state: gives it a stream when it is about to run, stops it when its
        result is not wanted any more.
        """
        if self.running is None:
            return
        if finish == "executing":
            state = self._worker.state.tasks[key]
            state.run_spec = self.running.task(state.run_spec, key)
        elif finish == "released" and start in ("executing", "long-running"):
            self.running.stop(key)

    # The device

    def _choose(self, worker: Any) -> Device:
        asked = self.device
        if asked is None:
            asked = registry.resolve_default()[1].type
        if ":" in asked:
            return registry.resolve(asked)[1]
        handle = registry.handle(asked)
        handle.check_available()
        devices = handle.device_count()
        if devices == 0:
            raise aiodev.InvalidDeviceError(asked, "this machine has none of that type")
        return Device(asked, self._claim_one(worker, asked, devices) if devices > 1 else 0)

    def _claim_one(self, worker: Any, type: str, devices: int) -> int:
        """The device that the fewest workers of this cluster hold on this host; locked for as long as this process lives.

        The locks are files in the directory that the workers of a host have in common, and the system lets go of them.
        """
        cluster = hashlib.blake2b(worker.scheduler.address.encode(), digest_size=6).hexdigest()
        directory = Path(worker.local_directory).parent
        for turn in count():
            for index in range(devices):
                held = os.open(directory / f"aiodev-{cluster}-{type}-{index}.{turn}.lock", os.O_CREAT | os.O_RDWR, 0o600)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(held)
                else:
                    self._claim = held
                    return index
        raise AssertionError

    def _release(self) -> None:
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


async def _share_cores(worker: Any) -> None:
    """Have the CPU device use this worker's part of the host's cores, unless ``AIODEV_CPU_THREADS`` says how many."""
    if settings.cpu_threads or aiodev.is_initialized(HOST.type):
        return
    known = (await worker.scheduler.identity())["workers"]
    host = worker.address.rsplit(":", 1)[0]
    threads = {address: each["nthreads"] for address, each in known.items() if address.rsplit(":", 1)[0] == host}
    threads[worker.address] = worker.state.nthreads
    cores = core_watch.cores.count
    share = max(1, round(cores * worker.state.nthreads / sum(threads.values())))
    backend = type(aiodev.get_backend(HOST))
    configuration = replace(settings, cpu_threads=share)
    aiodev.register_backend(HOST.type, lambda: backend(configuration))  # type: ignore[call-arg]


#: What is reported of a worker: its names are columns of the dashboard's table of workers.
_METRICS = (
    "aiodev_device",
    "aiodev_operations_pending",
    "aiodev_memory_bytes",
    "aiodev_tasks_stopped",
    "aiodev_loop_lag_ms",
)


def _metrics(device: Device, running: Running) -> dict[str, Callable[[Any], Any]]:
    """What to call for each of the metrics."""

    def of_device(name: str) -> int:
        metric = next(metric for metric in profiler.metrics() if metric.name == name)
        return int(sum(sample.value for sample in metric.samples if ("device", str(device)) in sample.labels))

    def lag(_: Any) -> float:
        lags = recent_lags()
        return round(lags[-1 - len(lags) // 100] / 1e6, 3) if lags else 0.0

    values: tuple[Callable[[Any], Any], ...] = (
        lambda _: str(device),
        lambda _: of_device("aiodev_operations_pending"),
        lambda _: of_device("aiodev_memory_allocated_bytes"),
        lambda _: running.stopped,
        lag,
    )
    return dict(zip(_METRICS, values, strict=True))
