"""What programs on several workers are made of; the same bits for any number of blocks and workers."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask_tasks
import numpy as np
import pytest
from sklearn.datasets import load_digits

import aiodev
from aiodev import kernels
from aiodev.dask import Service, all_reduce, data_parallel, map_blocks, stencil, tree_reduce
from aiodev.kernels import random

VALUES = np.random.default_rng(0).normal(size=(48, 20))


# Blocks of Dask's arrays


@pytest.fixture
def blocks() -> da.Array:
    """A collection of NumPy's blocks."""
    return da.from_array(VALUES, chunks=(12, 10))


async def computed(client: Any, collection: Any) -> np.ndarray:
    """What a cluster makes of it."""
    found = await client.compute(collection)
    assert isinstance(found, aiodev.Array)
    return await found.numpy()


async def test_map_blocks_of_numpy(client: Any, blocks: da.Array) -> None:
    """Each block is brought to the device, and the result is aiodev's."""
    found = map_blocks(kernels.square, blocks)
    assert (found.shape, found.dtype, found.chunks) == (blocks.shape, blocks.dtype, blocks.chunks)
    np.testing.assert_array_equal(await computed(client, found), VALUES**2)


async def test_map_blocks_of_a_coroutine_function(client: Any, blocks: da.Array) -> None:
    """It is awaited on the worker's loop, also where Dask fuses it with what comes before."""

    async def scaled(x: aiodev.Array, y: aiodev.Array, factor: float) -> aiodev.Array:
        await asyncio.sleep(0)
        return x * y * factor

    found = map_blocks(scaled, map_blocks(kernels.negative, blocks), blocks, factor=2.0)
    np.testing.assert_array_equal(await computed(client, found), -VALUES * VALUES * 2)


LATER: dict[str, tuple[Callable[[da.Array], da.Array], Callable[[np.ndarray], np.ndarray]]] = {
    "operators": (lambda x: 2 * x + x, lambda x: 2 * x + x),
    "slices": (lambda x: x[3:40:2, 5], lambda x: x[3:40:2, 5]),
    "rechunk": (lambda x: x.rechunk((7, 20)), lambda x: x),
    "concatenate": (lambda x: da.concatenate([x, x], axis=1), lambda x: np.concatenate([x, x], axis=1)),
    "of NumPy again": (lambda x: map_blocks(kernels.positive, x.map_blocks(np.asarray).T), lambda x: x.T),
    "beside NumPy": (lambda x: x + map_blocks(kernels.positive, da.ones(x.shape, chunks=x.chunks)), lambda x: x + 1),
    "where": (lambda x: map_blocks(lambda u: kernels.where(u > 0, u, 0), x), lambda x: np.where(x > 0, x, 0)),
    "reduction": (
        lambda x: da.reduction(x, chunk=kernels.max, aggregate=kernels.max, axis=0, dtype=x.dtype),
        lambda x: x.max(axis=0),
    ),
    "map_overlap": (
        lambda x: da.map_overlap(lambda u: u * 2, x, depth=1, boundary="none", meta=np.array((), x.dtype)),
        lambda x: x * 2,
    ),
}


@pytest.mark.parametrize("name", LATER)
async def test_dask_goes_on_with_aiodev_blocks(client: Any, blocks: da.Array, name: str) -> None:
    """What Dask's collections do without NumPy's functions."""
    later, model = LATER[name]
    found = later(map_blocks(kernels.positive, blocks))
    np.testing.assert_array_equal(await computed(client, found), model(VALUES))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LATER)
def test_dask_s_own_threads_do_as_a_cluster(blocks: da.Array, name: str) -> None:
    """Without a cluster, on the client's device."""
    later, model = LATER[name]
    found = later(map_blocks(kernels.positive, blocks)).compute(scheduler="threads")
    np.testing.assert_array_equal(found.numpy_blocking(), model(VALUES))


async def test_blocks_draw_by_their_place(client: Any) -> None:
    """The same numbers wherever and however often a block is computed, others for each block and each function."""

    def noise(x: aiodev.Array) -> aiodev.Array:
        return random.random(x.shape)

    x = da.zeros((8, 3), chunks=(4, 3))
    first, second = await computed(client, map_blocks(noise, x)), await computed(client, map_blocks(noise, x))
    np.testing.assert_array_equal(first, second)
    sums = await computed(client, map_blocks(operator.add, map_blocks(noise, x), map_blocks(noise, x + 1)))
    assert len(set(first.ravel())) == 24
    assert (sums != 2 * first).all()


async def test_a_cancelled_collection_cancels_its_coroutines(client: Any, until: Callable[..., Any]) -> None:
    """Which run on the loop of the worker, for a task in a thread; the thread is free again."""

    async def notes() -> set[str]:
        return {note for noted in (await client.run(lambda: list(dask_tasks.noted))).values() for note in noted}

    async def is_held() -> bool:
        return "held" in await notes()

    async def is_over() -> bool:
        executing = await client.run(lambda dask_worker: dask_worker.state.executing_count)
        return "cancelled" in await notes() and not any(executing.values())

    await client.run(dask_tasks.take_notes)
    future = client.compute(map_blocks(dask_tasks.wait_forever, da.ones(4, chunks=4)))
    await until(is_held)
    await client.cancel(future)
    await until(is_over)
    await client.run(dask_tasks.take_notes)


def test_map_blocks_names_its_arguments() -> None:
    """Where nothing is a collection, and where nothing can be called."""
    with pytest.raises(TypeError, match="map_blocks: argument arrays"):
        map_blocks(kernels.square, VALUES)
    with pytest.raises(TypeError, match="map_blocks: argument function"):
        map_blocks(3, da.zeros(3))  # type: ignore[arg-type]


# Trees


@pytest.mark.parametrize(("count", "arity"), [(1, 2), (7, 2), (9, 3), (5, 8)])
async def test_a_tree_keeps_the_order(client: Any, count: int, arity: int) -> None:
    """``combine`` need not commute."""
    futures = client.map(lambda n: [n], range(count))
    assert await tree_reduce(client, operator.add, futures, arity=arity) == list(range(count))


async def test_a_tree_awaits_coroutines(client: Any) -> None:
    """Where ``combine`` is a coroutine function."""

    async def larger(a: aiodev.Array, b: aiodev.Array) -> aiodev.Array:
        return kernels.maximum(a, b)

    futures = client.map(lambda n: aiodev.full(3, n), [3.0, 9.0, 4.0])
    assert await (await tree_reduce(client, larger, futures)).tolist() == [9, 9, 9]


async def test_all_reduce_sums_structures(client: Any) -> None:
    """Lists and dictionaries of arrays, and numbers."""
    futures = [client.submit(lambda n: {"a": [aiodev.full(2, n)], "n": 1}, n, pure=False) for n in (1.0, 2.0, 4.0)]
    found = await all_reduce(client, futures)
    assert found["n"] == 3
    assert await found["a"][0].tolist() == [7, 7]


def test_trees_of_nothing_are_refused(cluster: Any) -> None:
    """With the argument's name; a client that blocks does as well."""
    from distributed import Client

    with Client(cluster.scheduler_address) as client:
        with pytest.raises(ValueError, match="tree_reduce: futures"):
            tree_reduce(client, operator.add, [])
        with pytest.raises(ValueError, match="tree_reduce: argument arity"):
            tree_reduce(client, operator.add, [], arity=1)
        assert tree_reduce(client, operator.add, client.map(int, range(3))).result() == 3


# Halo exchange


def alone(step: Callable[[Any], Any], u: np.ndarray, steps: int, depth: int, periodic: bool) -> np.ndarray:
    """The stencil on one device, as a whole."""

    async def run() -> np.ndarray:
        x = aiodev.asarray(u, device="cpu")
        for _ in range(steps):
            rows = kernels.concat([x[-depth:], x, x[:depth]]) if periodic else x
            inner = step(rows)
            inner = await inner if asyncio.iscoroutine(inner) else inner
            x = inner if periodic else kernels.concat([x[:depth], inner, x[-depth:]])
        return await x.numpy()

    with aiodev.device("cpu"):
        return asyncio.run(run())


STENCILS = {"heat": (dask_tasks.heat_step, 1), "blur": (dask_tasks.blur, 2)}


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("exchange", [1, 3])
@pytest.mark.parametrize("cuts", [(48,), (24, 24), (9, 20, 19)])
@pytest.mark.parametrize("name", STENCILS)
async def test_a_stencil_has_the_bits_of_one_machine(
    client: Any, workers: list[str], name: str, cuts: tuple[int, ...], exchange: int, periodic: bool
) -> None:
    """For any cuts, on both workers, with one exchange for several steps, and a last round that is shorter."""
    await bits_of_one_machine(client, workers, name, cuts, exchange, periodic)


async def test_a_blur_on_two_workers_has_the_bits_of_one_machine(client: Any, workers: list[str]) -> None:
    """One of those cases, which needs no kernel of its own."""
    await bits_of_one_machine(client, workers, "blur", (24, 24), 3, False)


async def bits_of_one_machine(
    client: Any, workers: list[str], name: str, cuts: tuple[int, ...], exchange: int, periodic: bool
) -> None:
    """Compares seven steps of a stencil with those on one device."""
    step, depth = STENCILS[name]
    u = VALUES.astype(np.float32)
    expected = await asyncio.to_thread(alone, step, u, 7, depth, periodic)
    parts = np.split(u, np.cumsum(cuts)[:-1])
    blocks = [
        await client.scatter(aiodev.asarray(part, device="cpu"), workers=[workers[n % 2]]) for n, part in enumerate(parts)
    ]
    after = stencil(client, step, blocks, steps=7, depth=depth, exchange=exchange, periodic=periodic)
    found = [await block.numpy() for block in await client.gather(after)]
    np.testing.assert_array_equal(np.concatenate(found), expected)


async def test_blocks_that_are_too_small_are_named(client: Any) -> None:
    """By the task that finds it out."""
    blocks = [await client.scatter(aiodev.zeros((2, 4), device="cpu"), hash=False) for _ in range(3)]
    with pytest.raises(ValueError, match="a block of 2 rows gives its neighbours 3"):
        await client.gather(stencil(client, dask_tasks.heat_step, blocks, steps=3, exchange=3))


@pytest.mark.parametrize(("name", "value"), [("steps", -1), ("depth", 0), ("exchange", 0)])
async def test_numbers_out_of_bounds_are_named(client: Any, name: str, value: int) -> None:
    """Before anything is submitted."""
    with pytest.raises(ValueError, match=f"stencil: argument {name}"):
        stencil(client, dask_tasks.heat_step, [], **{"steps": 1, name: value})


# Training


async def train(client: Any, workers: list[str], steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and weights of a perceptron that learns digits from four shards, on these workers."""
    samples, labels = load_digits(return_X_y=True)
    samples = (samples[:400] / 16).astype(np.float32)
    targets = np.eye(10, dtype=np.float32)[labels[:400]]
    shards, states = [], []
    for n in range(4):
        own = (samples[100 * n : 100 * (n + 1)], targets[100 * n : 100 * (n + 1)])
        own = tuple(aiodev.asarray(each, device="cpu") for each in own)
        shards.append((await client.scatter([own], workers=[workers[n % len(workers)]], hash=False))[0])
        states.append(client.submit(dask_tasks.first_state, 7, (64, 32, 10), workers=workers, pure=False))
    losses = []
    for _ in range(steps):
        pairs = zip(states, shards, strict=True)
        losses.append(client.submit(dask_tasks.total_loss, [client.submit(dask_tasks.gradient, *pair) for pair in pairs]))
        states = data_parallel(client, dask_tasks.gradient, dask_tasks.update, states, shards)
    weights = await states[-1]
    return await client.gather(losses), {name: await value.numpy() for name, value in weights.items()}


@pytest.mark.exhaustive
async def test_digits_are_learned_on_two_workers_as_on_one(client: Any, workers: list[str]) -> None:
    """The same losses and weights, to the bit, and the loss falls."""
    losses, weights = await train(client, workers, 30)
    alone, the_same = await train(client, workers[:1], 30)
    assert losses == alone
    assert losses[-1] < losses[0]
    for name, value in weights.items():
        np.testing.assert_array_equal(value, the_same[name])


async def test_a_loop_may_let_go_of_its_futures(client: Any) -> None:
    """As fast as it likes: Dask forgets no state before the next step has it."""
    shards = [await client.scatter(aiodev.full(3, float(n), device="cpu")) for n in (1, 2)]
    states = [client.submit(aiodev.zeros, 3, pure=False) for _ in shards]
    for _ in range(30):
        states = data_parallel(client, operator.add, operator.add, states, shards)
    first, second = [await state.tolist() for state in await client.gather(states)]
    assert first == second == [3 * (3**30 - 1) / 2] * 3


async def test_states_and_shards_go_together(client: Any) -> None:
    """One of each."""
    with pytest.raises(ValueError, match="data_parallel: states: expected one for each of 1 shards, got 0"):
        data_parallel(client, dask_tasks.gradient, dask_tasks.update, [], client.map(int, [1]))


# A service


async def test_a_sharded_service_answers_from_all_shards(client: Any) -> None:
    """Each shard is a part of the model; answers are combined."""
    request = np.arange(8.0)
    tables = [np.random.default_rng(shard).normal(size=(50, 8)) for shard in range(3)]
    async with Service(client, dask_tasks.load_shard, dask_tasks.nearest, shards=3, combine=max) as service:
        best, _ = await service(request)
    assert best == pytest.approx(max((table @ request).max() for table in tables))


async def test_replicas_share_the_requests(client: Any) -> None:
    """Many at once, never more than ``maxsize``."""
    async with Service(client, dask_tasks.load_shard, dask_tasks.nearest, shards=2, maxsize=3) as service:
        answers = await asyncio.gather(*(service(np.eye(8)[n]) for n in range(8)))
    assert len(answers) == 8


async def test_a_request_that_is_cancelled_is_withdrawn(client: Any, until: Callable[..., Any]) -> None:
    """Nothing is left of it on the workers, and the service goes on."""
    async with Service(client, str, dask_tasks.answer_or_hold, shards=1) as service:
        request = asyncio.ensure_future(service("hold"))

        async def is_held() -> bool:
            return any("held" in notes for notes in (await client.run(lambda: list(dask_tasks.noted))).values())

        async def is_idle() -> bool:
            return not any((await client.run(dask_tasks.pending)).values())

        await until(is_held)
        request.cancel()
        await until(is_idle)
        assert await service("answer") == "0 answer"
    notes = (await client.run(dask_tasks.take_notes)).values()
    assert [note for own in notes for note in own] == ["held"]


async def test_what_an_answer_raises_arrives(client: Any) -> None:
    """And what loading raises, when the service starts."""
    async with Service(client, dask_tasks.load_shard, dask_tasks.refuse, shards=1) as service:
        with pytest.raises(ValueError, match="refused"):
            await service(np.zeros(8))
    with pytest.raises(RuntimeError, match="only inside"):
        await service(np.zeros(8))
    with pytest.raises(ZeroDivisionError):
        await Service(client, lambda shard: 1 / shard, dask_tasks.nearest, shards=1).__aenter__()


def test_dask_is_as_expected() -> None:
    """Tasks that are coroutines say so, which the worker's plugin goes by."""
    from dask._task_spec import Task

    assert Task("key", dask_tasks.answer_or_hold).is_coro
    assert not Task("key", dask.compute).is_coro
