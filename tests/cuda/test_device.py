"""On a real GPU: the rules, kernels next to NumPy, the same random bits as the CPU's, random programs, overlap.

All are marked ``cuda`` and skip, with the reason, where no CUDA device can be used. ``tests/bench/gpu_check.sh`` runs them.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import world

import aiodev
from aiodev import kernels, lang
from aiodev._backends.cuda import CUDABackend
from aiodev.testing import RULES, Latch, NotApplicable, Rule, SimulatedBackend, check_rule

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[aiodev.Device]:
    """``cuda:0``; skips where there is none."""
    backend: Any = aiodev.get_backend("cuda")
    reason = backend.unavailable_reason()
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")
    yield aiodev.Device("cuda:0")


@pytest.fixture(scope="module")
def started() -> CUDABackend:
    """The backend, started."""
    asyncio.run(aiodev.init("cuda"))
    backend = aiodev.get_backend("cuda")
    assert isinstance(backend, CUDABackend)
    return backend


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rule(rule: Rule, started: CUDABackend) -> None:
    """Each promise of a backend, on the device."""
    try:
        check_rule(started, rule)
    except NotApplicable as reason:
        pytest.skip(str(reason))


@aiodev.kernel
def axpy(i: int, a: Any, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel(ndim=2)
def transpose(i: int, j: int, x: Any, out: Any) -> None:
    out[j, i] = x[i, j]


@aiodev.kernel(ndim=3)
def number(i: int, j: int, k: int, out: Any) -> None:
    out[i, j, k] = 10000 * i + 100 * j + k


@aiodev.kernel
def count(i: int, x: Any, out: Any) -> None:
    lang.atomic_add(out, x[i] % 7, 1)


@aiodev.kernel
def divide(i: int, x: Any, y: Any, out: Any) -> None:
    if x[i] < 0:
        raise ValueError("negative", 3)
    out[i] = x[i] // y[i]


@pytest.mark.parametrize("code", ["i1", "i2", "i4", "i8", "u1", "u4", "u8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("step", [1, 3, -2])
async def test_types_and_strides(code: str, step: int, device: aiodev.Device) -> None:
    """Elements of every type, arrays with gaps and backwards, agree with NumPy."""
    chance = np.random.default_rng(1)
    x, y = ((chance.random(10_001) * 50).astype(code) for _ in range(2))
    on_x, on_y = aiodev.asarray(x, device=device)[::step], aiodev.asarray(y, device=device)[::step]
    out = aiodev.empty(on_x.shape, dtype=code, device=device)
    await axpy[out.size](np.dtype(code).type(3), on_x, on_y, out)
    np.testing.assert_allclose(await out.numpy(), np.dtype(code).type(3) * x[::step] + y[::step], rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1000), (1000, 3), (257, 513)])
async def test_two_dimensions(shape: tuple[int, int], device: aiodev.Device) -> None:
    """Any shape is covered, whatever grid is chosen."""
    x = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    out = aiodev.empty(shape[::-1], dtype="f4", device=device)
    await transpose[shape](aiodev.asarray(x, device=device), out)
    assert (await out.numpy() == x.T).all()


async def test_three_dimensions(device: aiodev.Device) -> None:
    """And of three."""
    out = aiodev.empty((5, 70, 90), dtype="i8", device=device)
    await number[5, 70, 90](out)
    i, j, k = np.indices((5, 70, 90))
    assert (await out.numpy() == 10000 * i + 100 * j + k).all()


async def test_atomics(device: aiodev.Device) -> None:
    """A million updates of seven elements lose none."""
    x = aiodev.asarray(np.arange(1_000_003), device=device)
    out = aiodev.zeros(7, dtype="i8", device=device)
    await count[1_000_003](x, out)
    assert (await out.numpy() == np.bincount(np.arange(1_000_003) % 7)).all()


@pytest.mark.parametrize(("place", "kind"), [("x", ValueError), ("y", ZeroDivisionError)])
async def test_exceptions(place: str, kind: type[Exception], device: aiodev.Device) -> None:
    """What a body raises arrives, with its line; what is behind does not run; after that the stream runs again."""
    stream = aiodev.Stream(device)
    with stream:
        x, y = np.ones(5000, "i8"), np.ones(5000, "i8")
        (x if place == "x" else y)[4321] = -1 if place == "x" else 0
        out, copied = aiodev.zeros(5000, "i8", device), aiodev.zeros(5000, "i8", device)
        on_x, on_y = aiodev.asarray(x, device=device), aiodev.asarray(y, device=device)
        await divide.compile(on_x, on_y, out)
        failed = divide[5000](on_x, on_y, out)
        behind = axpy[5000](1, out, out, copied)
        with pytest.raises(aiodev.KernelError) as caught:
            await failed
        assert isinstance(caught.value.__cause__, kind) and __file__ in str(caught.value)
        with pytest.raises(aiodev.DependencyError):
            await behind
        good = aiodev.ones(5000, "i8", device)
        await divide[5000](good, good, out)
        assert (await out.numpy() == 1).all()


async def test_teams(device: aiodev.Device) -> None:
    """A body that a block's threads run together shares memory and meets at barriers, for more rows than blocks."""
    cuda = pytest.importorskip("numba.cuda")
    if not aiodev.capabilities(device).thread_blocks:
        pytest.skip("the device is a stand-in without thread blocks")
    single = np.float32

    @aiodev.kernel
    def row_sums(i: int, x: Any, out: Any) -> None:
        out[i] = 0

    @row_sums.implementation("cuda", block=128, grid=50, team=True)
    def row_sums_cuda(i: int, x: Any, out: Any) -> None:
        parts = cuda.shared.array(128, single)
        thread = cuda.threadIdx.x
        k = thread
        total = single(0)
        while k < x.shape[1]:
            total += x[i, k]
            k += 128
        parts[thread] = total
        cuda.syncthreads()
        step = 64
        while step > 0:
            if thread < step:
                parts[thread] += parts[thread + step]
            cuda.syncthreads()
            step //= 2
        if thread == 0:
            out[i] = parts[0]

    x = np.random.default_rng(3).random((1001, 777), dtype="f4")
    out = aiodev.zeros(1001, "f4", device)
    await row_sums[1001](aiodev.asarray(x, device=device), out)
    np.testing.assert_allclose(await out.numpy(), x.sum(1), rtol=1e-5)


async def test_the_same_bits_as_the_cpu(device: aiodev.Device) -> None:
    """One seed gives one sequence, on every device."""
    for draw in (kernels.random.random_raw, kernels.random.random):
        here = draw((10_007,), generator=aiodev.Generator(device).manual_seed(7))
        there = draw((10_007,), generator=aiodev.Generator("cpu").manual_seed(7))
        assert (await here.numpy() == await there.numpy()).all()


@pytest.mark.parametrize("seed", range(8))
async def test_random_programs(seed: int, device: aiodev.Device) -> None:
    """Random launches, copies, waits, calls and gates on four streams give what running them one by one would."""
    chance = random.Random(seed)
    streams = [aiodev.Stream(device, priority=chance.choice((-1, 0, 1))) for _ in range(4)]
    size = chance.choice((1, 100, 100_000))
    cells = [aiodev.asarray(np.full(size, i, "i8"), device=device) for i in range(6)]
    await aiodev.synchronize(device)
    model = list(range(6))
    writer: list[aiodev.Completion | None] = [None] * 6
    readers: list[list[aiodev.Completion]] = [[] for _ in range(6)]
    for _ in range(300):
        stream = chance.choice(streams)
        a, b, out = (chance.randrange(6) for _ in range(3))
        for needed in (writer[a], writer[b], writer[out], *readers[out]):
            if needed is not None:
                stream.wait(needed)
        if chance.random() < 0.1:
            stream.call(lambda: None)
        factor = chance.randrange(-3, 4)
        done = axpy[size, stream](factor, cells[a], cells[b], cells[out])
        model[out] = (factor * model[a] + model[b] + (1 << 63)) % (1 << 64) - (1 << 63)
        writer[out], readers[out] = done, []
        for read in {a, b} - {out}:
            readers[read].append(done)
    for stream in streams:
        await stream.synchronize()
    found = [await cell.numpy() for cell in cells]
    assert [int(values[0]) for values in found] == model
    assert all((values == values[0]).all() for values in found)


@pytest.mark.parametrize("seed", range(10))
def test_random_operations(seed: int, started: CUDABackend) -> None:
    """Failures among them: the same memory and the same faults as on the portable executor."""
    model = SimulatedBackend(1)
    model.start()
    world.compare(seed, started, model)
    model.stop()


async def test_a_million_submissions_do_not_block(device: aiodev.Device) -> None:
    """Far more than the driver has room for, behind a latch."""
    stream = aiodev.Stream(device)
    x = aiodev.zeros(1, "i8", device)
    await count.compile(x, x)
    await aiodev.synchronize(device)
    with Latch(stream):
        for _ in range(100_000):
            last = axpy[1, stream](1, x, x, x)
        assert not last.query()
    await last


@pytest.mark.parametrize("name", ["add", "exp", "log", "sin", "sqrt", "tanh", "matmul", "softmax"])
async def test_library(name: str, device: aiodev.Device) -> None:
    """A sample of the library next to the CPU."""
    x = np.random.default_rng(2).random((64, 96), dtype="f4") + 0.5
    arguments = {"add": (x, x), "matmul": (x, np.ascontiguousarray(x.T))}.get(name, (x,))
    function = getattr(kernels, name)
    here = function(*(aiodev.asarray(a, device=device) for a in arguments))
    there = function(*(aiodev.asarray(a, device="cpu") for a in arguments))
    np.testing.assert_allclose(await here.numpy(), await there.numpy(), rtol=2e-5)


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "c8", "c16", "i4"])
async def test_products(code: str, device: aiodev.Device) -> None:
    """Through cuBLAS where it is installed: plain, transposed, sliced, stacked; integers by a kernel."""
    chance = np.random.default_rng(3)
    a, b = ((chance.random((3, 130, 70)) * 4).astype(code) for _ in range(2))
    tolerance = {"f2": 2e-2, "f8": 1e-12, "c16": 1e-12}.get(code, 2e-5)
    with aiodev.Stream(device):
        on_a, on_b = (aiodev.asarray(x, device=device) for x in (a, b))
        stacked = await kernels.matmul(on_a, on_b.transpose(0, 2, 1)).numpy()
        sliced = await kernels.matmul(on_a[0].T, on_b[1, :, 10:20]).numpy()
    wide = np.result_type(code, "f4") if code == "f2" else np.dtype(code)
    expected = a.astype(wide) @ b.astype(wide).transpose(0, 2, 1)
    np.testing.assert_allclose(stacked, expected, rtol=tolerance)
    np.testing.assert_allclose(sliced, a[0].astype(wide).T @ b[1, :, 10:20].astype(wide), rtol=tolerance)


@pytest.mark.parametrize("shape", [(257,), (3_000_001,), (100_000, 5), (7, 40_000), (40_000, 7), (300, 5000)])
async def test_teams_of_the_library(shape: tuple[int, ...], device: aiodev.Device) -> None:
    """Reductions, running sums and sorting by blocks' threads, next to NumPy: long rows, short ones, and columns."""
    x = np.random.default_rng(4).standard_normal(shape).astype("f4")
    there = aiodev.asarray(x, device=device)
    for axis in range(x.ndim):
        wide = x.astype("f8")
        np.testing.assert_allclose(await kernels.sum(there, axis=axis).numpy(), wide.sum(axis), 1e-5, 1e-4)
        np.testing.assert_allclose(await kernels.std(there, axis=axis).numpy(), wide.std(axis), 1e-5)
        np.testing.assert_array_equal(await kernels.max(there, axis=axis).numpy(), x.max(axis))
        np.testing.assert_array_equal(await kernels.argmin(there, axis=axis).numpy(), x.argmin(axis))
        running = await kernels.cumulative_sum(there, axis=axis).numpy()
        np.testing.assert_allclose(running, wide.cumsum(axis), 1e-5, 1e-3)
        np.testing.assert_array_equal(await kernels.sort(there, axis=axis).numpy(), np.sort(x, axis))
        places = await kernels.argsort(there, axis=axis).numpy()
        np.testing.assert_array_equal(places, np.argsort(x, axis, kind="stable"))
    norms = await kernels.linalg.vector_norm(there, axis=-1).numpy()
    np.testing.assert_allclose(norms, np.linalg.vector_norm(x.astype("f8"), axis=-1), 1e-5)
    again = [await kernels.sum(there).numpy() for _ in range(3)]
    assert again[0] == again[1] == again[2]


def _torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    return torch


async def test_a_stream_of_torch(device: aiodev.Device) -> None:
    """Torch's stream as one of ours: what both submit to it is done in the order in which it was submitted."""
    torch = _torch()
    theirs = torch.cuda.Stream()
    ours = aiodev.Stream(device, external=theirs.cuda_stream)
    with ours:
        x = aiodev.ones(100_000, "f4", device)
        await axpy.compile(1, x, x, x)
        await ours.synchronize()
        shared = torch.from_dlpack(x)
        with torch.cuda.stream(theirs):
            torch.cuda._sleep(200_000_000)  # about 0.1 s, in which more is submitted than a channel has room for
        for _ in range(1000):
            axpy[100_000, ours](1, x, x, x)  # twice as much
            with torch.cuda.stream(theirs):
                shared.sub_(1.0)
        assert (await x.numpy() == 1).all()
        assert ours.__cuda_stream__() == (0, theirs.cuda_stream)


async def test_torch_captures_beside_us(device: aiodev.Device) -> None:
    """A graph that torch captures is whole although our threads ask after our work meanwhile."""
    torch = _torch()
    t = torch.zeros(1000, device="cuda")
    x = aiodev.zeros(1 << 24, "f4", device)
    await axpy.compile(1, x, x, x)
    for _ in range(200):
        last = axpy[x.size](1, x, x, x)
    waiting = asyncio.ensure_future(last.synchronize())
    await asyncio.sleep(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.add_(1)
        await asyncio.sleep(0.05)  # long enough for a look at the device's health
        t.add_(1)
    await waiting
    graph.replay()
    torch.cuda.synchronize()
    assert (t == 2).all()
