"""Factorisations through a stand-in for cuSOLVER on the stand-in driver, which factorises by NumPy's LAPACK."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from aiodev.kernels.linalg import cublas, cusolver

Run = Callable[..., str]

_PREAMBLE = """
import numpy as np
from aiodev import autograd, kernels
from aiodev.kernels import linalg
from aiodev.kernels.linalg import batched, cublas, cusolver, openblas
BLAS = None
cublas.find_library = lambda: BLAS
cusolver.find_library = lambda: library
driver.give_lapack(openblas.library_name())
chance = np.random.default_rng(1)
def random(*shape, dtype="d"):
    x = chance.standard_normal(shape)
    return (x + 1j * chance.standard_normal(shape) if dtype in "FD" else x).astype(dtype)
def flipped(x):
    return np.conj(np.swapaxes(x, -1, -2))
async def values(*arrays):
    return [await x.numpy() for x in arrays]
aiodev.set_device("cuda:0")
"""


#: How programs begin: stacks are a call for each matrix; those of small ones one call, LU factorisations if cuBLAS is there.
EACH, WHOLE, WITHOUT_BLAS = "batched.BATCHED_ROWS = batched.JACOBI_ROWS = 0\n", "BLAS = library\n", "\n"


@pytest.mark.parametrize("how", [EACH, WHOLE, WITHOUT_BLAS], ids=["each", "whole", "without-blas"])
@pytest.mark.parametrize("dtype", list("fdFD"))
def test_square_matrices(run: Run, dtype: str, how: str) -> None:
    """Inverses, solutions, determinants, Cholesky factors and eigenvalues of matrices, stacks and views."""
    said = run(
        _PREAMBLE
        + how
        + f"dtype, close = {dtype!r}, {2e-3 if dtype in 'fF' else 1e-9}"
        + """
def same(found, expected):
    np.testing.assert_allclose(found, expected, close, close)
async def main():
    for batch in ((), (3,), (2, 2)):
        x, y = random(*batch, 4, 4, dtype=dtype), random(*batch, 4, 3, dtype=dtype)
        h = x @ flipped(x) + np.eye(4, dtype=dtype)
        a, b, c = map(aiodev.asarray, (x, y, h))
        same(await linalg.inv(a).numpy(), np.linalg.inv(x))
        same(await linalg.inv(a.mT).numpy(), np.linalg.inv(np.swapaxes(x, -1, -2)))
        same(await linalg.solve(a, b).numpy(), np.linalg.solve(x, y))
        same(await linalg.det(a).numpy(), np.linalg.det(x))
        same([*await values(*linalg.slogdet(a))][0], np.linalg.slogdet(x).sign)
        same([*await values(*linalg.slogdet(a))][1], np.linalg.slogdet(x).logabsdet)
        same(await linalg.cholesky(c).numpy(), np.linalg.cholesky(h))
        same(await linalg.cholesky(c, upper=True).numpy(), flipped(np.linalg.cholesky(h)))
        same(await linalg.eigvalsh(c).numpy(), np.linalg.eigvalsh(h))
        w, v = await values(*linalg.eigh(c))
        same(h @ v / 10, v * w[..., None, :] / 10)
        out = aiodev.empty((4, *batch, 4), a.dtype)
        places = (*range(1, 1 + len(batch)), 0, 1 + len(batch))
        linalg.inv(a, out=out.transpose(*places))
        same(np.transpose(await out.numpy(), places), np.linalg.inv(x))
    vector = random(4, dtype=dtype)
    same(await linalg.solve(aiodev.asarray(x), aiodev.asarray(vector)).numpy(), np.linalg.solve(x, vector[:, None])[..., 0])
    same(await linalg.matrix_power(aiodev.asarray(x), -2).numpy(), np.linalg.matrix_power(np.linalg.inv(x), 2))
    print(await linalg.det(aiodev.zeros((2, 2))).numpy(), await linalg.det(aiodev.zeros((2, 0, 0))).numpy())
    large = np.diag([1e300, 1e300, 1e-300, -1e-300])
    same(await linalg.det(aiodev.asarray(large)).numpy(), -1.0)
asyncio.run(main())
"""
    )
    assert said == "0.0 [1. 1.]\n"


@pytest.mark.parametrize("how", [EACH, WHOLE], ids=["each", "whole"])
@pytest.mark.parametrize("dtype", list("dF"))
def test_gradients_of_determinants(run: Run, dtype: str, how: str) -> None:
    """Of stacks in which some matrices are regular, and some of any lower rank."""
    run(
        _PREAMBLE
        + how
        + f"dtype, close = {dtype!r}, {2e-3 if dtype in 'fF' else 1e-9}"
        + """
def minor(x, i, j):
    return np.linalg.det(np.delete(np.delete(x, i, 0), j, 1))
async def main():
    x = np.stack([random(4, rank, dtype=dtype) @ random(rank, 4, dtype=dtype) for rank in (4, 3, 2, 4)])
    x[1], x[3, :, 0] = np.diag(x[1, 0]), 0
    x[1, 1, 1] = 0
    own = autograd.Variable(aiodev.asarray(x))
    await autograd.backward(linalg.det(own), aiodev.ones((4,), x.dtype))
    expected = [[[(-1) ** (i + j) * minor(one, i, j) for j in range(4)] for i in range(4)] for one in x]
    np.testing.assert_allclose(await own.grad.numpy(), np.conj(expected), close, close)
    large = autograd.Variable(aiodev.asarray(np.diag([1e200, 1e200, 1e-200, 1e-200, 1e-200, 1e-200])))
    await linalg.det(large).backward()
    np.testing.assert_allclose(np.diag(await large.grad.numpy())[2:], 1e-200, close)
asyncio.run(main())
"""
    )


@pytest.mark.parametrize("dtype", list("fdFD"))
def test_any_matrices(run: Run, dtype: str) -> None:
    """QR factors and singular values and vectors, of high and wide matrices, and of those without rows or columns."""
    run(
        _PREAMBLE
        + f"dtype, close = {dtype!r}, {2e-3 if dtype in 'fF' else 1e-9}"
        + """
def same(found, expected):
    assert found.shape == expected.shape, (found.shape, expected.shape)
    np.testing.assert_allclose(found, expected, close, close)
async def main():
    for batch in ((), (3,), (2, 2)):
        for shape in ((4, 4), (5, 3), (3, 5), (1, 3), (3, 0), (0, 2)):
            x = random(*batch, *shape, dtype=dtype)
            a, k = aiodev.asarray(x), min(shape)
            same(await linalg.svdvals(a).numpy(), np.linalg.svd(x, compute_uv=False))
            for full in (True, False):
                u, s, vh = await values(*linalg.svd(a, full_matrices=full))
                expected = np.linalg.svd(x, full_matrices=full)
                assert (u.shape, vh.shape) == (expected.U.shape, expected.Vh.shape)
                same((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
                same(flipped(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), (*batch, *u.shape[-1:] * 2)))
                same(vh @ flipped(vh), np.broadcast_to(np.eye(vh.shape[-2]), (*batch, *vh.shape[-2:-1] * 2)))
            for mode in ("reduced", "complete"):
                q, r = await values(*linalg.qr(a, mode=mode))
                expected = np.linalg.qr(x, mode=mode)
                same(q, expected.Q)
                same(r, expected.R)
    x = random(4, 3, dtype=dtype)
    same(await linalg.pinv(aiodev.asarray(x)).numpy(), np.linalg.pinv(x))
    assert await linalg.matrix_rank(aiodev.asarray(x[:, :1] @ x[:1])).item() == 1
asyncio.run(main())
"""
    )


@pytest.mark.parametrize("how", [EACH, WHOLE], ids=["each", "whole"])
def test_what_is_wrong_with_a_matrix(run: Run, how: str) -> None:
    """It is found on the device: who waits gets LinAlgError as the cause, as on the CPU; later work of the stream runs."""
    said = run(
        _PREAMBLE
        + how
        + """
async def main():
    bad = np.stack([np.eye(2), np.zeros((2, 2))])
    for device in ("cpu", "cuda:0"):
        x, y = aiodev.asarray(bad, device=device), aiodev.asarray(-bad, device=device)
        for function in (linalg.inv, lambda x: linalg.solve(x, x), lambda x: linalg.cholesky(y)):
            try:
                await function(x).numpy()
            except aiodev.KernelError as error:
                print(type(error.__cause__).__name__, error.__cause__)
        print(abs(await linalg.inv(x[:1]).numpy()).tolist())
asyncio.run(main())
"""
    ).splitlines()
    assert said[:4] == said[4:] and all(line.startswith("LinAlgError") for line in said[:3])


@pytest.mark.parametrize("how", [EACH, WHOLE], ids=["each", "whole"])
def test_every_result_has_the_failure(run: Run, how: str) -> None:
    """Whichever result of a factorisation is waited for: it is behind the kernel that finds what the library has written."""
    said = run(
        _PREAMBLE
        + how
        + """
import ctypes
LAPACK = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 17)
def failing(place):
    def fail(*words):
        ctypes.c_int64.from_address(words[place]).value = 3
    return LAPACK(fail)
kept = []
def have_fail(routine, place):
    kept.append(failing(place))
    driver._library.standin_lapack(routine, ctypes.cast(kept[-1], ctypes.c_void_p))
have_fail(5, 12)  # syevd
have_fail(6, 14)  # gesvd
async def main():
    for shape in ((3, 3), (4, 2), (2, 4)):
        x = aiodev.asarray(random(2, *shape))
        functions = [lambda: linalg.svdvals(x), *(lambda k=k: linalg.svd(x)[k] for k in range(3))]
        if shape == (3, 3):
            functions += [lambda: linalg.eigvalsh(x), *(lambda k=k: linalg.eigh(x)[k] for k in range(2))]
        for function in functions:
            with aiodev.Stream("cuda:0"):
                try:
                    await function().numpy()
                except aiodev.KernelError as error:
                    print(type(error.__cause__).__name__, "did not converge" in str(error))
asyncio.run(main())
"""
    )
    assert said == "LinAlgError True\n" * (3 * 4 + 3)


def test_factorisations_keep_the_order_of_streams(run: Run) -> None:
    """A call neither waits nor overtakes: behind a gate, on several streams and threads at once, with few handles."""
    said = run(
        _PREAMBLE
        + """
import threading
x = random(4, 4) + 4 * np.eye(4)

async def chain(stream):
    with stream:
        a = aiodev.asarray(x)
        for _ in range(20):
            a = linalg.inv(a)
            a = kernels.add(linalg.qr(a).Q @ linalg.qr(a).R, a) / 2
        return await a.numpy()

async def several():
    opened = asyncio.get_running_loop().create_future()
    stream = aiodev.Stream()
    stream.wait_future(opened)
    waiting = asyncio.ensure_future(chain(stream))
    found = await asyncio.gather(*(chain(aiodev.Stream()) for _ in range(4)))
    assert not waiting.done()
    opened.set_result(None)
    for a in (*found, await waiting):
        np.testing.assert_allclose(a, x, 1e-6)

asyncio.run(several())
threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(driver.count("cusolverDnCreate"), driver.count("cusolverDnXgetrf"))
""",
        STANDIN_DEPTH="64",
    )
    assert said == f"{cusolver.SOLVER_HANDLES + 1} {20 * 5 * 4}\n"


def test_a_stack_of_small_matrices_is_one_call(run: Run) -> None:
    """Whatever its length, in its turn, and on several streams at once; large matrices, and single ones, are a call each."""
    said = run(
        _PREAMBLE
        + WHOLE
        + """
FUNCTIONS = ("cublasDgetrfBatched", "cublasDgetriBatched", "cublasDgetrsBatched", "cusolverDnDpotrfBatched",
             "cusolverDnDsyevjBatched", "cusolverDnXgetrf", "cusolverDnXpotrf", "cusolverDnXsyevd")
async def main():
    async def calls(stream, n, batch):
        x = random(batch, n, n) + 2 * n * np.eye(n)
        h = x @ flipped(x)
        with stream:
            a, b = aiodev.asarray(x), aiodev.asarray(h)
            found = [linalg.inv(a), linalg.solve(a, b), linalg.cholesky(b), linalg.eigvalsh(b), linalg.det(a)]
            found = await values(*found)
        expected = np.linalg.inv(x), np.linalg.solve(x, h), np.linalg.cholesky(h), np.linalg.eigvalsh(h), np.linalg.det(x)
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one, other, 1e-6, 1e-6)
    stream = aiodev.Stream()
    await calls(stream, 4, 100)
    print(*map(driver.count, FUNCTIONS))
    await calls(stream, 4, 1)
    await calls(stream, 33, 2)
    print(*map(driver.count, FUNCTIONS))
    await asyncio.gather(*(calls(aiodev.Stream(), 4, 100) for _ in range(6)))
    print(*map(driver.count, FUNCTIONS))
    driver.inject("cublasDgetrfBatched", 13)
    try:
        await linalg.inv(aiodev.asarray(random(2, 3, 3))).numpy()
    except aiodev.DependencyError as error:
        print(error.__cause__)
asyncio.run(main())
"""
    ).splitlines()
    once, singles = "3 1 1 1 1", "9 3 3"
    assert said[:2] == [f"{once} 0 0 0", f"{once} {singles}"]
    assert said[2] == f"21 7 7 7 7 {singles}"
    assert said[3] == "call_native on cuda:0: function 1 of the calls returned 13"


def test_failures_of_the_library(run: Run) -> None:
    """A status arrives where somebody waits; one that cannot be loaded says so to who asked; none at all refuses the call."""
    said = run(
        _PREAMBLE
        + """
async def main():
    x = aiodev.asarray(np.eye(3))
    cusolver.find_library = lambda: "/nowhere/libcusolver.so.11"
    try:
        await linalg.inv(x).numpy()
    except aiodev.DependencyError as error:
        print(type(error.__cause__).__name__, "libcusolver" in str(error.__cause__))
    cusolver._devices._forget()
    cusolver.find_library = lambda: library
    driver.inject("cusolverDnCreate", 1)
    for _ in range(2):
        try:
            print((await linalg.inv(x).numpy()).tolist())
        except aiodev.DependencyError as error:
            print(str(error.__cause__).removeprefix(library))
    driver.inject("cusolverDnXgetrf", 6)
    stream = aiodev.Stream()
    with stream:
        linalg.inv(x)
        try:
            await stream.synchronize()
        except aiodev.DeviceError as error:
            print(error)
        print((await linalg.inv(x).numpy()).trace())
    cusolver.find_library = lambda: None
    for function in (linalg.inv, linalg.svdvals, linalg.cholesky, lambda x: linalg.norm(x, 2)):
        try:
            function(x)
        except NotImplementedError as error:
            print(error)
asyncio.run(main())
"""
    ).splitlines()
    assert said[0] == "OSError True"
    assert said[1:3] == [": cusolverDnCreate returned 1", "[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]"]
    assert said[3:5] == ["call_native on cuda:0: function 1 of the calls returned 6", "3.0"]
    assert len(said) == 9 and all("aiodev[cuda12]" in line and "cuda:0" in line for line in said[5:])


@pytest.mark.parametrize("how", [EACH, WHOLE], ids=["each", "whole"])
def test_factorisations_are_captured(run: Run, how: str) -> None:
    """What was called before with such a shape becomes a part of a graph, whose inputs change; what was not is refused."""
    said = run(
        _PREAMBLE
        + how
        + """
async def main():
    a, b = random(2, 3, 3), random(2, 3, 3)
    x, y = map(aiodev.asarray, (a, b))
    await aiodev.synchronize()
    try:
        async with aiodev.capture():
            linalg.inv(x)
    except aiodev.CaptureError as error:
        print("call it once before" in str(error), error.call)
    await linalg.inv(x).numpy()
    async with aiodev.capture() as graph:
        found = linalg.inv(graph.input("x", x))
    await graph.replay()
    np.testing.assert_allclose(await found.numpy(), np.linalg.inv(a), 1e-9, 1e-9)
    graph.update(x=y)
    await graph.replay()
    np.testing.assert_allclose(await found.numpy(), np.linalg.inv(b), 1e-9, 1e-9)
asyncio.run(main())
"""
    )
    assert said.split()[0] == "True"


def test_a_lost_device_ends_factorisations(run: Run) -> None:
    """Calls that wait for the device while it is lost come back, and who waits is told."""
    said = run(
        _PREAMBLE
        + """
async def main():
    x = aiodev.asarray(np.eye(3))
    await linalg.eigvalsh(x).numpy()
    driver.latency(0.2)
    values = linalg.eigvalsh(x)
    waiting = asyncio.ensure_future(values.numpy())
    while driver.count("cusolverDnXsyevd") < 2:
        await asyncio.sleep(0)
    driver.lose()
    try:
        await waiting
    except aiodev.DependencyError as error:
        print(type(error.__cause__).__name__)
asyncio.run(main())
import os; sys.stdout.flush(); os._exit(0)
"""
    )
    assert said == "DeviceLostError\n"


def test_the_library_has_what_is_called() -> None:
    """Where cuSOLVER is installed it has all functions that are called, and a handle without a GPU is refused, not a crash."""
    file = cusolver.find_library()
    if file is None:
        pytest.skip("cuSOLVER is not installed")
    library = ctypes.CDLL(file)
    sized = ["Xpotrf", "Xgetrf", "Xgeqrf", "Xgesvd", "Xsyevd", *(name for _, _, name in cusolver._TYPES.values())]
    sized += [f"{letter}{'syevj' if letter in 'SD' else 'heevj'}Batched" for letter in "SDCZ"]
    named = ["SetStream", "Create", "CreateParams", "CreateSyevjInfo", "Xgetrs"]
    named += [f"{letter}potrfBatched" for letter in "SDCZ"]
    for name in (*named, *sized, *(f"{name}_bufferSize" for name in sized)):
        assert hasattr(library, f"cusolverDn{name}"), name
    blas = cublas.find_library()
    assert blas is not None, "cuSOLVER needs it"
    for name in (f"cublas{letter}{name}Batched" for letter in "SDCZ" for name in ("getrf", "getri", "getrs")):
        assert hasattr(ctypes.CDLL(blas), name), name
