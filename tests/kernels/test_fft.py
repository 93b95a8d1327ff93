"""Fourier transforms against NumPy's: kinds, dtypes, axes, lengths, factors, views, what is refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from comparing import numbers, on_device
from hypothesis import given, settings, strategies as st
from selection import examples, some

import aiodev
from aiodev.kernels import fft
from aiodev.kernels.fft import loops
from aiodev.testing import Latch, SimulatedBackend

REAL, COMPLEX = ["rfft", "ihfft"], ["fft", "ifft", "irfft", "hfft"]
SEVERAL = ["fftn", "ifftn", "rfftn", "irfftn"]
NORMS = ["backward", "ortho", "forward"]


@pytest.fixture
def by_kernels() -> None:
    """Skips what is about kernels that call NumPy's FFT, where the device that is tested as the CPU has another library."""
    if not aiodev.capabilities(on_device(np.zeros(1)).device).host_code:
        pytest.skip("another library transforms on this device")


def close(found: aiodev.Array, expected: Any) -> None:
    """The same shape and dtype, and values to a hundred roundings of the largest."""
    values = found.numpy_blocking(60)
    assert (values.shape, values.dtype) == (expected.shape, expected.dtype)
    least = 100 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(values, expected, least, least * np.abs(expected).max(initial=1))


def is_taken(name: str, dtype: str) -> bool:
    return not (dtype[0] == "c" and name in (*REAL, "rfftn"))


@pytest.mark.parametrize("name", REAL + COMPLEX)
@given(
    st.sampled_from(["f4", "f8", "c8", "c16", "i4"]),
    st.lists(st.integers(1, 17), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 20), st.just(101)),
    st.integers(-4, 3),
    st.sampled_from(NORMS),
)
@settings(deadline=None, max_examples=examples(150))
def test_one_axis(name: str, dtype: str, shape: list[int], n: int | None, axis: int, norm: str) -> None:
    """Any axis, cut or padded, of even, odd and prime lengths, in the precision that it is of."""
    axis = axis % len(shape) - len(shape) if axis < 0 else axis % len(shape)
    if n is None and name in ("irfft", "hfft") and shape[axis] == 1:
        n = 1
    if not is_taken(name, dtype):
        dtype = "f4"
    host = numbers(tuple(shape), dtype)
    found = getattr(fft, name)(on_device(host), n=n, axis=axis, norm=norm)
    close(found, getattr(np.fft, name)(host, n=n, axis=axis, norm=norm))


@pytest.mark.parametrize("name", SEVERAL)
@given(
    st.sampled_from(["f4", "f8", "c8", "c16"]),
    st.lists(st.integers(2, 9), min_size=1, max_size=4),
    st.integers(1, 4),
    st.one_of(st.none(), st.lists(st.integers(1, 12), min_size=4, max_size=4)),
    st.randoms(use_true_random=False),
    st.sampled_from(NORMS),
)
@settings(deadline=None, max_examples=examples(150))
def test_several_axes(
    name: str, dtype: str, shape: list[int], count: int, lengths: list[int] | None, chance: Any, norm: str
) -> None:
    """In any order, from the front or the back, each cut or padded."""
    if not is_taken(name, dtype):
        dtype = "f8"
    axes = chance.sample(range(len(shape)), min(count, len(shape)))
    axes = [axis - len(shape) if chance.random() < 0.5 else axis for axis in axes]
    s = None if lengths is None else lengths[: len(axes)]
    host = numbers(tuple(shape), dtype)
    found = getattr(fft, name)(on_device(host), s=s, axes=axes, norm=norm)
    close(found, getattr(np.fft, name)(host, s=s, axes=axes, norm=norm))
    if s is None and sorted(axis % len(shape) for axis in axes) == list(range(len(shape))) and name in ("fftn", "ifftn"):
        close(getattr(fft, name)(on_device(host), norm=norm), getattr(np.fft, name)(host, norm=norm))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "part": lambda x: x[1:5, 2:, ::3],
    "flipped": lambda x: x[::-1, ::-2],
    "row": lambda x: x[2, ::-1, 3],
    "of four": lambda x: x[None, ::2, :, 1:],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", some(["c16", "f4"]))
def test_views(dtype: str, view: str) -> None:
    """Elements are read where they lie, and a result with gaps is written."""
    whole = numbers((6, 8, 10), dtype)
    host, x = VIEWS[view](whole), VIEWS[view](on_device(whole))
    for axis in (0, -1):
        expected = np.fft.fft(host, axis=axis)
        close(fft.fft(x, axis=axis), expected)
        frame = aiodev.zeros((*host.shape[:-1], 2 * host.shape[-1]), expected.dtype, "cpu")
        assert fft.fft(x, axis=axis, out=frame[..., ::2]).shape == host.shape
        close(frame[..., ::2], expected)
        assert not frame[..., 1::2].numpy_blocking().any()
    close(fft.fftn(x), np.fft.fftn(host))


@pytest.mark.parametrize("shape", [(1 << 16,), (65537,), (1000, 300), (300, 1000), (20, 30, 40)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_what_workers_share(shape: tuple[int, ...], axis: int) -> None:
    """Many rows, long rows, and a prime length, which pocketfft has another algorithm for."""
    host = numbers(shape, "c8")
    close(fft.fft(on_device(host), axis=axis), np.fft.fft(host, axis=axis))
    close(fft.irfft(fft.rfft(on_device(host.real), axis=axis), n=shape[axis], axis=axis), host.real)


def test_nothing() -> None:
    """No rows give no rows; rows without elements are padded with zeros; no axes leave what is there."""
    assert fft.fft(aiodev.ones((0, 4), device="cpu")).shape == (0, 4)
    for function in (fft.fft, fft.rfft, fft.irfft):
        assert not function(aiodev.ones((3, 0), device="cpu"), n=4).numpy_blocking().any()
    host = numbers((2, 3), "f4")
    close(fft.fftn(on_device(host), axes=()), host.astype("c8"))


@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
def test_halves_are_transformed_in_single_precision(dtype: str) -> None:
    """They are converted on the device."""
    host = np.arange(6, dtype="f4")
    found = fft.fft(aiodev.asarray(host, dtype=dtype, device="cpu"))
    close(found, np.fft.fft(host))


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies(n: int) -> None:
    """NumPy's, in the precision that is asked for."""
    close(fft.fftfreq(n, d=0.3, device="cpu"), np.fft.fftfreq(n, 0.3))
    close(fft.rfftfreq(n, d=0.3, device="cpu"), np.fft.rfftfreq(n, 0.3))
    close(fft.fftfreq(n, dtype="f4", device="cpu"), np.fft.fftfreq(n).astype("f4"))


@pytest.mark.parametrize("axes", [None, 0, (1, -1), ()])
def test_shifts(axes: Any) -> None:
    """There and back, of even and odd lengths."""
    host = np.arange(60).reshape(3, 4, 5)
    moved = fft.fftshift(on_device(host), axes=axes)
    assert np.array_equal(moved.numpy_blocking(), np.fft.fftshift(host, axes=axes))
    assert np.array_equal(fft.ifftshift(moved, axes=axes).numpy_blocking(), host)


def test_refusals() -> None:
    """What is wrong is named, with the function."""
    x, z = aiodev.ones((2, 3), device="cpu"), aiodev.ones((2, 3), "c16", "cpu")
    for wrong, error, text in (
        (lambda: fft.fft(x, n=0), ValueError, "fft: n: expected 1 or more, got 0"),
        (lambda: fft.fft(x, n=2.0), TypeError, "fft: n: expected an integer"),
        (lambda: fft.fft(x, axis=2), IndexError, "fft: axis 2"),
        (lambda: fft.fft(x, norm="none"), ValueError, "fft: norm 'none'"),
        (lambda: fft.irfft(x[:, :1]), ValueError, "irfft: n: expected 1 or more, got 0"),
        (lambda: fft.rfft(z), TypeError, "rfft: argument x: expected real numbers, got complex128"),
        (lambda: fft.rfftn(z), TypeError, "rfftn: argument x: expected real numbers"),
        (lambda: fft.fftn(x, axes=(0, -2)), ValueError, "fftn: axes .* twice"),
        (lambda: fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "fftn: s: expected as many lengths as axes"),
        (lambda: fft.fftn(x, s=(0,), axes=(0,)), ValueError, "fftn: s: expected lengths of 1 or more"),
        (lambda: fft.fftn(x, s=(1, 1, 1)), IndexError, "fftn: axis -3"),
        (lambda: fft.rfftn(x, axes=()), ValueError, "rfftn: axes: expected 1 or more"),
        (lambda: fft.fft(np.ones(3)), TypeError, "fft: argument x: expected an array"),
        (lambda: fft.fft(x, out=x), TypeError, "fft: out: complex128 cannot be written to float64"),
        (lambda: fft.fftfreq(0), ValueError, "fftfreq: n: expected 1 or more"),
        (lambda: fft.rfftfreq(4, d=0), ValueError, "rfftfreq: d: expected another number than 0"),
        (lambda: fft.fftfreq(4, dtype="i8"), TypeError, "fftfreq: dtype"),
        (lambda: fft.fftshift(x, axes=(0, 0)), ValueError, "fftshift: axes .* twice"),
    ):
        with pytest.raises(error, match=text):
            wrong()


async def test_transforms_are_in_stream_order() -> None:
    """Submitted while another stream holds what they read; the result is of what was written; a waiter may be cancelled."""
    host = numbers((4, 6), "f8")
    x = on_device(np.zeros_like(host))
    await aiodev.synchronize("cpu")
    one, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with Latch(one):
        one.copy(x, host)
        other.wait_stream(one)
        with other:
            found = fft.irfftn(fft.rfftn(x))
            assert not other.query()
        waiter = asyncio.ensure_future(found.numpy())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    np.testing.assert_allclose(await found.numpy(), host)


@pytest.mark.usefixtures("by_kernels")
def test_a_call_is_remembered() -> None:
    """Transforms along several axes, too, whose passes share scratch memory."""
    fft.rfftn.operation.forget()
    x = on_device(numbers((8, 6), "f4"))
    for _ in range(4):
        fft.rfftn(x)
        aiodev.synchronize_blocking("cpu", 60)
    assert len(fft.rfftn.operation.known) == 1


def test_devices_without_transforms() -> None:
    """Refused at the call, by the name of what is missing; frequencies and shifts are kernels of any device."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    x = aiodev.ones(4, device="sim")
    with pytest.raises(NotImplementedError, match=r"fft: nothing transforms on sim:0; x.to\('cpu'\) transforms there"):
        fft.fft(x)
    assert fft.fftshift(fft.fftfreq(4, device="sim")).numpy_blocking().tolist() == [-0.5, -0.25, 0.0, 0.25]


@pytest.mark.usefixtures("by_kernels")
def test_another_numpys_loops_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are taken from a structure that is as the header has it, or not at all."""
    assert loops._addresses().all() or loops._addresses()[:8].all()
    ufunc = SimpleNamespace(nin=2, nout=1, nargs=3, ntypes=3, types=["Dd->D"])
    with pytest.raises(ValueError, match="no structure"):
        loops._loop(ufunc, "Dd->D")  # type: ignore[arg-type]
    loops._addresses.cache_clear()
    monkeypatch.setattr(loops, "_LOOPS", (("no_such", ("Dd->D",)),))
    with pytest.raises(NotImplementedError, match="no loops of pocketfft"):
        loops._addresses()


_WITHOUT_LOOPS = """
import asyncio, sys
import numpy as np, numpy.fft, aiodev
sys.modules["numpy.fft._pocketfft_umath"] = None  # no such module
from aiodev.kernels import fft
from aiodev.testing import Latch

def close(found, expected):
    found = found.numpy_blocking(60)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * np.abs(expected).max(initial=1))

async def main(path):
    chance = np.random.default_rng(0)
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        for dtype in ("f4", "f8") if name in ("rfft", "ihfft") else ("c8", "c16"):
            for n in (None, 5, 8, 12):
                host = (chance.standard_normal((3, 8, 4)) + (1j if dtype[0] == "c" else 0)).astype(dtype)
                x, norm = aiodev.asarray(host, device="cpu"), ("backward", "ortho", "forward")[chance.integers(3)]
                for layout in (np.s_[:], np.s_[:, ::-1]):
                    expected = getattr(np.fft, name)(host[layout], n=n, axis=1, norm=norm)
                    close(getattr(fft, name)(x[layout], n=n, axis=1, norm=norm), expected)
                    close(getattr(fft, name)(2 * x[layout], n=n, axis=1, norm=norm), 2 * expected)
    x = aiodev.asarray(host, device="cpu")
    close(fft.fftn(x), np.fft.fftn(host))
    close(fft.irfftn(x, axes=(0, 1)), np.fft.irfftn(host, axes=(0, 1)))
    async with aiodev.Stream("cpu") as stream:
        y = aiodev.zeros_like(x)
        held = Latch(stream)
        y.copy_from(x)
        found = fft.fft(y)  # in stream order: behind the copy
        del y
        held.release()
        close(found, np.fft.fft(host))
        async with aiodev.capture() as graph:
            try:
                fft.fft(x)
            except aiodev.CaptureError as error:
                print(error)
            double = graph.input("x", x) * 2
    await graph.save(path)

asyncio.run(main(sys.argv[1]))
"""


def test_a_numpy_without_loops_transforms_by_called_functions(tmp_path: Path) -> None:
    """In stream order, all kinds and dtypes; what cannot be captured is refused, and graphs are saved."""
    command = [sys.executable, "-c", _WITHOUT_LOOPS, str(tmp_path / "graph")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "no loops of pocketfft that kernels can call" in done.stdout and (tmp_path / "graph").exists()


_WITHOUT_MEMORY = """
import asyncio, resource, aiodev
from aiodev.kernels import fft

async def main():
    async with aiodev.Stream("cpu") as stream:
        x = aiodev.ones((1 << 22) + 7919, "c16")
        out = aiodev.empty_like(x)
        small = aiodev.ones(8, "c16")
        await fft.fft(small).numpy()
        await stream.synchronize()
        pages = int(open("/proc/self/statm").read().split()[0])
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), limits[1]))
        fft.fft(x, out=out)
        try:
            await stream.synchronize()
        except aiodev.KernelError as error:
            resource.setrlimit(resource.RLIMIT_AS, limits)
            print(type(error.__cause__).__name__, (await fft.fft(small).numpy())[0].real)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's address space")
def test_a_transform_without_memory_fails() -> None:
    """pocketfft would leave the result as it was, and say nothing that anybody hears."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT_MEMORY], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["MemoryError", "8.0"], done.stderr
