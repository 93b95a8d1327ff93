"""Arrays travel as Dask's frames: their own memory where the host has it, to the receiver's device and dtype."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.comm.utils import OFFLOAD_THRESHOLD, to_frames
from distributed.protocol import deserialize, serialize, to_serialize
from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
from distributed.spill import SpillBuffer

import aiodev
import aiodev.dask
from aiodev import autograd
from aiodev._core.backend.registry import registry
from aiodev.dask import serializers
from aiodev.testing import Latch, SimulatedBackend


def received(array: aiodev.Array, device: str = "cpu") -> aiodev.Array:
    """The array as another process has it: of bytes of its own, on its own device."""
    header, frames = serialize(array, on_error="raise")
    assert header["serializer"] == "dask"
    with aiodev.device(device):
        found = deserialize(header, [bytearray(frame) for frame in frames])
    assert isinstance(found, aiodev.Array)
    return found


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest, register: Callable[[type[Any]], str]) -> str:
    """One whose memory the host has, and one whose memory it has not."""
    return "cpu" if request.param == "cpu" else register(SimulatedBackend)


VIEWS: dict[str, Callable[[aiodev.Array], aiodev.Array]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.transpose(2, 0, 1),
    "with gaps": lambda x: x[::2, 1:, ::-1],
    "repeated": lambda x: aiodev.broadcast_to(x[:, :1], (4, 3, 5)),
    "one": lambda x: x[1, 2, 3],
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "bool", "bfloat16"])
def test_values_dtype_and_shape_arrive(device: str, dtype: str, view: str) -> None:
    """Of every layout, and of dtypes that NumPy has not."""
    whole = aiodev.asarray(np.arange(60).reshape(4, 3, 5) % 7, dtype=dtype, device=device)
    sent = VIEWS[view](whole)
    found = received(sent, device)
    assert (found.shape, found.dtype, found.device) == (sent.shape, sent.dtype, sent.device)
    np.testing.assert_array_equal(found.numpy_blocking(), sent.numpy_blocking())


def test_the_order_of_the_axes_in_memory_arrives(device: str) -> None:
    """Of what has no gaps; any other view arrives packed, in C order."""
    whole = aiodev.asarray(np.arange(24).reshape(2, 3, 4), device=device)
    transposed = whole.transpose(2, 0, 1)
    assert received(transposed, device).strides == transposed.strides
    for view in (whole[::-1], transposed[::-1], transposed[:, :, ::2], whole.transpose(2, 1, 0)[::2]):
        found = received(view, device)
        assert found.strides == np.empty(view.shape, np.int64).strides
        np.testing.assert_array_equal(found.numpy_blocking(), view.numpy_blocking())


def test_frames_are_the_array_s_own_memory() -> None:
    """Nobody copies what the host can reach, whatever the order of the axes."""
    x = aiodev.arange(24, device="cpu").reshape(2, 3, 4)
    _, (frame,) = serialize(x.transpose(1, 2, 0), on_error="raise")
    assert np.frombuffer(frame, np.uint8).ctypes.data == x.address


def test_received_bytes_become_the_array_where_the_device_has_the_host_s_memory() -> None:
    """No copy for a CPU: the array lies in what was received."""
    header, frames = serialize(aiodev.arange(1000, device="cpu"), on_error="raise")
    octets = np.frombuffer(bytearray(frames[0]), np.uint8).copy()
    found = deserialize(header, [octets.data])
    assert found.address == octets.ctypes.data


@pytest.mark.parametrize("length", [5, 50_000])
@pytest.mark.parametrize("octets", ["read-only", "not aligned"])
def test_bytes_that_cannot_be_shared_are_copied(octets: str, length: int) -> None:
    """What may not be written to, and what lies askew; few at once, many by the device."""
    header, frames = serialize(aiodev.arange(length, device="cpu"), on_error="raise")
    given = bytes(frames[0]) if octets == "read-only" else memoryview(bytearray(b"x" + bytes(frames[0])))[1:]
    found = deserialize(header, [given])
    assert found.writable
    np.testing.assert_array_equal(found.numpy_blocking(), np.arange(length))


def test_a_large_array_travels_in_pieces(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Each goes straight to its place; nobody joins them first."""
    monkeypatch.setattr(serializers, "frame_split_size", lambda frame: [frame[at : at + 999] for at in range(0, 8000, 999)])
    header, frames = serialize(aiodev.arange(1000, device=device), on_error="raise")
    assert len(frames) == 9
    with aiodev.device(device):
        found = deserialize(header, [bytearray(frame) for frame in frames])
    np.testing.assert_array_equal(found.numpy_blocking(), np.arange(1000))


@pytest.mark.parametrize("view", VIEWS)
def test_frames_stay_on_a_gpu_where_dask_has_ucx(view: str, register: Callable[[type[Any]], str]) -> None:
    """A frame is the array's own memory, as the CUDA array interface has it; what has gaps is packed on the device."""

    class LikeCUDA(SimulatedBackend):
        def __init__(self) -> None:
            super().__init__()
            self.capabilities = self.capabilities._replace(cuda_interfaces=True)

    name = register(LikeCUDA)
    registry._handles.pop("cuda", None)  # of a copy that the fixture has made
    sent = VIEWS[view](aiodev.asarray(np.arange(60).reshape(4, 3, 5), device=name))
    header, frames = serialize(sent, serializers=("cuda", "dask"), on_error="raise")
    assert header["serializer"] == "cuda"
    shown = [SimpleNamespace(__cuda_array_interface__=frame.__cuda_array_interface__ | {"stream": None}) for frame in frames]
    with aiodev.device(name):
        found = deserialize(header, shown)
    assert (found.shape, found.dtype, found.device) == (sent.shape, sent.dtype, sent.device)
    np.testing.assert_array_equal(found.numpy_blocking(), sent.numpy_blocking())
    if view in ("plain", "transposed"):
        assert found.address == sent.address


def test_arrays_of_other_devices_go_by_way_of_the_host() -> None:
    """Where Dask has UCX, too."""
    header, _ = serialize(aiodev.ones(3, device="cpu"), serializers=("cuda", "dask"), on_error="raise")
    assert header["serializer"] == "dask"


def test_the_receiver_s_device_is_the_current_one(register: Callable[[type[Any]], str]) -> None:
    """Whatever device the sender had."""
    name = register(SimulatedBackend)
    assert received(aiodev.ones(3, device="cpu"), name).device == aiodev.Device(name)


def test_what_the_device_has_no_room_for_stays_on_the_host(register: Callable[[type[Any]], str]) -> None:
    """Nothing is lost: the task that needs it brings it there, or fails."""
    name = register(SimulatedBackend)
    aiodev.ones(1, device=name)
    aiodev.memory.set_per_process_memory_fraction(1e-9, name)
    found = received(aiodev.arange(1 << 20, device="cpu"), name)
    assert found.device == aiodev.Device("cpu")
    assert found.numpy_blocking()[-1] == (1 << 20) - 1


async def test_what_is_unfinished_is_awaited_off_the_loop() -> None:
    """A small message is serialized on the loop only if it has not to wait."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(8)
    latch = Latch(stream)
    latch.__enter__()
    with stream:
        x += 1
    sending = asyncio.ensure_future(to_frames({"data": {"x": to_serialize(x)}}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not sending.done()  # and the loop goes on
    latch.__exit__(None, None, None)
    frames = await sending
    assert any(bytes(frame) == np.ones(8).tobytes() for frame in frames)


def test_what_is_finished_counts_as_large_as_it_is() -> None:
    """A part of a message, as Dask measures it."""
    x = aiodev.zeros(8, device="cpu")
    x.numpy_blocking()
    assert sizeof(to_serialize(x)) == 64 < OFFLOAD_THRESHOLD


def test_a_failure_of_the_contents_arrives(device: str) -> None:
    """As it was raised, not as a text."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(3)
        x.copy_from(x)
        stream.call(lambda: 1 / 0)
        x += 1
    with pytest.raises(TypeError) as caught:
        serialize(x, on_error="raise")
    assert isinstance(caught.value.__cause__, aiodev.DependencyError)


def test_another_form_is_refused() -> None:
    """The message says whose it is, and what to do."""
    header, frames = serializers.dump(aiodev.ones(3, device="cpu"))
    with pytest.raises(TypeError, match="aiodev 9.9 has sent: .* install one version"):
        serializers.load(header | {"format": 99, "version": "9.9"}, frames)


def test_size_counts_the_elements_that_there_are(device: str) -> None:
    """On whatever device; what is repeated counts once, and what was freed no more."""
    x = aiodev.ones((1000, 10), "float32", device)
    assert sizeof(x) == 40_000
    assert sizeof(aiodev.broadcast_to(x[:1], (1000, 10))) == 40
    x.free()
    assert sizeof(x) == 0


def test_spilling_and_back(tmp_path: Path, device: str) -> None:
    """A worker short of memory writes arrays to its disk, and reads them."""
    with aiodev.device(device):
        buffer = SpillBuffer(str(tmp_path), target=10_000)
        for number in range(5):
            buffer[f"x{number}"] = aiodev.full(1000, float(number))
        assert buffer.slow
        assert [buffer[f"x{number}"].numpy_blocking()[7] for number in range(5)] == [0, 1, 2, 3, 4]


def test_bytes_and_back() -> None:
    """As Dask stores a value in a file."""
    x = aiodev.arange(12, device="cpu").reshape(3, 4).T
    np.testing.assert_array_equal(deserialize_bytes(serialize_bytes(x)).numpy_blocking(), x.numpy_blocking())


def test_pickle_keeps_large_buffers_apart() -> None:
    """The fallback of protocol 5, for those who do not know Dask's serializers."""
    x, buffers = aiodev.arange(1000, device="cpu"), []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1000 < sum(buffer.raw().nbytes for buffer in buffers)
    np.testing.assert_array_equal(pickle.loads(data, buffers=buffers).numpy_blocking(), np.arange(1000))


def test_a_variable_travels_as_one() -> None:
    """By its pickle: what it is besides its values stays."""
    header, frames = serialize(autograd.Variable(aiodev.ones(3, device="cpu")), on_error="raise")
    assert header["serializer"] == "pickle"
    found = deserialize(header, frames)
    assert isinstance(found, autograd.Variable)
    assert found.requires_grad
