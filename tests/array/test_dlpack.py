"""DLPack capsules as such: what they say, who keeps what alive, and that PyTorch shares memory with us, by pointer."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples

import aiodev
from aiodev._array import capsules, dlpack
from aiodev._array.error_safe import error_safe
from aiodev.testing.latch import Latch

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
VERSIONS = [None, (1, 0), (2, 5)]


def torch() -> Any:
    """PyTorch, or the test is skipped."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("version", VERSIONS)
@given(st.data())
@settings(deadline=None, max_examples=examples(40))
def test_what_goes_into_a_capsule_comes_out(version: tuple[int, int] | None, data: st.DataObject) -> None:
    """Address, device, dtype, shape, strides and flags, in either kind of capsule."""
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    order = data.draw(st.permutations(range(len(shape))))
    strides = tuple(np.empty(shape, dtype).strides[axis] for axis in order)
    tensor = dlpack.Tensor(
        address=data.draw(st.integers(1, 2**62)),
        device=data.draw(st.sampled_from([(1, 0), (2, 3)])),
        dtype=dtype,
        shape=tuple(shape[axis] for axis in order),
        strides=strides,
        read_only=version is not None and data.draw(st.booleans()),
        copied=version is not None and data.draw(st.booleans()),
    )
    found = capsules.import_capsule(capsules.export_capsule(tensor, None, version)).tensor
    assert found._replace(strides=()) == tensor._replace(strides=())
    for length, stride, expected in zip(found.shape, found.strides, strides, strict=True):
        assert length == 1 or stride == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("consumed", [False, True])
def test_the_owner_lives_as_long_as_the_capsule_or_its_consumer(version: Any, consumed: bool) -> None:
    """Used or not, it is let go of once."""

    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    tensor = dlpack.Tensor(4096, (1, 0), np.dtype("f4"), (3,), (4,), False)
    capsule = capsules.export_capsule(tensor, owner, version)
    del owner
    if consumed:
        held = capsules.import_capsule(capsule)
        del capsule
        assert alive() is not None
        del held
    else:
        assert alive() is not None
        del capsule
    assert alive() is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("consume", [int, len, [].__getitem__, np.zeros(1).reshape], ids=["int", "len", "index", "reshape"])
def test_the_error_of_a_consumer_that_fails_arrives(consume: Any, version: Any, recwarn: pytest.WarningsRecorder) -> None:
    """It drops the capsule while its exception is set; the exception stays what it is, and the array is let go of."""
    array = aiodev.zeros(3, device="cpu")
    alive = weakref.ref(array._buffer)
    with pytest.raises(TypeError):
        consume(array.__dlpack__(max_version=version))
    del array
    assert alive() is None
    assert not recwarn


def test_a_consumer_that_fails_may_call_the_deleter() -> None:
    """While its exception is set, which is put aside meanwhile."""
    called: list[int] = []
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    new = kind(("PyCapsule_New", ctypes.pythonapi))
    name = b"name"
    address = error_safe(lambda capsule: called.append(len(list(range(capsule % 7 + 1)))))
    with pytest.raises(TypeError, match="PyCapsule"):
        int(new(1, name, address))
    assert len(called) == 1


def test_a_capsule_serves_once() -> None:
    """The second consumer is refused, and so is what is no capsule."""
    capsule = aiodev.zeros(3, device="cpu").__dlpack__()
    first = capsules.import_capsule(capsule)
    with pytest.raises(BufferError, match="unused"):
        capsules.import_capsule(capsule)
    with pytest.raises(BufferError, match="expected"):
        capsules.import_capsule(object())
    assert first.tensor.shape == (3,)


def test_versions_and_kinds_of_capsules() -> None:
    """A consumer that asks for none, or for 0.x, gets the old kind."""
    array = aiodev.zeros(3, device="cpu")
    assert '"dltensor"' in repr(array.__dlpack__())
    assert '"dltensor"' in repr(array.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 3)))


def test_copies_as_asked() -> None:
    """``copy=True`` says in the capsule that it is one; another device needs one; other targets do not exist."""
    array = aiodev.arange(4, device="cpu")
    shared = capsules.import_capsule(array.__dlpack__(max_version=(1, 0), copy=False)).tensor
    assert shared.address == array._address and not shared.copied
    copied = capsules.import_capsule(array.__dlpack__(max_version=(1, 0), copy=True)).tensor
    assert copied.address != array._address and copied.copied
    assert capsules.import_capsule(array.__dlpack__(dl_device=(1, 0))).tensor.address == array._address
    with pytest.raises(BufferError, match="dl_device"):
        array.__dlpack__(dl_device=(2, 0))


def test_a_read_only_array_is_told_or_refused() -> None:
    """The old kind of capsule has no flag; a copy may be written."""
    frozen = aiodev.broadcast_to(aiodev.ones(1, device="cpu"), (3,))
    assert capsules.import_capsule(frozen.__dlpack__(max_version=(1, 0))).tensor.read_only
    with pytest.raises(BufferError, match="read-only"):
        frozen.__dlpack__()
    assert not capsules.import_capsule(frozen.__dlpack__(copy=True)).tensor.read_only


def test_negative_strides_are_refused_or_copied() -> None:
    """Not every consumer survives them."""
    array = aiodev.arange(6, device="cpu").reshape(2, 3)[:, ::-1]
    with pytest.raises(BufferError, match="copy=True"):
        array.__dlpack__(max_version=(1, 0))
    assert np.array_equal(np.asarray(array), np.arange(6).reshape(2, 3)[:, ::-1])
    packed = capsules.import_capsule(array.__dlpack__(max_version=(1, 0), copy=True)).tensor
    assert packed.strides == (24, 8)


def test_without_order_nothing_is_waited_for() -> None:
    """stream=-1 leaves that to the consumer."""
    stream = aiodev.Stream("cpu")
    with stream, Latch(stream):
        array = aiodev.zeros(3)
        array.__dlpack__(stream=-1, max_version=(1, 0))
        assert not stream.query()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (3, 4)])
def test_torch_shares_the_memory_both_ways(dtype: str, shape: tuple[int, ...]) -> None:
    """0-d, empty and plain arrays of every dtype: the pointers are equal, and the values."""
    host = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    array = aiodev.asarray(host, device="cpu")
    tensor = torch().from_dlpack(array)
    assert tensor.shape == shape
    if host.size:
        assert tensor.data_ptr() == array._address
    assert np.array_equal(tensor.numpy(), host)
    again = aiodev.from_dlpack(tensor)
    assert again.dtype == array.dtype and again.shape == shape
    if host.size:
        assert again._address == array._address
    assert np.array_equal(again.numpy_blocking(), host)


def test_torch_sees_strides_and_we_see_its() -> None:
    """Transposed, sliced and repeated views in both directions."""
    array = aiodev.arange(24, device="cpu").reshape(4, 6)
    for view in (array.T, array[::2, 1:5:2], aiodev.broadcast_to(array[:1], (3, 6))):
        tensor = torch().from_dlpack(view)
        assert tensor.data_ptr() == view._address
        assert np.array_equal(tensor.numpy(), view.numpy_blocking())
    base = torch().arange(24).reshape(4, 6)
    for tensor in (base.T, base[1:, ::3], base.expand(2, 4, 6)):
        view = aiodev.from_dlpack(tensor)
        assert view._address == tensor.data_ptr()
        assert np.array_equal(view.numpy_blocking(), tensor.numpy())


def test_memory_outlives_whoever_made_it() -> None:
    """torch keeps our block in use; we keep torch's storage, for as long as work uses it; then both are let go of."""
    gc.collect()  # arrays that other tests have left
    aiodev.memory.empty_cache("cpu")
    before = aiodev.memory.memory_allocated("cpu")
    tensor = torch().from_dlpack(aiodev.full(1000, 3, device="cpu"))
    gc.collect()
    assert aiodev.memory.memory_allocated("cpu") > before
    assert (tensor == 3).all()
    del tensor
    gc.collect()
    assert aiodev.memory.memory_allocated("cpu") == before

    stream = aiodev.Stream("cpu")
    with stream:
        foreign = torch().full((100_000,), 7.0)
        storage = weakref.ref(foreign.untyped_storage())
        shared = aiodev.from_dlpack(foreign)
        target = aiodev.empty(100_000, "f4")
        with Latch(stream):
            stream.copy(target, shared)
            del foreign, shared
            gc.collect()
            [torch().zeros(100_000) for _ in range(10)]  # would take its place
        assert (target.numpy_blocking() == 7).all()
        del storage


def test_what_torch_has_and_no_device_has() -> None:
    """Numbers of eight bits, and tensors that torch itself does not hand out."""
    with pytest.raises(BufferError, match="dtype code 12, 8 bits"):
        aiodev.from_dlpack(torch().zeros(3, dtype=torch().float8_e5m2))
    with pytest.raises((BufferError, RuntimeError)):
        aiodev.from_dlpack(torch().zeros(3, requires_grad=True))


def test_numba_reads_and_writes_the_memory() -> None:
    """Through the array that the interface gives."""
    numba = pytest.importorskip("numba")

    @numba.njit
    def double(a: Any) -> None:
        for i in range(a.shape[0]):
            a[i] *= 2

    array = aiodev.arange(4, device="cpu")
    double(np.asarray(array))
    assert np.array_equal(array.numpy_blocking(), [0, 2, 4, 6])


def test_read_only_numpy_arrays_stay_so() -> None:
    """Through DLPack's flag."""
    host = np.arange(4)
    host.flags.writeable = False
    frozen = aiodev.from_dlpack(host)
    assert frozen._address == host.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        frozen.copy_from(np.zeros(4, int))
    aiodev.from_dlpack(host, copy=True).copy_from(np.zeros(4, int)).synchronize_blocking()
    assert np.array_equal(host, np.arange(4))


class Unversioned:
    """An array of a library that exports unversioned capsules alone, whatever it is asked for."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()


@aiodev.kernel
def clear(i: int, x: Any) -> None:
    x[i] = 0


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__(0, 7.0),
        lambda x: x.__iadd__(1),
        lambda x: x[1:].copy_from(np.zeros(3)),
        lambda x: clear[4](x),
        lambda x: aiodev.kernels.add(x, x, out=x),
    ],
    ids=["assignment", "in place", "copy", "launch", "out"],
)
def test_host_memory_of_an_unversioned_capsule_is_read_only(write: Any) -> None:
    """Which such a capsule cannot say; NumPy takes it for that, too. Each error of a write says what to do."""
    host = np.arange(4.0)
    assert not np.from_dlpack(Unversioned(host)).flags.writeable
    shared = aiodev.from_dlpack(Unversioned(host))
    assert shared._address == host.ctypes.data and not shared.writable
    with pytest.raises((ValueError, TypeError), match=r"read-only.*before version 1.0.*copy=True"):
        write(shared)
    write(aiodev.from_dlpack(Unversioned(host), copy=True))
    aiodev.synchronize_blocking("cpu")
    assert np.array_equal(host, np.arange(4.0))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_versioned_capsule_says_whether_it_is_read_only(read_only: bool) -> None:
    """And is believed; the errors of writes then blame no capsule."""
    host = aiodev.zeros(3, device="cpu")
    tensor = dlpack.Tensor(host._address, (1, 0), np.dtype("f4"), (3,), (4,), read_only)

    class Producer(Unversioned):
        def __dlpack__(self, **_: Any) -> Any:
            return capsules.export_capsule(tensor, host, (1, 0))

    shared = aiodev.from_dlpack(Producer(host))
    assert shared._address == host._address and shared.writable is not read_only
    if read_only:
        with pytest.raises(ValueError, match="read-only$"):
            shared.copy_from(np.zeros(3, "f4"))


def test_what_torch_shares_may_be_written_on_both_sides() -> None:
    """Its capsules have a version; those of old, which it makes if asked to, are read-only as any."""
    tensor = torch().zeros(3)
    shared = aiodev.from_dlpack(tensor)
    shared[0] = 1
    shared.numpy_blocking()
    assert tensor.tolist() == [1, 0, 0]
    array = aiodev.zeros(3, device="cpu")
    torch().from_dlpack(array)[0] = 1
    assert array.numpy_blocking().tolist() == [1, 0, 0]
    assert not aiodev.from_dlpack(Unversioned(tensor)).writable


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_of_jax_are_read_only(dtype: str) -> None:
    """They never change: other arrays of JAX may have the same memory."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with jax.default_device(jax.devices("cpu")[0]):
        theirs = jax.numpy.arange(4, dtype=dtype)
    shared = aiodev.from_dlpack(theirs)
    assert shared._address == theirs.unsafe_buffer_pointer() and not shared.writable
    with pytest.raises(ValueError, match=r"read-only.*arrays of JAX never change.*copy=True"):
        shared[0] = 7
    for copied in (aiodev.from_dlpack(theirs, copy=True), aiodev.asarray(theirs)):
        copied[0] = 7
        copied.numpy_blocking()
    assert theirs.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="copy=False"):
        aiodev.asarray(theirs, copy=False)


def test_a_read_only_array_that_numpy_has_no_dtype_for_is_shared_as_such() -> None:
    """By ``asarray(copy=False)``, which goes by DLPack where NumPy itself can make no array of it."""
    pytest.importorskip("ml_dtypes", reason="ml_dtypes, which has bfloat16, is not installed")
    tensor = torch().zeros(3, dtype=torch().bfloat16)

    class Frozen(Unversioned):
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise TypeError

    for obj, writable in ((tensor, True), (Frozen(tensor), False)):
        shared = aiodev.asarray(obj, copy=False, device="cpu")
        assert shared._address == tensor.data_ptr() and shared.writable is writable


def test_producers_of_other_times() -> None:
    """One that knows no versions; one whose capsules are of a version that is not known here; memory that is not aligned."""

    class Old:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, *, stream: None = None) -> Any:
            return self.array.__dlpack__()

    host = np.arange(4)
    assert aiodev.from_dlpack(Old(host))._address == host.ctypes.data

    capsule = aiodev.zeros(2, device="cpu").__dlpack__(max_version=(1, 0))
    pointer = capsules._pointer_of(id(capsule), b"dltensor_versioned")
    capsules._Versioned.from_address(pointer).major = 2

    class New(Old):
        def __dlpack__(self, **_: Any) -> Any:
            return self.array

    with pytest.raises(BufferError, match="DLPack 2.0"):
        aiodev.from_dlpack(New(capsule))
    odd = capsules.export_capsule(dlpack.Tensor(4097, (1, 0), np.dtype("f4"), (3,), (4,), False), None, None)
    with pytest.raises(BufferError, match="aligned"):
        aiodev.from_dlpack(New(odd))


def test_copies_and_devices_of_what_comes_in() -> None:
    """copy=True is another memory, for arrays of ours too; copy=False where one is needed raises."""
    host = np.arange(4)
    copied = aiodev.from_dlpack(host, copy=True)
    assert copied._address != host.ctypes.data
    assert np.array_equal(copied.numpy_blocking(), host)
    assert aiodev.from_dlpack(host, copy=False, device="cpu")._address == host.ctypes.data
    assert aiodev.from_dlpack(copied, copy=True)._address != copied._address
    assert aiodev.from_dlpack(copied)._address == copied._address


def test_a_process_ends_with_capsules_and_consumers_alive() -> None:
    """Consumers that outlive the interpreter find no deleter to call, and memory to find none in: freed memory is poisoned."""
    code = """
import sys
import numpy as np
import aiodev
array = aiodev.arange(4, device="cpu")
sys.unused = [array.__dlpack__(), array.__dlpack__(max_version=(1, 0))]
sys.consumed = np.from_dlpack(array)
try:
    import torch
    sys.tensor = torch.from_dlpack(array)
except ImportError:
    pass
"""
    environment = os.environ | {"PYTHONMALLOC": "debug"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_ends_after_a_consumer_took_the_destructor_away() -> None:
    """As JAX does: the capsule then dies unnoticed, and nothing touches where it was, which is poisoned."""
    code = """
import ctypes
import aiodev
array = aiodev.arange(4, device="cpu")
clear = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_SetDestructor", ctypes.pythonapi))
for version in (None, (1, 0)):
    capsule = array.__dlpack__(max_version=version)
    clear(capsule, None)
    del capsule
"""
    environment = os.environ | {"PYTHONMALLOC": "debug"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_cuda_arrays_on_a_stand_in() -> None:
    """Both CUDA protocols in both directions, with the order between streams, on a simulated device of that name."""
    script = Path(__file__).with_name("cuda_stand_in.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
