"""Workers have devices, report on them, and say at the client what they lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask_tasks
import pytest

import aiodev
from aiodev.dask import DevicePlugin, WorkerError, install, plugin as plugin_module
from aiodev.dask.tasks import Running
from aiodev.testing import Latch, SimulatedBackend


async def test_every_worker_has_a_device(client: Any, workers: list[str]) -> None:
    """As ``install`` says, also when it is called again."""
    assert await install(client) == dict.fromkeys(workers, aiodev.Device("cpu"))


async def test_workers_of_a_host_share_its_cores(client: Any) -> None:
    """The CPU devices of all of them have no more workers than the host has cores, but for one each."""
    shares = await client.run(lambda: aiodev.get_backend("cpu").settings.cpu_threads)
    cores = aiodev.get_device_properties("cpu").multi_processor_count
    assert all(share == max(1, round(cores / len(shares))) for share in shares.values())


async def test_metrics_reach_the_scheduler(client: Any, cluster: Any, until: Callable[..., Any]) -> None:
    """Where the dashboard's table of workers shows them."""
    names = {"aiodev_device", "aiodev_operations_pending", "aiodev_memory_bytes", "aiodev_tasks_stopped", "aiodev_loop_lag_ms"}

    async def are_there() -> bool:
        return all(names <= worker.metrics.keys() for worker in cluster.scheduler.workers.values())

    await until(are_there)
    for worker in cluster.scheduler.workers.values():
        assert worker.metrics["aiodev_device"] == "cpu:0"
        assert isinstance(worker.metrics["aiodev_loop_lag_ms"], float)


def test_metrics_say_what_the_device_has(register: Callable[[type[Any]], str]) -> None:
    """Operations that are not done, and memory in use; and how many tasks were stopped."""
    device, running = aiodev.Device(register(SimulatedBackend)), Running(0)
    metrics = plugin_module._metrics(device, running)
    stream = aiodev.Stream(device)
    with stream:
        x = aiodev.zeros(1 << 20, "uint8")
    stream.synchronize_blocking()

    def values() -> list[Any]:
        names = "aiodev_device", "aiodev_operations_pending", "aiodev_memory_bytes", "aiodev_tasks_stopped"
        return [metrics[name](None) for name in names]

    assert values() == [str(device), 0, 1 << 20, 0]
    with Latch(stream):
        held = values()[1] - stream.timeline.submitted
        stream.call(int)
        stream.call(int)
        running.stopped = 3
        assert values() == [str(device), held + stream.timeline.submitted, 1 << 20, 3]
    stream.synchronize_blocking()
    del x
    assert values() == [str(device), 0, 0, 3]


async def test_a_worker_without_aiodev_is_named(client: Any, workers: list[str]) -> None:
    """At the client, before anything travels."""
    worker = workers[0]
    await client.run(dask_tasks.unlearn, "module", None, workers=[worker])
    try:
        with pytest.raises(WorkerError, match=r"aiodev is not installed there .* pip install") as caught:
            await install(client)
    finally:
        await client.run(dask_tasks.unlearn, "module", "", workers=[worker])
    assert caught.value.worker == worker


async def test_a_worker_of_another_version_is_named(client: Any, workers: list[str]) -> None:
    """Both versions are said."""
    worker = workers[0]
    await client.run(dask_tasks.unlearn, "version", "0.0.1", workers=[worker])
    try:
        with pytest.raises(WorkerError, match="it has aiodev 0.0.1, and the client") as caught:
            await install(client)
    finally:
        await client.run(dask_tasks.unlearn, "version", aiodev.__version__, workers=[worker])
    assert caught.value.worker == worker


@pytest.mark.parametrize("device", ["cpu:7", "abacus"])
async def test_a_device_that_a_worker_lacks_is_named(client: Any, device: str) -> None:
    """The worker's own error is the cause."""
    with pytest.raises(WorkerError, match=device) as caught:
        await install(client, device)
    assert isinstance(caught.value.__cause__, aiodev.InvalidDeviceError | aiodev.BackendNotFoundError)


async def test_what_warms_up_runs_on_every_worker(client: Any) -> None:
    """Before it takes tasks; a coroutine function is awaited."""
    await client.run(dask_tasks.take_notes)
    await install(client, warm_up=dask_tasks.where)
    await install(client, warm_up=dask_tasks.note_device)
    assert set(map(tuple, (await client.run(dask_tasks.take_notes)).values())) == {("cpu:0",)}


def test_workers_of_a_host_get_device_by_device(tmp_path: Path, register: Callable[[type[Any]], str]) -> None:
    """Each the one that the fewest others have; who dies gives it back."""

    class Two(SimulatedBackend):
        def device_count(self) -> int:
            return 2

    name = register(Two)
    scheduler = SimpleNamespace(address="tcp://x:1")
    worker = SimpleNamespace(scheduler=scheduler, local_directory=str(tmp_path / "worker"), metrics={})
    plugins = [DevicePlugin(name) for _ in range(4)]
    assert sorted(plugin._choose(worker).index for plugin in plugins) == [0, 0, 1, 1]
    first = DevicePlugin(name)
    plugins[0].teardown(worker)
    assert first._choose(worker).index == 0
    for plugin in (*plugins, first):
        plugin.teardown(worker)


async def test_two_workers_of_a_process_are_refused() -> None:
    """They would share its device, its streams and its random numbers."""
    first, second = (SimpleNamespace(address=f"inproc://{n}", metrics={}, nthreads=1) for n in (1, 2))
    plugin = DevicePlugin("cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_module, "_workers", [first])
        with pytest.raises(WorkerError, match="have one worker in a process") as caught:
            await plugin.setup(second)
    assert caught.value.worker == "inproc://2"


def test_arguments_are_checked_at_the_client() -> None:
    """Before any worker is asked."""
    with pytest.raises(TypeError, match="install: argument client: expected a client"):
        install(None)  # type: ignore[arg-type]
