"""Factorisations and what is made of them against NumPy's: dtypes, stacks, sizes of zero, views, failures, order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparing import numbers, on_device
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import KernelError
from aiodev.kernels import linalg
from aiodev.kernels.linalg import factorizations, openblas
from aiodev.testing import Latch, SimulatedBackend

HostArray = np.ndarray[Any, Any]
DTYPES = ["f4", "f8", "c8", "c16"]
SQUARE = [(1, 1), (3, 3), (2, 5, 5), (2, 3, 4, 4), (70, 70), (300, 2, 2), (0, 0), (2, 0, 0), (0, 3, 3)]
OBLONG = [(3, 3), (5, 3), (3, 5), (2, 7, 4), (2, 4, 7), (40, 90), (90, 40), (200, 10), (10, 200), (3, 0), (2, 0, 3), (0, 3, 4)]


@pytest.fixture
def by_kernels() -> None:
    """Skips what is about kernels that call LAPACK, where the device that is tested as the CPU has another library."""
    if not aiodev.capabilities(on_device(np.zeros(1)).device).host_code:
        pytest.skip("another library factorises on this device")


def close(found: aiodev.Array, expected: Any, factor: float = 1e3) -> None:
    """The same shape and dtype, and values to a thousand roundings of the largest."""
    values, expected = found.numpy_blocking(60), np.asarray(expected)
    assert (values.shape, values.dtype) == (expected.shape, expected.dtype)
    least = factor * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(values, expected, least, least * max(1, np.abs(expected).max(initial=0)))


def adjoint(x: HostArray) -> HostArray:
    return np.conj(np.swapaxes(x, -1, -2))


def positive(shape: tuple[int, ...], dtype: str) -> HostArray:
    """Hermitian positive definite matrices."""
    x = numbers(shape, dtype)
    made: HostArray = (x @ adjoint(x) + shape[-1] * np.eye(shape[-1])).astype(dtype)
    return made


def spoilt(x: HostArray, upper: bool) -> HostArray:
    """With something else in the triangle that must not be read."""
    other = np.full_like(x, 77)
    return np.triu(x) + np.tril(other, -1) if upper else np.tril(x) + np.triu(other, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE, ids=str)
def test_square_matrices(shape: tuple[int, ...], dtype: str) -> None:
    """Of any stack: factors, inverses, determinants, eigenvalues and solutions are NumPy's; one triangle is read."""
    x, spd = numbers(shape, dtype), positive(shape, dtype)
    for upper in (False, True):
        half = on_device(spoilt(spd, upper))
        close(linalg.cholesky(half, upper=upper), np.linalg.cholesky(spd, upper=upper))
    half = on_device(spoilt(spd, False))
    close(linalg.eigvalsh(half), np.linalg.eigvalsh(spd))
    values, vectors = linalg.eigh(half)
    close(values, np.linalg.eigvalsh(spd))
    found = vectors.numpy_blocking()
    rebuilt = aiodev.asarray(found * values.numpy_blocking()[..., None, :] @ adjoint(found), device="cpu")
    close(rebuilt, spd)
    close(linalg.inv(on_device(spd)), np.linalg.inv(spd))
    right = numbers((*shape[:-1], 3), dtype, 1)
    close(linalg.solve(on_device(spd), on_device(right)), np.linalg.solve(spd, right))
    if shape != (70, 70):
        close(linalg.det(on_device(x)), np.linalg.det(x), 1e4)
    for one, other in zip(linalg.slogdet(on_device(x)), np.linalg.slogdet(x), strict=True):
        close(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", OBLONG, ids=str)
def test_oblong_matrices(shape: tuple[int, ...], dtype: str) -> None:
    """QR has NumPy's signs; singular vectors are orthonormal and rebuild the matrix, also where there are none."""
    host = numbers(shape, dtype)
    x, least = on_device(host), min(shape[-2:])
    for mode in ("reduced", "complete"):
        for one, other in zip(linalg.qr(x, mode=mode), np.linalg.qr(host, mode=mode), strict=True):
            close(one, other)
    expected = np.linalg.svd(host, compute_uv=False) if least else np.zeros((*shape[:-2], 0), host.real.dtype)
    close(linalg.svdvals(x), expected)
    for full in (True, False):
        u, s, vh = linalg.svd(x, full_matrices=full)
        close(s, expected)
        left, right = u.numpy_blocking(), vh.numpy_blocking()
        assert left.shape == (*shape[:-1], shape[-2] if full else least)
        assert right.shape == (*shape[:-2], shape[-1] if full else least, shape[-1])
        for made in (adjoint(left) @ left, right @ adjoint(right)):
            close(on_device(made), np.broadcast_to(np.eye(made.shape[-1], dtype=dtype), made.shape))
        close(on_device(left[..., :least] * expected[..., None, :] @ right[..., :least, :]), host)
    close(linalg.pinv(x), np.linalg.pinv(host))
    if least:
        assert np.array_equal(linalg.matrix_rank(x).numpy_blocking(), np.linalg.matrix_rank(host))


@given(
    st.sampled_from(["f8", "c8"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(["as it is", "transposed", "every other", "flipped", "repeated"]),
)
@settings(deadline=None, max_examples=examples(40))
def test_views(dtype: str, batch: list[int], rows: int, columns: int, way: str) -> None:
    """What is not contiguous is read as what it shows."""
    views: dict[str, Callable[[Any], Any]] = {
        "as it is": lambda x: x,
        "transposed": lambda x: x.T,
        "every other": lambda x: x[..., ::2, ::2],
        "flipped": lambda x: x[..., ::-1, ::-1],
        "repeated": lambda x: (aiodev if isinstance(x, aiodev.Array) else np).broadcast_to(x, (2, *x.shape)),
    }
    whole = numbers((*batch, rows, columns), dtype)
    host, x = views[way](whole), views[way](on_device(whole))
    close(linalg.svdvals(x), np.linalg.svd(host, compute_uv=False))
    close(linalg.qr(x).R, np.linalg.qr(host).R)
    close(linalg.diagonal(x, offset=1), np.linalg.diagonal(host, offset=1))
    close(linalg.trace(x, offset=-1), np.linalg.trace(host, offset=-1))


@pytest.mark.parametrize("dtype", ["i4", "u1", "?"])
def test_integers_become_doubles(dtype: str) -> None:
    """As NumPy has it."""
    host = np.array([[2, 1], [1, 3]]).astype(dtype) if dtype != "?" else np.eye(2, dtype=bool)
    close(linalg.inv(on_device(host)), np.linalg.inv(host.astype("f8")))
    close(linalg.svdvals(on_device(host)), np.linalg.svd(host.astype("f8"), compute_uv=False))


def test_solutions_of_vectors_stacks_and_mixed_types() -> None:
    """A right side of one dimension is a vector; others are stacks, which broadcast; types are promoted."""
    a, stack = positive((4, 4), "f4"), positive((3, 1, 4, 4), "f8")
    vector, columns = numbers((4,), "f4"), numbers((2, 4, 5), "c8")
    close(linalg.solve(on_device(a), on_device(vector)), np.linalg.solve(a, vector))
    close(linalg.solve(on_device(stack), on_device(vector)), np.linalg.solve(stack, vector))
    close(linalg.solve(on_device(stack), on_device(columns)), np.linalg.solve(stack, columns))


def test_determinants_beyond_the_type_on_the_way() -> None:
    """Products that overflow or vanish before they are whole; a singular matrix has 0, and a logarithm of -inf."""
    for diagonal in ([1e200, 1e200, 1e-300], [1e-200, -1e-200, 1e300], [-1e200, 1e200, 1e200]):
        x = on_device(np.diag(diagonal))
        with np.errstate(over="ignore"):
            expected = np.linalg.det(np.diag(diagonal))
        np.testing.assert_allclose(linalg.det(x).numpy_blocking(), expected, 1e-10)
    singular = on_device(np.ones((2, 3, 3)))
    assert (linalg.det(singular).numpy_blocking() == 0).all()
    sign, size = linalg.slogdet(singular)
    assert (sign.numpy_blocking() == 0).all() and (size.numpy_blocking() == -np.inf).all()


def test_powers() -> None:
    """Negative ones of the inverse, none the identity, one a copy."""
    host = positive((2, 3, 3), "f8") / 4
    x = on_device(host)
    for n in range(-3, 9):
        close(linalg.matrix_power(x, n), np.linalg.matrix_power(host, n), 1e5)
    assert linalg.matrix_power(x, 1) is not x
    whole = on_device(np.array([[1, 1], [1, 0]]))
    assert linalg.matrix_power(whole, 30).numpy_blocking()[0, 1] == 832040
    assert linalg.matrix_power(whole, 0).dtype == np.int64


def test_tolerances_of_ranks_and_inverses() -> None:
    """A number, or one for each matrix; what is not above it counts as 0."""
    host = np.stack([np.diag([1.0, 0.1, 0.01])] * 2)
    x = on_device(host)
    assert linalg.matrix_rank(x, rtol=0.05).numpy_blocking().tolist() == [2, 2]
    assert linalg.matrix_rank(x, rtol=on_device(np.array([0.5, 0.001]))).numpy_blocking().tolist() == [1, 3]
    found = linalg.pinv(x, rtol=on_device(np.float32([0.5, 0.001]))).numpy_blocking()
    np.testing.assert_allclose(found, [np.diag([1.0, 0, 0]), np.diag([1.0, 10, 100])], 1e-12)
    with pytest.raises(ValueError, match="rtol: the shape"):
        linalg.pinv(x, rtol=on_device(np.ones((3, 1))))
    with pytest.raises(TypeError, match="matrix_rank: rtol"):
        linalg.matrix_rank(x, rtol="much")


@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_norms_of_singular_values(dtype: str) -> None:
    """The largest, the least and their sum; of any two axes, which may stay."""
    host = numbers((2, 3, 4), dtype)
    for order in (2, -2, "nuc"):
        close(linalg.matrix_norm(on_device(host), ord=order), np.linalg.matrix_norm(host, ord=order))
        close(linalg.norm(on_device(host), order, (2, 0), True), np.linalg.norm(host, order, (2, 0), True))
        close(linalg.norm(on_device(host), order, (0, 2)), np.linalg.norm(host, order, (0, 2)))
    assert linalg.matrix_norm(on_device(np.ones((2, 0, 3))), ord=2).numpy_blocking().tolist() == [0, 0]


def test_products_of_vectors() -> None:
    """Cross products broadcast, along any axis; outer ones are of any two lengths."""
    a, b = numbers((5, 3), "f8"), numbers((2, 1, 3), "f4")
    close(linalg.cross(on_device(a), on_device(b)), np.linalg.cross(a, b))
    close(linalg.cross(on_device(a.T), on_device(a.T[:, ::-1]), axis=0), np.linalg.cross(a.T, a.T[:, ::-1], axis=0))
    close(linalg.cross(on_device(b[..., None]), on_device(b[..., None]), axis=-2), np.zeros((2, 1, 3, 1), "f4"))
    close(linalg.outer(on_device(a[0]), on_device(a[:, 0])), np.outer(a[0], a[:, 0]))
    whole = np.arange(24).reshape(2, 3, 4)
    for offset in (-4, -1, 0, 2, 9):
        found = linalg.diagonal(on_device(whole), offset=offset)
        assert np.array_equal(found.numpy_blocking(), np.diagonal(whole, min(offset, 4), 1, 2))
        total = linalg.trace(on_device(whole), offset=offset)
        assert np.array_equal(total.numpy_blocking(), np.trace(whole, min(offset, 4), 1, 2))
    assert linalg.trace(on_device(whole), dtype="f4").dtype == np.float32


MATRIX = ["cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_rank", "pinv", "qr", "slogdet", "svd", "svdvals"]
OF_SQUARES = ["cholesky", "det", "eigh", "eigvalsh", "inv", "slogdet"]


@pytest.mark.parametrize("name", MATRIX)
def test_refusals(name: str) -> None:
    """Vectors, types that LAPACK has not, host arrays, and oblong matrices where they mean nothing, are named."""
    function = getattr(linalg, name)
    with pytest.raises(ValueError, match=rf"^{name}: argument x: expected at least 2 dimensions, got the shape \(3,\)"):
        function(aiodev.ones(3, device="cpu"))
    with pytest.raises(TypeError, match=f"^{name}: argument x: expected float32, .* got float16"):
        function(aiodev.ones((3, 3), "float16", "cpu"))
    with pytest.raises(TypeError, match=f"^{name}: argument x: expected an array"):
        function(np.ones((3, 3)))
    if name in OF_SQUARES:
        with pytest.raises(ValueError, match=rf"^{name}: argument x: expected square matrices, got the shape \(2, 3\)"):
            function(aiodev.ones((2, 3), device="cpu"))


def test_refusals_of_other_arguments() -> None:
    """Sizes that do not fit, modes and powers that there are not."""
    x = aiodev.ones((3, 3), device="cpu")
    for wrong, error, text in (
        (lambda: linalg.solve(x, aiodev.ones(4, device="cpu")), ValueError, "solve: argument x2: expected 3 rows"),
        (lambda: linalg.solve(x[:2], x), ValueError, "solve: argument x1: expected square"),
        (lambda: linalg.qr(x, mode="r"), ValueError, "qr: mode 'r'"),
        (lambda: linalg.svd(x, full_matrices="no"), TypeError, "svd: full_matrices"),
        (lambda: linalg.matrix_power(x, 0.5), TypeError, "matrix_power: n"),
        (lambda: linalg.matrix_power(x[:2], 2), ValueError, "matrix_power: argument x"),
        (lambda: linalg.cross(x[:, :2], x[:, :2]), ValueError, "cross: argument x1: expected 3 elements"),
        (lambda: linalg.outer(x, x), ValueError, "outer: argument x1"),
        (lambda: linalg.trace(x[0]), ValueError, "trace: argument x"),
        (lambda: linalg.matrix_norm(x, ord="nu"), ValueError, "norm: no matrix norm"),
    ):
        with pytest.raises(error, match=text):
            wrong()


# Failure and order


SINGULAR = {
    "cholesky": (linalg.cholesky, "not positive definite"),
    "inv": (linalg.inv, "singular"),
    "solve": (lambda x: linalg.solve(x, x), "argument x1: a matrix is singular"),
}


@pytest.mark.parametrize("name", SINGULAR)
async def test_matrices_without_a_result(name: str) -> None:
    """Who waits is told by LinAlgError, also of one matrix of a stack; other streams, and what comes later, go on."""
    function, text = SINGULAR[name]
    host = np.tile(np.eye(3), (50, 1, 1))
    host[37, 2, 2] = 0
    x = on_device(host)
    await aiodev.synchronize("cpu")  # a device that the host does not reach writes it on the default stream
    with aiodev.Stream("cpu"):
        beside = function(x[:37])
    with aiodev.Stream("cpu") as stream:
        failed = function(x)
        later = failed * 2
        with pytest.raises(KernelError, match=text) as caught:
            await stream.synchronize()
        assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)
        assert "test_factorizations.py" in str(caught.value)
        for lost in (failed, later):
            with pytest.raises((KernelError, aiodev.DependencyError)):
                await lost.numpy()
        again = await function(x[:37]).numpy()
    assert np.array_equal(again, await beside.numpy())


async def test_values_that_do_not_converge() -> None:
    """NaN has no singular values; NumPy refuses it as well."""
    with aiodev.Stream("cpu"):
        with pytest.raises(KernelError, match="svd: .*did not converge") as caught:
            await linalg.svd(on_device(np.full((3, 3), np.nan))).S.numpy()
        assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "matrix_power": lambda x: linalg.matrix_power(x * 0, -2),
    "pinv": linalg.pinv,
    "matrix_rank": linalg.matrix_rank,
    "matrix_norm": lambda x: linalg.matrix_norm(x, ord="nuc"),
}


@pytest.mark.parametrize("name", COMPOSED)
async def test_failures_of_functions_that_are_made_of_factorisations(name: str) -> None:
    """Who waits is told what did not run, by an error whose cause is that of the factorisation."""
    host = np.ones((2, 2)) if name == "matrix_power" else np.full((2, 2), np.nan)
    async with aiodev.Stream("cpu"):
        with pytest.raises(KernelError) as caught:
            await COMPOSED[name](on_device(host)).numpy()
    inner = caught.value.__cause__
    assert isinstance(caught.value, aiodev.DependencyError) and type(inner) is KernelError
    assert isinstance(inner.__cause__, np.linalg.LinAlgError)


async def test_factorisations_are_ordered_with_other_streams() -> None:
    """One stream writes the matrix when it is released; another, which waits for it, factorises what was written."""
    host = positive((2, 4, 4), "f8")
    x = on_device(np.zeros_like(host))
    await aiodev.synchronize("cpu")
    one, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with Latch(one):
        one.copy(x, host)
        other.wait_stream(one)
        with other:
            found = linalg.cholesky(x)
            assert not other.query()
    np.testing.assert_allclose(await found.numpy(), np.linalg.cholesky(host))


async def test_submission_does_not_wait() -> None:
    """Results of known shapes are there while the stream is held, and the waiter may be cancelled."""
    x = on_device(positive((3, 3), "f8"))
    await aiodev.synchronize("cpu")
    with aiodev.Stream("cpu") as stream, Latch(stream):
        q, r = linalg.qr(x)
        u, s, vh = linalg.svd(x)
        assert (q.shape, r.shape, u.shape, s.shape, vh.shape) == ((3, 3), (3, 3), (3, 3), (3,), (3, 3))
        waiter = asyncio.ensure_future(s.numpy())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    close(s, np.linalg.svd(await x.numpy(), compute_uv=False))


def test_withdrawn_factorisations_do_not_run() -> None:
    """What has not begun when a stream is cancelled never fails."""
    with aiodev.Stream("cpu") as stream, Latch(stream):
        lost = linalg.inv(on_device(np.zeros((3, 3))))
        assert stream.cancel()
    with pytest.raises((aiodev.WithdrawnError, aiodev.DependencyError)):
        lost.numpy_blocking(60)
    close(linalg.inv(on_device(np.eye(3))), np.eye(3))


def test_no_call_takes_the_gil() -> None:
    """Factorisations are done while a thread that holds the GIL waits for them."""
    with aiodev.Stream("cpu") as stream:
        x = on_device(positive((40, 8, 8), "f8"))  # in the stream's order: a device may have much to do for another one
        for _ in range(3):
            linalg.eigh(x)
        stream.synchronize_blocking(60)
        before = sys.getswitchinterval()
        sys.setswitchinterval(60)  # nobody takes the GIL from this thread
        try:
            values = linalg.eigh(x).eigenvalues
            for _ in range(10_000_000):
                if stream.query():
                    break
            assert stream.query()
        finally:
            sys.setswitchinterval(before)
    close(values, np.linalg.eigvalsh(x.numpy_blocking(60)))


@pytest.mark.usefixtures("by_kernels")
def test_repeated_calls_are_remembered() -> None:
    """The second call of a kind leaves what it launched to those that follow, also of functions with several results."""
    x = on_device(positive((5, 5), "f8"))
    for function in (factorizations._eigh, factorizations._svd, linalg.inv, linalg.det, linalg.svdvals):
        operation = function.operation
        operation.forget()
        for _ in range(4):
            function(x)
            aiodev.synchronize_blocking("cpu", 60)
        assert len(operation.known) == 1


def test_without_openblas_numpys_own_lapack_is_called() -> None:
    """Where no OpenBLAS can be copied, the functions are those that NumPy's linear algebra is linked to."""
    table = openblas._table(None)
    assert table[openblas.GEMM] == 0
    if openblas._linked() is None or not table[openblas.WIDTH]:
        pytest.skip("NumPy is linked to no LAPACK")
    assert all(table[place + code] for place in openblas.LAPACK.values() for code in range(4))


@pytest.mark.usefixtures("by_kernels")
def test_without_any_lapack_the_waiter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of zeros is refused by the kernel, not called."""
    monkeypatch.setattr(openblas, "_tables", {})
    monkeypatch.setattr(openblas, "_loaded", [np.zeros(openblas.WORDS, np.uint64)])
    linalg.det.operation.forget()
    with aiodev.Stream("cpu"), pytest.raises(KernelError, match="LAPACK") as caught:
        linalg.det(on_device(np.eye(3))).numpy_blocking(60)
    assert isinstance(caught.value.__cause__, NotImplementedError)


@pytest.mark.parametrize("name", ["cholesky", "svd", "det", "matrix_norm"])
def test_devices_without_a_lapack(name: str) -> None:
    """Refused at the call, by the name of what is missing."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    x = aiodev.ones((3, 3), device="sim")
    with pytest.raises(NotImplementedError, match=r"nothing factorises on sim:0; x.to\('cpu'\) factorises there"):
        getattr(linalg, name)(x, **({"ord": 2} if name == "matrix_norm" else {}))


_FRESH = """
import asyncio, numpy as np, aiodev
from aiodev.kernels import linalg
async def main():
    async with aiodev.Stream("cpu"):
        x = aiodev.asarray(np.eye(3) * 2)
        found = [linalg.det(x) for _ in range(3)]  # submitted before there was a library
        print([float(await one.numpy()) for one in found])
asyncio.run(main())
"""


def test_the_first_call_of_a_process() -> None:
    """The stream waits for the library, the caller does not."""
    done = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[8.0, 8.0, 8.0]", done.stderr
