"""What test_dlpack runs in a process of its own: the ``cuda`` backend is a simulated one there."""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev import autograd
from aiodev._array import capsules, dlpack
from aiodev.testing.latch import Latch, QueueLatch
from aiodev.testing.simulated import SimulatedBackend


class StandIn(SimulatedBackend):
    """A simulated device that is called, and shares its memory, as CUDA's are."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(cuda_interfaces=True, dlpack_types=(dlpack.CUDA, 13))


class Producer:
    """Another library's array on a CUDA device, with what its capsules and its interface are asked for."""

    def __init__(self, array: aiodev.Array) -> None:
        self.array = array
        self.asked: dict[str, Any] = {}

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.array.device.index

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked = asked
        return self.array.__dlpack__(stream=-1, max_version=asked["max_version"])


class OldProducer:
    """One that has the CUDA array interface alone, as numba's device arrays."""

    def __init__(self, array: aiodev.Array, stream: int | None) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"stream": stream, "version": 3}


def describe(array: aiodev.Array) -> dlpack.Tensor:
    """What the capsule says."""
    return capsules.import_capsule(array.__dlpack__(stream=-1, max_version=(1, 0))).tensor


def check_what_it_says(array: aiodev.Array) -> None:
    assert array.__dlpack_device__() == (2, 1)
    tensor = describe(array.T)
    assert tensor.address == array._address
    assert (tensor.device, tensor.shape, tensor.strides) == ((2, 1), (3, 2), (4, 12))
    found = array.T.__cuda_array_interface__
    assert found == {
        "version": 3, "data": (array._address, False), "shape": (3, 2), "strides": (4, 12), "typestr": "<f4", "stream": 1,
    }  # fmt: skip
    assert array.__cuda_array_interface__["strides"] is None
    for protocol in ("__array_interface__",):
        assert not hasattr(array, protocol)
    assert not hasattr(aiodev.zeros(1, device="cpu"), "__cuda_array_interface__")
    variable = autograd.Variable(array)
    for export in (describe, lambda x: x.__cuda_array_interface__):
        try:
            export(variable)
        except (BufferError, RuntimeError) as error:
            assert "not recorded" in str(error)
        else:
            raise AssertionError("a consumer may write to a variable")
        with autograd.no_grad():
            export(variable)
    assert not hasattr(autograd.Variable(aiodev.zeros(1, device="cpu")), "__cuda_array_interface__")
    assert capsules.import_capsule(variable.__dlpack__(dl_device=(1, 0))).tensor.device == (1, 0)


def check_order_of_a_consumer(backend: StandIn) -> None:
    """The consumer's stream waits for the work on the array; when the consumer is gone, its memory waits for that stream."""
    stream = aiodev.Stream("cuda:0")
    with stream:
        array = aiodev.zeros(3, "f4")
        latch = Latch(stream)
        array.copy_from(aiodev.ones(3, "f4"))  # not from the host, which would have to take part
        capsule = array.__dlpack__(stream=77, max_version=(1, 0))
    queue, counters = backend.foreign_queue(77)
    done = backend.executor.stamp(queue, CELL)
    assert counters[0] < done
    latch.release()
    assert backend.executor.spin(queue, done, 10**10)
    held = QueueLatch(backend.executor, queue)
    imported = capsules.import_capsule(capsule)
    buffer = array._buffer
    stream.synchronize_blocking()
    assert not buffer.pending()
    del imported, capsule
    assert buffer.pending(), "the foreign stream may still use the memory"
    held.release()
    for timeline, value in buffer.pending():
        aiodev.Completion(timeline, value).synchronize_blocking(30)
    try:
        array.__dlpack__(stream=0)
    except BufferError as error:
        assert "ambiguous" in str(error)
    else:
        raise AssertionError("stream 0 went through")


def check_imports(backend: StandIn) -> None:
    """Shared by pointer, on the device, after what the producer's stream has still to do."""
    with aiodev.Stream("cuda:0"):
        array = aiodev.arange(6, dtype="f4").reshape(2, 3)
        expected = array.numpy_blocking()
    producer = Producer(array)
    held = QueueLatch(backend.executor, backend.foreign_queue(1)[0])
    with aiodev.Stream("cuda:0"):
        shared = aiodev.from_dlpack(producer)
        assert producer.asked == {"stream": 1, "max_version": (1, 0)}
        assert (shared._address, shared.device) == (array._address, aiodev.Device("cuda:0"))
        try:
            shared.numpy_blocking(timeout=0.01)
        except TimeoutError:
            held.release()
        else:
            raise AssertionError("the read did not wait for the producer's stream")
        assert np.array_equal(shared.numpy_blocking(), expected)
        assert aiodev.asarray(producer)._address == array._address
        for handle in (None, 2):
            old = aiodev.asarray(OldProducer(array.T, handle))
            assert old._address == array._address
            assert np.array_equal(old.numpy_blocking(), expected.T)
        there = aiodev.full(3, 7, "f4", "cuda:1")
        there.numpy_blocking()
        elsewhere = aiodev.asarray(OldProducer(there, None))
        assert elsewhere.device == aiodev.Device("cuda:1"), "it is where its memory is, not where the program is"
        assert np.array_equal(elsewhere.numpy_blocking(), [7, 7, 7])
    moved = aiodev.from_dlpack(producer, device="cpu")
    assert np.array_equal(moved.numpy_blocking(), expected)
    try:
        aiodev.from_dlpack(producer, device="cpu", copy=False)
    except BufferError:
        pass
    else:
        raise AssertionError("copy=False copied")


def check_who_may_write() -> None:
    """Old capsules cannot say it, and are believed: CuPy has no others. The interface says it; arrays of JAX never change."""
    array = aiodev.zeros(3, "f4", "cuda:0")
    array.numpy_blocking()

    class Old(Producer):
        def __dlpack__(self, **asked: Any) -> Any:
            return self.array.__dlpack__(stream=-1)

    def of_jax(kind: type[Any]) -> type[Any]:
        return type("ArrayImpl", (kind,), {"__module__": "jaxlib._jax"})

    assert aiodev.from_dlpack(Producer(array)).writable and aiodev.from_dlpack(Old(array)).writable
    for kind in (Producer, Old):
        assert not aiodev.from_dlpack(of_jax(kind)(array)).writable
        assert not aiodev.asarray(of_jax(kind)(array), copy=False).writable
        assert aiodev.from_dlpack(of_jax(kind)(array), copy=True).writable
    interface = OldProducer(array, None)
    assert aiodev.asarray(interface, copy=False).writable
    assert not aiodev.asarray(of_jax(OldProducer)(array, None), copy=False).writable
    interface.__cuda_array_interface__["data"] = array._address, True
    assert not aiodev.asarray(interface, copy=False).writable


def check_exports_to_the_host(array: aiodev.Array) -> None:
    """dl_device=(1, 0) copies; NumPy asks for it with device="cpu"."""
    capsule = array.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    tensor = capsules.import_capsule(capsule).tensor
    assert tensor.device == (1, 0) and tensor.copied
    try:
        array.__dlpack__(dl_device=(1, 0), copy=False)
    except BufferError:
        pass
    else:
        raise AssertionError("copy=False copied")
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
        assert np.array_equal(np.from_dlpack(array, device="cpu"), array.numpy_blocking())


cell = np.zeros(1, np.int64)
CELL = cell.ctypes.data


def main() -> None:
    aiodev.register_backend("cuda", StandIn)
    aiodev.init_blocking("cuda")
    backend = aiodev.get_backend("cuda")
    assert isinstance(backend, StandIn)
    array = aiodev.full((2, 3), 5, "f4", "cuda:1")
    check_what_it_says(array)
    check_order_of_a_consumer(backend)
    check_imports(backend)
    check_who_may_write()
    check_exports_to_the_host(array)


main()
