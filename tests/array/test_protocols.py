"""NumPy's and DLPack's protocols: shared memory, and blocking for exactly the array's own work."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev.testing.latch import Latch

NEW_DLPACK = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


def pointer(array: np.ndarray[Any, Any]) -> int:
    """Where its elements are."""
    found: int = array.__array_interface__["data"][0]
    return found


@pytest.mark.parametrize("view", [np.asarray, np.from_dlpack], ids=["interface", "dlpack"])
def test_numpy_shares_the_memory(view: Any) -> None:
    """No copy: the pointers are equal, and it outlives the array."""
    array = aiodev.arange(12, device="cpu").reshape(3, 4)
    address = array._address
    shared = view(array[:, ::2])
    del array
    assert pointer(shared) == address
    assert np.array_equal(shared, np.arange(12).reshape(3, 4)[:, ::2])


def test_a_host_array_is_shared_too() -> None:
    """from_dlpack of NumPy: what one writes the other reads."""
    host = np.zeros((3, 4), "f4")
    array = aiodev.from_dlpack(host)
    assert array._address == pointer(host)
    array.copy_from(np.ones((3, 4), "f4")).synchronize_blocking()
    assert (host == 1).all()
    again = aiodev.from_dlpack(host.T[::-1])
    assert again.strides == host.T[::-1].strides
    assert np.array_equal(again.numpy_blocking(), host.T[::-1])


def test_a_host_array_lives_while_work_uses_it() -> None:
    """Dropped behind a latch, with the copy still to come."""
    stream = aiodev.Stream("cpu")
    with stream:
        shared = aiodev.from_dlpack(np.full(100_000, 3.0))
        target = aiodev.empty(100_000)
        latch = Latch(stream)
        stream.copy(target, shared)
        del shared
        for _ in range(20):
            np.zeros(100_000)
        latch.release()
        assert (target.numpy_blocking() == 3).all()


def test_protocols_wait_for_the_work_on_the_array() -> None:
    """And for nothing else: a latch behind it does not matter, a latch before it does."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(10)
        before = Latch(stream)
        array.copy_from(np.ones(10))
        after = Latch(stream)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(np.asarray(array).copy()))
    thread.start()
    assert not found
    before.release()
    thread.join(30)
    after.release()
    assert (found[0] == 1).all()


def test_a_failure_is_raised_by_the_protocols() -> None:
    """Not computed means no data."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(3)

        def fail() -> None:
            raise ValueError("bad row")

        stream.call(fail)
        array.copy_from(np.ones(3))
        with pytest.raises(aiodev.DependencyError):
            np.from_dlpack(array)


def test_array_converts_and_copies_as_asked() -> None:
    """The arguments of ``__array__``."""
    array = aiodev.arange(4, device="cpu")
    assert pointer(array.__array__()) == array._address
    assert pointer(array.__array__(copy=True)) != array._address
    assert array.__array__(np.float32).dtype == np.float32
    with pytest.raises(ValueError):
        array.__array__(np.float32, copy=False)


@pytest.mark.skipif(not NEW_DLPACK, reason="NumPy before 2.1 knows no versioned DLPack")
def test_dlpack_options() -> None:
    """Versions, copies and the read-only flag go through; streams of the host do not exist."""
    array = aiodev.arange(4, device="cpu")
    assert array.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    copied = np.from_dlpack(array, copy=True)
    assert pointer(copied) != array._address
    host = np.arange(4)
    host.flags.writeable = False
    frozen = aiodev.from_dlpack(host)
    with pytest.raises(ValueError, match="read-only"):
        frozen.copy_from(np.arange(4))
    assert not np.from_dlpack(frozen).flags.writeable
    with pytest.raises(BufferError):
        frozen.__dlpack__()  # the old protocol has no such flag
    with pytest.raises(BufferError):
        array.__dlpack__(stream=7)


def test_memory_of_other_devices_is_refused() -> None:
    """Only memory of the host and of CUDA can be shared."""

    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 8, 0

    with pytest.raises(BufferError, match="type 8"):
        aiodev.from_dlpack(Elsewhere())


def test_an_array_of_ours_is_a_view() -> None:
    """from_dlpack of an aiodev array waits for nothing."""
    stream = aiodev.Stream("cpu")
    with stream, Latch(stream):
        array = aiodev.zeros(3)
        assert aiodev.from_dlpack(array)._buffer is array._buffer


def test_recorded_streams_count_as_users() -> None:
    """record_stream: memory is not reused, and reads wait, until what the stream was given is done."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(3)
        latch = Latch(other)
        array.record_stream(other)
        assert (other.timeline, latch.value) in array._buffer.pending()
        with pytest.raises(TimeoutError):
            array.numpy_blocking(timeout=0.01)
        latch.release()
        array.numpy_blocking()
