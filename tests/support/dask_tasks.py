"""What tests of aiodev.dask run on workers, which find this module on the path that they take over from the tests."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

import aiodev
from aiodev import autograd, kernels, profiler
from aiodev.kernels import random
from aiodev.testing import SimulatedBackend

#: What functions of this process have noted.
noted: list[Any] = []
_gates: dict[str, asyncio.Event] = {}
_inside: list[None] = []


def is_installed(dask_worker: Any) -> bool:
    """Whether the worker has its device."""
    plugin = dask_worker.plugins.get("aiodev")
    return plugin is not None and plugin.running is not None


@aiodev.kernel
def positive(i, x):
    """Raises where it is not."""
    if x[i] < 0:
        raise ValueError("negative", i)


def failing_kernel(x: aiodev.Array) -> aiodev.Array:
    """Submits a kernel that will fail, and returns before it does."""
    positive[x.size](x)
    return x


async def failing_call() -> None:
    """Waits for a function that raises."""
    await aiodev.current_stream().call(lambda: [][1])


async def note_device() -> None:
    """Notes it on the worker."""
    noted.append(str(aiodev.current_device()))


def where() -> tuple[str, int]:
    """The current device, and the identity of the current stream."""
    return str(aiodev.current_device()), aiodev.current_stream().stream_id


async def meet(count: int, value: float) -> float:
    """Returns when ``count`` of these are at it in this worker, each on a stream of its own."""
    gate = _gates.setdefault("meet", asyncio.Event())
    noted.append(aiodev.current_stream())
    if len(noted) == count:
        gate.set()
    x = aiodev.full(4, value)
    await gate.wait()
    return await (x + 1).sum().item()


def streams_met() -> int:
    """How many streams those had; forgets them."""
    streams = len({id(stream) for stream in noted})
    noted.clear()
    _gates.clear()
    return streams


async def held(key: str) -> None:
    """Submits work that stays behind a wait for as long as the task lives."""
    stream, gate = aiodev.current_stream(), asyncio.get_running_loop().create_future()
    stream.wait_future(gate)
    last = [stream.call(noted.append, key) for _ in range(10)][-1]
    noted.append("held")
    try:
        await last
    finally:
        gate.set_result(None)


def take_notes() -> list[Any]:
    """What was noted; forgets it."""
    found = noted.copy()
    noted.clear()
    return found


def pending() -> int:
    """Operations that are not done, of all devices."""
    metric = next(metric for metric in profiler.metrics() if metric.name == "aiodev_operations_pending")
    return int(sum(sample.value for sample in metric.samples))


def die_once(noted_in: Path) -> None:
    """Ends the process, if nobody has noted that it did."""
    if not noted_in.exists():
        noted_in.touch()
        os._exit(1)


async def walk(length: int, died: str | None = None) -> np.ndarray:
    """Random numbers; the first time the process dies of it, if it is given a file to note that in."""
    numbers = random.standard_normal(length)
    if died is not None:
        die_once(Path(died))
    return await numbers.numpy()


async def allocate(nbytes: int) -> int:
    """More than there is."""
    return aiodev.empty(nbytes, np.uint8).nbytes


def threads_named(name: str) -> int:
    """How many threads of this process have that name."""
    return sum(thread.name == name for thread in threading.enumerate())


async def ones_summed(nbytes: int, _: object) -> int:
    """So many ones, whose memory is written, and their sum."""
    return int(await aiodev.ones(nbytes, np.uint8).sum(dtype="int64").item())


async def leased(nbytes: int) -> int:
    """How many have memory for this at the same time."""
    async with aiodev.memory.lease(nbytes):
        _inside.append(None)
        for _ in range(10):
            await asyncio.sleep(0)
        most = len(_inside)
        _inside.pop()
        return most


def simulate() -> None:
    """Have this process know a simulated device."""
    aiodev.register_backend("sim", SimulatedBackend)


def limit_memory(nbytes: int) -> None:
    """Leave so much of the simulated device's memory to this process."""
    total = aiodev.memory.mem_get_info("sim")[1]
    aiodev.memory.set_per_process_memory_fraction(nbytes / total, "sim")


async def hold_leased(nbytes: int) -> int:
    """Memory under a lease, until it is to be let go."""
    gate = _gates["held"] = asyncio.Event()
    async with aiodev.memory.lease(nbytes):
        x = aiodev.empty(nbytes, np.uint8)
        noted.append("held")
        await gate.wait()
        return x.nbytes


async def until_held() -> bool:
    """Waits for that memory."""
    while "held" not in noted:  # noqa: ASYNC110  (another task notes)
        await asyncio.sleep(0.01)
    return True


async def until_somebody_waits() -> bool:
    """Waits until a task of this process waits for a lease."""
    while len(aiodev.memory.lease(0)._admission) == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return True


async def let_go() -> None:
    """Lets that memory go."""
    _gates.pop("held").set()
    take_notes()


def size_of(x: aiodev.Array) -> int:
    """In a thread."""
    return x.size


async def awaited_size_of(x: aiodev.Array) -> int:
    """On the loop."""
    return x.size


async def wait_forever(x: aiodev.Array) -> aiodev.Array:
    """Until it is cancelled."""
    noted.append("held")
    try:
        await asyncio.Event().wait()
    finally:
        noted.append("cancelled")
    return x


def unlearn(name: str, value: str | None) -> None:
    """Have this process take aiodev for another version, or for not installed."""
    if name == "version":
        sys.modules["aiodev"].__version__ = value
    elif value is None:
        sys.modules["_aiodev"], sys.modules["aiodev"] = sys.modules["aiodev"], None
    else:
        sys.modules["aiodev"] = sys.modules.pop("_aiodev")


# Stencils


@aiodev.kernel(ndim=2)
def diffuse(i, j, u, rate, out):
    """A step of the heat equation for the rows but the first and the last; the columns at either side are kept."""
    here = u[i + 1, j]
    if j == 0 or j == out.shape[1] - 1:
        out[i, j] = here
    else:
        out[i, j] = here + rate * (u[i, j] + u[i + 2, j] + u[i + 1, j - 1] + u[i + 1, j + 1] - 4 * here)


def heat_step(u: aiodev.Array) -> aiodev.Array:
    """The next values of all rows but two."""
    out = aiodev.empty((u.shape[0] - 2, u.shape[1]), u.dtype)
    diffuse[out.shape](u, 0.2, out)
    return out


async def blur(u: aiodev.Array) -> aiodev.Array:
    """The mean of five rows."""
    rows = u.shape[0] - 4
    return (u[:rows] + u[1 : rows + 1] + u[2 : rows + 2] + u[3 : rows + 3] + u[4:]) / 5


# Training


def first_state(seed: int, widths: tuple[int, ...]) -> dict[str, aiodev.Array]:
    """The weights of a perceptron."""
    generator = np.random.default_rng(seed)
    return {
        f"w{n}": aiodev.asarray(generator.normal(0, a**-0.5, (a, b)).astype(np.float32))
        for n, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True))
    }


async def gradient(state: dict[str, aiodev.Array], shard: tuple[aiodev.Array, aiodev.Array]) -> dict[str, Any]:
    """Of the cross entropy of a shard, summed over its samples; and that itself."""
    samples, labels = shard
    weights = {name: autograd.Variable(value) for name, value in state.items()}
    hidden = kernels.maximum(samples @ weights["w0"], 0.0)
    logits = hidden @ weights["w1"]
    loss = -(kernels.log_softmax(logits, axis=1) * labels).sum()
    await autograd.backward(loss)
    found: dict[str, Any] = {name: weight.grad for name, weight in weights.items()}
    return found | {"loss": loss.detach(), "count": float(labels.shape[0])}


def update(state: dict[str, aiodev.Array], total: dict[str, Any]) -> dict[str, aiodev.Array]:
    """Gradient descent."""
    rate = 0.5 / total["count"]
    return {name: value - rate * total[name] for name, value in state.items() if name in total}


async def total_loss(gradients: list[dict[str, Any]]) -> float:
    """The mean of the shards' losses."""
    return sum([await each["loss"].item() for each in gradients]) / sum(each["count"] for each in gradients)


# A service


def load_shard(shard: int) -> aiodev.Array:
    """A part of a table of vectors."""
    return aiodev.asarray(np.random.default_rng(shard).normal(size=(50, 8)))


async def nearest(table: aiodev.Array, request: np.ndarray) -> tuple[float, int]:
    """The best product of a request with a vector of the table, and which it is."""
    products = await (table @ aiodev.asarray(request)).numpy()
    return float(products.max()), int(products.argmax())


def refuse(table: aiodev.Array, request: np.ndarray) -> None:
    """Raises."""
    raise ValueError("refused")


async def answer_or_hold(model: str, request: str) -> str:
    """Holds where it is asked to."""
    if request == "hold":
        await held("ran")
    return f"{model} {request}"


# Random programs


async def awaited(x: aiodev.Array, y: aiodev.Array) -> aiodev.Array:
    """Waits in between, and returns before what it has submitted is done."""
    largest = await kernels.max(x).item()
    return x - y * np.sign(largest)


def views(x: aiodev.Array) -> list[aiodev.Array]:
    """Views of what it was given, and of memory of its own."""
    return [x[::-1], (x + 1).T, x[:0]]


def first_view(found: list[aiodev.Array]) -> aiodev.Array:
    """Of the other task's list."""
    return found[0] + 1


def refuse_negative(x: aiodev.Array) -> aiodev.Array:
    """Fails, after it has returned, where something is negative."""
    positive[x.size](x.reshape(-1))
    return x * 2


def in_two_streams(x: aiodev.Array, y: aiodev.Array) -> aiodev.Array:
    """Uses a stream besides the task's own."""
    other = aiodev.Stream()
    other.wait_stream(aiodev.current_stream())
    with other:
        product = x * y
    aiodev.current_stream().wait_stream(other)
    return product + x
