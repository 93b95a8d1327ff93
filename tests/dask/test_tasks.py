"""Tasks on workers: a stream of their own, typed failures, withdrawal, and the same result when they are run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask_tasks
import numpy as np
import pytest
from dask_tasks import take_notes
from distributed import Client, LocalCluster, Reschedule

import aiodev
import aiodev.dask
from aiodev._core.backend.registry import registry
from aiodev.dask.blocks import Block
from aiodev.dask.tasks import DeviceTask, Running, seed_of
from aiodev.kernels import random
from aiodev.testing import Latch, SimulatedBackend


async def test_an_array_is_scattered_used_and_gathered(client: Any) -> None:
    """The way of every program: values, dtype and layout are there again."""
    x = aiodev.asarray(np.arange(12).reshape(3, 4), dtype="float32", device="cpu")
    scattered = await client.scatter(x)
    found = await client.gather(client.submit(lambda x: (x + 1).T, scattered))
    np.testing.assert_array_equal(await found.numpy(), np.arange(1, 13).reshape(3, 4).T)


@pytest.mark.parametrize("is_coro", [True, False])
async def test_what_came_with_the_task_is_there_before_it_runs(is_coro: bool) -> None:
    """An array in a function's closure, which nobody sees, is still being copied when the task begins."""
    default = aiodev.default_stream("cpu")
    x = aiodev.zeros(8, device="cpu")
    with Latch(default):
        aiodev.kernels.add(x, 1, out=x)  # as what unpickles it, where no stream is current
        task = DeviceTask(Spec(lambda: aiodev.kernels.sum(x), is_coro), "key", Running(0))
        running = asyncio.ensure_future(task({}) if is_coro else asyncio.to_thread(task, {}))
        await asyncio.sleep(0.05)
        assert not running.done()
    assert await (await running).item() == 8


async def test_results_travel_between_workers(client: Any, workers: list[str]) -> None:
    """A task of one worker uses what another one has computed."""
    x = client.submit(aiodev.arange, 10, workers=workers[:1])
    total = client.submit(aiodev.kernels.sum, x, workers=workers[1:2])
    assert await (await total).item() == 45


@pytest.mark.parametrize("coroutine", [True, False])
async def test_each_task_has_a_stream_of_its_own(client: Any, coroutine: bool) -> None:
    """On the loop and in threads; its device is the worker's."""

    async def where() -> tuple[str, int]:
        return dask_tasks.where()

    found = await client.gather([client.submit(where if coroutine else dask_tasks.where, pure=False) for _ in range(2)])
    assert [device for device, _ in found] == ["cpu:0", "cpu:0"]


async def test_coroutine_tasks_run_side_by_side(client: Any, workers: list[str]) -> None:
    """On one worker's loop, each with its stream."""
    worker = workers[0]
    tasks = [client.submit(dask_tasks.meet, 3, float(n), workers=[worker]) for n in range(3)]
    assert await client.gather(tasks) == [4, 8, 12]
    assert (await client.run(dask_tasks.streams_met))[worker] == 3


async def test_a_failed_kernel_arrives_as_it_was_raised(client: Any) -> None:
    """With the kernel's own exception and place, though the task only submitted it."""
    with pytest.raises(aiodev.KernelError) as caught:
        await client.submit(dask_tasks.failing_kernel, aiodev.asarray([1.0, -1.0], device="cpu"))
    error = caught.value
    assert error.kernel == "positive"
    assert repr(error.__cause__) == "ValueError('negative', 1)"
    assert error.location is not None and "dask_tasks.py" in error.location
    assert error.submitted_at is not None and "dask_tasks.py" in error.submitted_at


async def test_a_failed_task_takes_no_other_along(client: Any, workers: list[str]) -> None:
    """Those that run beside it, and after it, on the same worker."""
    worker = workers[0]
    bad = client.submit(dask_tasks.failing_call, workers=[worker])
    good = [client.submit(aiodev.full, 2, n, workers=[worker]) for n in range(5)]
    with pytest.raises(IndexError):
        await bad
    assert [await x.item(0) for x in await client.gather(good)] == [0, 1, 2, 3, 4]


async def test_a_cancelled_future_withdraws_its_work(client: Any, workers: list[str], until: Callable[..., Any]) -> None:
    """What the task has submitted and has not begun never runs."""
    worker = workers[0]
    future = client.submit(dask_tasks.held, "ran", workers=[worker])

    async def is_held() -> bool:
        return "held" in (await client.run(lambda: list(dask_tasks.noted), workers=[worker]))[worker]

    async def is_idle() -> bool:
        return (await client.run(dask_tasks.pending, workers=[worker]))[worker] == 0

    await until(is_held)
    await client.cancel(future)
    await until(is_idle)
    assert (await client.run(take_notes))[worker] == ["held"]


async def test_the_seed_follows_from_the_key(client: Any) -> None:
    """Every process draws the same for it, and other tasks draw others."""
    found, other = await client.gather([client.submit(dask_tasks.walk, 5, key=key) for key in ("walk", "other")])
    with aiodev.fork_rng():
        aiodev.manual_seed(seed_of(0, "walk"))
        np.testing.assert_array_equal(found, random.standard_normal(5, device="cpu").numpy_blocking())
    assert not (found == other).any()


async def test_a_task_whose_worker_was_killed_gives_the_same(client: Any, tmp_path: Path, until: Any) -> None:
    """Dask runs it again, random numbers included; and the worker that is started in its place has its device."""
    died = tmp_path / "died"
    found = await client.submit(dask_tasks.walk, 5, str(died), key="killed")
    assert died.exists()
    await client.wait_for_workers(2)

    async def is_installed() -> bool:  # a worker is known before it has what is to be installed
        return all((await client.run(dask_tasks.is_installed)).values())

    await until(is_installed)
    with aiodev.fork_rng():
        aiodev.manual_seed(seed_of(0, "killed"))
        np.testing.assert_array_equal(found, random.standard_normal(5, device="cpu").numpy_blocking())


async def test_too_much_memory_is_a_typed_error(client: Any) -> None:
    """With what was asked for, and what there is."""
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        await client.submit(dask_tasks.allocate, 1 << 60)
    assert caught.value.requested >= 1 << 60
    assert caught.value.total > 0


async def test_leases_hold_tasks_back(client: Any, workers: list[str]) -> None:
    """Of tasks that each need more than half, one works at a time."""
    worker = workers[0]
    nbytes = int(0.6 * aiodev.memory.mem_get_info("cpu")[1])
    tasks = [client.submit(dask_tasks.leased, nbytes, pure=False, workers=[worker]) for _ in range(4)]
    assert await client.gather(tasks) == [1, 1, 1, 1]


# Without a cluster: what a worker runs


class Spec:
    """A task of Dask's."""

    def __init__(self, function: Callable[..., Any], is_coro: bool) -> None:
        self.function, self.is_coro = function, is_coro

    def __call__(self, data: dict[str, Any]) -> Any:
        return self.function(**data)


@pytest.fixture
def sim(register: Callable[[type[Any]], str]) -> str:
    """A simulated device, which is the process's default."""
    name = register(SimulatedBackend)
    aiodev.init_blocking(name)
    registry.set_default(name)
    return name


async def test_arguments_come_to_the_worker_s_device(sim: str) -> None:
    """In lists and dictionaries, too."""

    async def devices(x: Any, y: Any) -> list[Any]:
        return [x[0].device, y["a"][0].device, (await y["a"][0].numpy()).tolist()]

    data = {"x": [aiodev.ones(2, device="cpu")], "y": {"a": (aiodev.arange(3, device="cpu"),)}}
    found = await DeviceTask(Spec(devices, True), "key", Running(0))(data)
    assert found == [aiodev.Device(sim), aiodev.Device(sim), [0, 1, 2]]


async def test_what_is_too_large_for_the_device_is_not_lost(sim: str) -> None:
    """The task fails with a typed error, and does not when there is room."""

    async def values(x: Any) -> Any:
        return await x.numpy()

    data = {"x": aiodev.arange(1 << 20, device="cpu")}
    aiodev.memory.set_per_process_memory_fraction(1e-6, sim)
    with pytest.raises(aiodev.OutOfMemoryError):
        await DeviceTask(Spec(values, True), "key", Running(0))(data)
    aiodev.memory.set_per_process_memory_fraction(1.0, sim)
    assert (await DeviceTask(Spec(values, True), "key", Running(0))(data))[-1] == (1 << 20) - 1


@pytest.mark.parametrize("what", ["an argument", "a block"])
async def test_a_task_in_a_thread_waits_for_room(sim: str, what: str) -> None:
    """Under a lease, as a coroutine function does; blocks of NumPy, too."""
    if what == "an argument":
        run: Any = DeviceTask(Spec(lambda x: x.device, False), "key", Running(0))
        given: Any = {"x": aiodev.ones(1 << 20, device="cpu")}
    else:
        run, given = Block(lambda x: x.device, "name"), np.ones(1 << 20)
    whole = aiodev.memory.lease(aiodev.memory.mem_get_info(sim)[1], sim)
    async with whole:
        running = asyncio.ensure_future(asyncio.to_thread(run, given))
        async with asyncio.timeout(30):
            while len(whole._admission) == 0:  # noqa: ASYNC110  (another thread asks)
                await asyncio.sleep(0)
        assert not running.done()
    assert await running == aiodev.Device(sim)
    assert whole._admission.leased == 0


async def test_a_block_that_can_never_fit_raises(sim: str) -> None:
    """As it does to a coroutine function."""
    aiodev.memory.set_per_process_memory_fraction(1e-6, sim)
    with pytest.raises(aiodev.OutOfMemoryError):
        await asyncio.to_thread(Block(lambda x: x, "name"), np.ones(1 << 20))


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", [dask_tasks.size_of, dask_tasks.awaited_size_of])
async def test_a_cluster_s_task_waits_for_what_a_lease_holds(function: Any) -> None:
    """It is too large for the worker's device meanwhile, and runs when the lease is over; one that never fits raises."""
    options = {"dashboard_address": ":0", "silence_logs": 50, "memory_limit": 0, "asynchronous": True}
    async with (
        LocalCluster(n_workers=1, threads_per_worker=4, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        await client.run(dask_tasks.simulate)
        await aiodev.dask.install(client, "sim")
        await client.run(dask_tasks.limit_memory, 64 << 20)
        holder = client.submit(dask_tasks.hold_leased, 40 << 20, pure=False)
        assert await client.submit(dask_tasks.until_held, pure=False)
        (x,) = await client.scatter([aiodev.zeros(5 << 20, device="cpu")])
        waiting = client.submit(function, x, pure=False)
        assert await client.submit(dask_tasks.until_somebody_waits, pure=False)
        assert waiting.status == "pending"
        await client.submit(dask_tasks.let_go, pure=False)
        assert await waiting == 5 << 20
        assert await holder == 40 << 20
        (y,) = await client.scatter([aiodev.zeros(9 << 20, device="cpu")])
        with pytest.raises(aiodev.OutOfMemoryError):
            await client.submit(function, y, pure=False)


def test_a_task_in_a_thread_is_stopped_by_withdrawal() -> None:
    """Its wait ends, and Dask is told to run it again if anybody wants it."""
    running = Running(0)

    def submit() -> None:
        stream = aiodev.current_stream()
        stream.call(running.stop, "key")
        stream.call(dask_tasks.noted.append, "ran")

    with aiodev.device("cpu"), pytest.raises(Reschedule):
        running.task(Spec(submit, False), "key")({})
    assert (take_notes(), running.stopped) == ([], 1)


async def test_a_coroutine_that_is_stopped_is_cancelled() -> None:
    """Wherever it waits, and even if it takes no notice; Dask is told to run it again if anybody wants it."""
    running, seen = Running(0), []

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(running.stop, "key")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")

    with aiodev.device("cpu"), pytest.raises(Reschedule):
        await running.task(Spec(wait, True), "key")({})
    assert (seen, running.stopped) == (["cancelled"], 1)


@pytest.mark.parametrize("coroutine", [True, False])
async def test_a_task_that_is_stopped_before_it_begins_does_not(coroutine: bool) -> None:
    """The loop, or a thread, comes to it later than the scheduler's message."""
    running = Running(0)
    task = running.task(Spec(dask_tasks.take_notes, coroutine), "key")
    running.stop("key")
    with aiodev.device("cpu"), pytest.raises(Reschedule):
        await task({}) if coroutine else task({})
    again = running.task(task, "key")  # as when somebody wants it after all
    with aiodev.device("cpu"):
        assert (await again({}) if coroutine else again({})) == []


def test_seeds_do_not_depend_on_the_process() -> None:
    """Of keys of every form that Dask has."""
    assert seed_of(0, "x") == 0x3F94F414FDEEFEEA
    assert len({seed_of(s, k) for s in (0, 1) for k in ("x", ("x", 0), ("x", 1), b"x")}) == 8
