"""Native libraries in stream order, and matrix products through one: a stand-in for cuBLAS on the stand-in driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
import standin

import aiodev
from aiodev._backends.cuda import CUDABackend
from aiodev._core.streams.native_calls import pack

#: ns that nothing takes
PATIENCE = 30_000_000_000

_PREAMBLE = """
import numpy as np
from aiodev import kernels
from aiodev.kernels.linalg import cublas
cublas.find_library = lambda: library
calls = lambda: driver.count("cublasGemmStridedBatchedEx_64")
chance = np.random.default_rng(1)
def random(*shape, dtype):
    x = chance.standard_normal(shape)
    return (x + 1j * chance.standard_normal(shape) if dtype in "FD" else x).astype(dtype)
"""


def test_products_are_captured(run: Callable[..., str]) -> None:
    """A graph has products by the library, the first of the process too, and takes other arrays in the place of theirs."""
    said = run(
        _PREAMBLE
        + """
async def main():
    async with aiodev.device("cuda"):
        a, b, c = random(3, 4, dtype="f"), random(4, 2, dtype="f"), random(3, 4, dtype="f")
        x, y, z = map(aiodev.asarray, (a, b, c))
        await aiodev.synchronize()
        async with aiodev.capture() as graph:
            product = kernels.matmul(graph.input("x", x), y)
        before = calls()
        await graph.replay()
        np.testing.assert_allclose(await product.numpy(), a @ b, rtol=2e-5)
        graph.update(x=z)
        await graph.replay()
        np.testing.assert_allclose(await product.numpy(), c @ b, rtol=2e-5)
        print(calls() - before, repr(graph))
        again = aiodev.make_graphed(kernels.matmul)
        np.testing.assert_allclose(await again(x, y).numpy(), a @ b, rtol=2e-5)
        np.testing.assert_allclose(await again(z, y).numpy(), c @ b, rtol=2e-5)

asyncio.run(main())
"""
    )
    assert said.splitlines()[-1].endswith("<aiodev.Graph of 1 operations on cuda:0>")


def test_products_of_every_shape(run: Callable[..., str]) -> None:
    """Each type that it has; transposed operands, slices, vectors, batches that broadcast, results by rows or columns."""
    said = run(
        _PREAMBLE
        + """
async def check(a, b, here=lambda a, b: kernels.matmul(a, b), there=np.matmul):
    before = calls()
    found = await here(aiodev.asarray(a), aiodev.asarray(b)).numpy()
    np.testing.assert_allclose(found, there(a, b), rtol=3e-3 if a.dtype == "e" else 2e-5, atol=2e-3 if a.dtype == "e" else 1e-5)
    assert found.dtype == a.dtype and calls() > before, "not through cuBLAS"

async def main():
    for dtype in "efdFD":
        await check(random(5, 7, dtype=dtype), random(7, 3, dtype=dtype))
    a, b = random(6, 6, dtype="f"), random(6, 6, dtype="f")
    await check(a, b, lambda a, b: kernels.matmul(a.T, b), lambda a, b: a.T @ b)
    await check(a, b, lambda a, b: kernels.matmul(a[1:4], b.T[:, 2:]), lambda a, b: a[1:4] @ b.T[:, 2:])
    await check(a, b, lambda a, b: kernels.matmul(a[::2], b), lambda a, b: a[::2] @ b)
    await check(a, b, lambda a, b: kernels.matmul(a, b[0]), lambda a, b: a @ b[0])
    await check(a, b, lambda a, b: kernels.matmul(a[0], b), lambda a, b: a[0] @ b)
    def by_columns(a, b):
        out = aiodev.empty((6, 6), "f4")
        kernels.matmul(a, b, out=out.T)
        return out.T
    await check(a, b, by_columns, np.matmul)
    x, y = random(2, 4, 5, 6, dtype="d"), random(4, 6, 3, dtype="d")
    await check(x, y)
    await check(x, y[0])
    await check(x[0], y)
    await check(random(1, 1, dtype="f"), random(1, 1, dtype="f"))
    await check(random(3, 1, dtype="f"), random(1, 4, dtype="f"))
    await check(x[0], x[1], lambda a, b: kernels.tensordot(a, b, axes=([0, 2], [0, 2])),
                lambda a, b: np.tensordot(a, b, axes=([0, 2], [0, 2])))
    before = calls()
    integers = np.arange(12).reshape(3, 4)
    assert (await kernels.matmul(aiodev.asarray(integers), aiodev.asarray(integers.T)).numpy() == integers @ integers.T).all()
    assert calls() == before
for device in ("cuda:0", "cuda:1"):
    aiodev.set_device(device)
    asyncio.run(main())
print("ok", driver.count("cublasCreate_v2"))
"""
    )
    assert said == "ok 2\n"


def test_products_on_many_streams(run: Callable[..., str]) -> None:
    """In the order of each stream, from several threads at once, though there is but one handle; failures are the stream's."""
    said = run(
        _PREAMBLE
        + """
import threading
aiodev.set_device("cuda:0")
ones = np.ones((4, 4), "f4")

async def chain(stream):
    with stream:
        x, y = aiodev.asarray(ones), aiodev.asarray(ones / 4)
        for _ in range(50):
            x = kernels.add(kernels.matmul(x, y), y)
        return await x.numpy()

async def several():
    found = await asyncio.gather(*(chain(aiodev.Stream()) for _ in range(4)))
    assert all(np.allclose(x, 1 + 50 / 4) for x in found), found

asyncio.run(several())
threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]

async def failing():
    stream = aiodev.Stream()
    with stream:
        x = aiodev.asarray(ones)
        await kernels.matmul(x, x).numpy()
        driver.inject("cublasGemmStridedBatchedEx_64", 13)
        bad = kernels.matmul(x, x)
        try:
            await stream.synchronize()
        except aiodev.DeviceError as error:
            print(error)
        assert (await kernels.matmul(x, x).numpy() == 4).all()
asyncio.run(failing())
"""
    )
    assert said == "call_native on cuda:0: function 2 of the calls returned 13\n"


def test_without_cublas(run: Callable[..., str]) -> None:
    """Products are computed by loops where there is none; one that cannot be loaded says so first, to who asked."""
    said = run(
        _PREAMBLE
        + """
import warnings
warnings.simplefilter("ignore")
aiodev.set_device("cuda:0")
x = np.arange(6, dtype="f4").reshape(2, 3)
async def product():
    return (await kernels.matmul(aiodev.asarray(x), aiodev.asarray(x.T)).numpy()).tolist()
async def main():
    cublas.find_library = lambda: None
    print(await product() == (x @ x.T).tolist(), calls())
    from aiodev.kernels.linalg import products as module
    module.TILED = 1
    for m, n, k in ((4, 4, 1), (5, 9, 3), (17, 6, 2), (8, 4, 0)):
        for dtype in ("i4", "f8"):
            a, b = np.arange(2 * m * k).reshape(2, m, k).astype(dtype), np.arange(k * n).reshape(k, n).astype(dtype) - 5
            assert (await kernels.matmul(aiodev.asarray(a), aiodev.asarray(b)).numpy() == a @ b).all(), (m, n, k)
            c = np.ascontiguousarray(np.swapaxes(a, 1, 2))
            found = kernels.matmul(aiodev.asarray(c).transpose(0, 2, 1), aiodev.asarray(b.T.copy()).T)
            assert (await found.numpy() == a @ b).all(), (m, n, k)
    cublas.find_library = lambda: "/nowhere/libcublas.so.12"
    try:
        await product()
    except aiodev.DependencyError as error:
        print(type(error.__cause__).__name__, "libcublas" in str(error.__cause__))
    print(await product() == (x @ x.T).tolist(), calls())
asyncio.run(main())
"""
    )
    assert said == "True 0\nOSError True\nTrue 0\n"


def test_calls_wait_for_their_turn(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Not before what is ahead; then with the queue's stream, and with what the cells hold by then."""
    seen: list[tuple[int, ...]] = []
    take = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 4)(lambda *words: seen.append(words) or 0)
    address = ctypes.cast(take, ctypes.c_void_p).value
    cell, lock = ctypes.c_int64(0), ctypes.c_int64(0)
    queue, _ = backend.executor.create_queue(0, 0, False)
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    done = backend.executor.call_native(queue, pack([(address, -1, None, cell), (address, 2)], lock))
    cell.value = 77
    assert not backend.executor.spin(queue, done, 1_000_000) and not seen
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, done, PATIENCE) and lock.value == 0
    stream = seen[0][1]
    assert seen == [(-1, stream, 77, 0), (2, 0, 0, 0)] and stream > 0
    missing = backend.executor.call_native(queue, pack([(ctypes.c_int64(0),), (address, 3)], None))
    assert backend.executor.spin(queue, missing, PATIENCE)
    (fault,) = backend.executor.faults(queue)
    assert isinstance(fault.error, aiodev.DeviceError) and len(seen) == 2
    backend.executor.destroy_queue(queue)


def test_calls_that_may_wait(backend: CUDABackend) -> None:
    """A thread makes them, when nothing is ahead: once for each of a range, with the word of the place that they hold."""
    seen: list[tuple[int, ...]] = []
    threads: set[int] = set()

    def note(*words: int) -> int:
        threads.add(threading.get_native_id())
        seen.append(words)
        return 0

    take = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 3)(note)
    address = ctypes.cast(take, ctypes.c_void_p).value
    locks, handles = (ctypes.c_int64 * 2)(1, 0), (ctypes.c_int64 * 2)(70, 71)  # the first is held
    queue, _ = backend.executor.create_queue(0, 0, False)
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    done = backend.executor.call_native(queue, pack([(address, range(1, 6, 2), None, handles)], locks, True))
    assert not backend.executor.spin(queue, done, 1_000_000) and not seen
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, done, PATIENCE) and list(locks) == [1, 0]
    assert [(first, handle) for first, _, handle in seen] == [(1, 71), (3, 71), (5, 71)]
    assert len(threads) == 1 and threading.get_native_id() not in threads
    backend.executor.destroy_queue(queue)


def test_what_cannot_be_passed() -> None:
    """Floats, buffers that are too small, and more words than there are, are refused by name."""
    with pytest.raises(TypeError, match=r"expected an integer.*got 1\.5"):
        pack([(1, 1.5)], None)
    with pytest.raises(TypeError, match="8 bytes"):
        pack([(1,)], bytearray(4))
    with pytest.raises(ValueError, match="up to 24 arguments"):
        pack([list(range(26))], None)
    with pytest.raises(ValueError, match="of one length"):
        pack([(1, range(2), range(3))], None)
    with pytest.raises(ValueError, match="2 places"):
        pack([(1, bytearray(24))], bytearray(16))


def test_what_a_failed_call_only_read_stays_as_it_was(run: Callable[..., str]) -> None:
    """Products, transforms and calls of one's own that fail take their results along, not what requests share."""
    said = run("""
import numpy as np
from aiodev import kernels
from aiodev.kernels import fft
from aiodev.kernels.fft import cufft
from aiodev.kernels.linalg import cublas
cublas.find_library = cufft.find_library = lambda: library

def fail():
    raise OSError

async def main():
    async with aiodev.device("cuda"):
        weights, kept = aiodev.ones((8, 8)), aiodev.ones(4)
        await kernels.matmul(weights, weights).numpy()
        await fft.rfft(weights).numpy()
        failing = aiodev.Stream()
        failing.wait_stream(aiodev.current_stream())
        with failing:
            failing.call(fail)
            out = aiodev.empty(4)
            results = [kernels.matmul(weights, weights), fft.rfft(weights), out]
            copy = backend.executor.driver.address("cuMemcpyAsync")
            failing.call_native((copy, out, kept, 16, None), reads=(kept,))
        for result in results:
            try:
                await result.numpy()
            except aiodev.DependencyError:
                print("failed", end=" ")
        print((await weights.numpy() == 1).all(), (await kept.numpy() == 1).all())
asyncio.run(main())
""")
    assert said == "failed failed failed True True\n"
