"""Arrays of bfloat16: made, copied, shared with other libraries, printed and pickled."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aiodev

B = np.dtype(ml_dtypes.bfloat16)
EVERY = np.arange(2**16, dtype=np.uint16).view(B)


def bits(x: Any) -> Any:
    """Of what NumPy compares as numbers, where NaN differs from itself."""
    host = x.numpy_blocking() if isinstance(x, aiodev.Array) else x
    assert host.dtype == B
    return host.view(np.uint16)


def test_the_dtype_is_that_of_ml_dtypes() -> None:
    """By the name in aiodev, the name in NumPy, and the scalar type."""
    assert aiodev.bfloat16 == B
    for dtype in (aiodev.bfloat16, "bfloat16", ml_dtypes.bfloat16):
        assert aiodev.empty(3, dtype, "cpu").dtype == B


def test_who_asks_for_it_is_told_what_to_install() -> None:
    """Nothing imports ml_dtypes before; without it all else works."""
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import aiodev\n"
        "assert aiodev.ones(3, 'float16', 'cpu').nbytes == 6\n"
        "for ask in (lambda: aiodev.bfloat16, lambda: aiodev.empty(3, 'bfloat16', 'cpu')):\n"
        "    try:\n"
        "        ask()\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.count("bfloat16 is a dtype of ml_dtypes, which is not installed; `pip install ml_dtypes`") == 2
    lazily = "import sys, aiodev; assert 'ml_dtypes' not in sys.modules; aiodev.bfloat16; assert 'ml_dtypes' in sys.modules"
    assert subprocess.run([sys.executable, "-c", lazily], timeout=120).returncode == 0


def test_creation() -> None:
    """Every function that makes arrays takes it."""
    ones, filled = np.ones(3, B), np.full(3, 0.1, B)
    np.testing.assert_array_equal(bits(aiodev.zeros(3, B, "cpu")), bits(np.zeros(3, B)))
    np.testing.assert_array_equal(bits(aiodev.ones(3, B, "cpu")), bits(ones))
    np.testing.assert_array_equal(bits(aiodev.full(3, 0.1, B, "cpu")), bits(filled))
    np.testing.assert_array_equal(bits(aiodev.full(3, B.type(0.1), device="cpu")), bits(filled))
    np.testing.assert_array_equal(bits(aiodev.asarray([1, 1, 1], B, "cpu")), bits(ones))
    np.testing.assert_array_equal(bits(aiodev.asarray(np.full(3, 0.1), B, "cpu")), bits(filled))
    np.testing.assert_array_equal(bits(aiodev.arange(0, 3, 0.5, B, "cpu")), bits(np.arange(0, 3, 0.5, B)))
    assert aiodev.empty_like(aiodev.ones(3, B, "cpu")).dtype == B


@pytest.mark.parametrize("size", [0, 1, 7, 65536])
def test_copies_keep_bits(size: int) -> None:
    """To a device and back, small and large, and between arrays."""
    host = EVERY[-size:] if size else EVERY[:0]
    x = aiodev.asarray(host, device="cpu")
    np.testing.assert_array_equal(bits(x), bits(host))
    other = aiodev.empty(size, B, "cpu")
    other.copy_from(x)
    np.testing.assert_array_equal(bits(other), bits(host))
    other.copy_from(host[::-1])
    np.testing.assert_array_equal(bits(other), bits(host[::-1]))


def test_views() -> None:
    """Slices, turned arrays and numbers, read with their gaps."""
    x, host = aiodev.asarray(EVERY, device="cpu").reshape(256, 256), EVERY.reshape(256, 256)
    np.testing.assert_array_equal(bits(x.T), bits(host.T.copy()))
    np.testing.assert_array_equal(bits(x[::-3, 5:9]), bits(host[::-3, 5:9].copy()))
    assert bits(x[3, 4]) == bits(host[3, 4:5])[0]
    np.testing.assert_array_equal(bits(x.T.reshape(65536)), bits(host.T.ravel()))


def test_conversion_when_an_array_is_made() -> None:
    """On the device where it is."""
    x = aiodev.asarray(np.linspace(-3, 3, 101), device="cpu")
    np.testing.assert_array_equal(bits(aiodev.asarray(x, B)), bits(np.linspace(-3, 3, 101).astype(B)))


def test_numpy_shares_the_memory() -> None:
    """By ``asarray``, which gives the dtype, not plain bytes; array interfaces, which have no name for it, are not there."""
    x = aiodev.ones(3, B, "cpu")
    seen = np.asarray(x)
    assert seen.dtype == B
    seen[1] = 7
    assert x.numpy_blocking().tolist() == [1, 7, 1]
    assert np.asarray(x, "f4").tolist() == [1, 7, 1]
    assert not hasattr(x, "__array_interface__")
    assert not hasattr(x, "__cuda_array_interface__")


def test_memory_of_numpy_is_shared() -> None:
    """Without a copy, for the asking."""
    host = np.ones(4, B)
    for shared in (aiodev.asarray(host, device="cpu", copy=False), aiodev.from_dlpack(host)):
        host[2] = 5
        assert shared.numpy_blocking()[2] == 5
        host[2] = 1


def test_dlpack_round_trip() -> None:
    """Its type code is 4, of 16 bits."""
    x = aiodev.asarray(EVERY, device="cpu")
    again = aiodev.from_dlpack(x)
    assert again.dtype == B
    np.testing.assert_array_equal(bits(again), bits(EVERY))
    np.testing.assert_array_equal(bits(aiodev.from_dlpack(_Producer(x))), bits(EVERY))


class _Producer:
    """Another library's array, as far as one can tell."""

    def __init__(self, array: aiodev.Array) -> None:
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def test_torch_shares_the_memory() -> None:
    """In both directions, by DLPack."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = aiodev.asarray(np.linspace(-1, 1, 9).astype(B), device="cpu")
    tensor = torch.from_dlpack(x)
    assert tensor.dtype == torch.bfloat16
    tensor[0] = 3
    assert x.numpy_blocking()[0] == 3
    back = aiodev.from_dlpack(torch.arange(4, dtype=torch.bfloat16))
    assert back.dtype == B and back.numpy_blocking().tolist() == [0, 1, 2, 3]
    taken = aiodev.asarray(torch.ones(3, dtype=torch.bfloat16), device="cpu")
    assert taken.dtype == B and taken.numpy_blocking().tolist() == [1, 1, 1]


def test_pickles_and_copies() -> None:
    """They hold what the array does."""
    x = aiodev.asarray(EVERY, device="cpu")
    np.testing.assert_array_equal(bits(pickle.loads(pickle.dumps(x))), bits(EVERY))
    assert repr(x).startswith("<aiodev.Array (65536,) bfloat16 on cpu:0")


@pytest.mark.anyio
async def test_awaited_reads_keep_bits() -> None:
    """As blocking ones do."""
    x = aiodev.asarray(EVERY, device="cpu")
    np.testing.assert_array_equal(bits(await x.numpy()), bits(EVERY))
    np.testing.assert_array_equal(bits(await x[::2].numpy()), bits(EVERY[::2].copy()))


def test_pinned_memory() -> None:
    """Page-locked arrays have it, too."""
    pinned = aiodev.memory.pin(EVERY)
    assert pinned.dtype == B
    np.testing.assert_array_equal(bits(np.asarray(pinned)), bits(EVERY))


def test_host_arrays_are_watched_in_debug_mode() -> None:
    """Their bytes are summed, whatever the dtype."""
    code = (
        "import aiodev, numpy as np\n"
        "x = aiodev.empty(9, aiodev.bfloat16, 'cpu')\n"
        "x.copy_from(np.ones(9, aiodev.bfloat16)).synchronize_blocking()\n"
        "print(x.numpy_blocking().sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "AIODEV_DEBUG": "1"}
    )
    assert done.stdout == "9\n", done.stderr
