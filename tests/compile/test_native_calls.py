"""Calls in native code: what they leave to Python, what they keep of what they are given, and that there is no other result."""

from __future__ import annotations

import gc
import logging
import random
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_everywhere
from native import load_native

import aiodev
from aiodev import kernels
from aiodev._core import callsites, sources
from aiodev._core.backend.launch_codes import launch_codes
from aiodev._kernel.dispatch import native_functions, states
from aiodev._kernel.tuning import RECURS
from aiodev._memory import buffer
from aiodev._memory.allocator import DeviceBuffer
from aiodev._native import objects
from aiodev._native.compile import entry
from aiodev._native.emit import emit
from aiodev._native.native_code import NativeCode
from aiodev._native.objects import Object, Tuple, check_layouts, offsets_of, slot
from aiodev.testing import Latch


@aiodev.kernel
def axpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel
def scale(i: int, x: Any, factor: float = 2.0) -> None:
    x[i] *= factor


@aiodev.kernel
def add_to(i: int, x: Any, out: Any) -> None:
    out[i] += x[i]


@aiodev.kernel(ndim=2)
def turn(i: int, j: int, x: Any, out: Any) -> None:
    out[j, i] = x[i, j]


@aiodev.kernel
def phase(i: int, z: complex, x: Any) -> None:
    x[i] = x[i] * z


@aiodev.kernel
def put(i: int, a: Any, out: Any, b: Any, other: Any) -> None:
    out[i] = a
    other[i] = b


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The code is there."""
    aiodev.init_blocking("cpu")
    load_native()


@pytest.fixture
def stream() -> Iterator[aiodev.Stream]:
    with aiodev.Stream("cpu") as made:
        yield made
        made.synchronize_blocking()


def learn(act: Callable[[], object], stream: aiodev.Stream, times: int = 80) -> None:
    """Have a call be known."""
    for _ in range(times):
        act()
        stream.synchronize_blocking()


def is_native(kernel: aiodev.Kernel) -> bool:
    return "built-in" in repr(kernel._call.func)


# Results


def test_arguments_by_position_by_name_and_by_default(stream: aiodev.Stream) -> None:
    """In any mixture, and with what only Python's way knows to say."""
    x, y = aiodev.ones(4, "f8"), aiodev.full(4, 3.0, "f8")
    out = aiodev.zeros(4, "f8")
    learn(lambda: axpy[4](2.0, x, y, out), stream)
    learn(lambda: scale[4](x, 1.0), stream)
    assert is_native(axpy) and is_native(scale)
    for number, act in enumerate(
        (
            lambda a: axpy[4](a, x, y, out),
            lambda a: axpy[4](a, x, y, out=out),
            lambda a: axpy[4](a=a, out=out, y=y, x=x),
            lambda a: axpy[4, stream](a, x, out=out, y=y),
            lambda a: stream.launch(axpy, 4, a, x, y, out),
        )
    ):
        act(float(number))
        assert (out.numpy_blocking() == number + 3).all()
    scale[4](x)
    scale[4](factor=4.0, x=x)
    assert (x.numpy_blocking() == 8).all()
    for wrong in (lambda: axpy[4](1.0, x, y), lambda: axpy[4](1.0, x, y, out, out), lambda: axpy[4](1.0, x, y, nothing=out)):
        with pytest.raises(aiodev.LaunchError):
            wrong()
    with pytest.raises(aiodev.LaunchError, match="x"):
        axpy[4](1.0, x, y, x=out)


def test_any_shape_and_stream(stream: aiodev.Stream) -> None:
    """Two dimensions, none of an index, more than there are; on this stream and another."""
    host = np.arange(6.0).reshape(2, 3)
    x, out = aiodev.asarray(host, device="cpu"), aiodev.zeros((3, 2), "f8", "cpu")
    learn(lambda: turn[2, 3](x, out), stream)
    assert is_native(turn) and (out.numpy_blocking() == host.T).all()
    out[:] = 0.0
    turn[0, 3](x, out)
    assert not out.numpy_blocking().any()
    other = aiodev.Stream("cpu")
    turn[2, 3, other](x, out).synchronize_blocking()
    assert (out.numpy_blocking() == host.T).all()
    with pytest.raises(aiodev.LaunchError):
        turn[3, 3](x, out)
    with pytest.raises(aiodev.LaunchError):
        turn[-1, 3](x, out)


def test_what_a_kernel_is_launched_over(stream: aiodev.Stream) -> None:
    """Whatever is an integer or a shape, with a stream or without, and nothing else."""

    class OtherStream(aiodev.Stream):
        pass

    x, four = aiodev.zeros(4, "f8", "cpu"), np.int64(4)
    shapes = 4, (4,), [4], four, (4, stream), ((4,), stream), ([4], stream), (four, stream), (4, OtherStream("cpu"))
    for shape in shapes:
        x[:] = 1.0
        stream.synchronize_blocking()  # for the launch on another
        scale[shape](x).synchronize_blocking()
        assert (x.numpy_blocking() == 2).all(), shape
    for wrong in (-1, 4.0, "4", None, (4, 4), (4, None), (stream, 4), (), 1 << 63):
        with pytest.raises(aiodev.LaunchError):
            scale[wrong](x)
    for pair in ((2, 2), (2, 2, stream), ((2, 2), stream)):
        y = aiodev.zeros((2, 2), "f8", "cpu")
        turn[pair](aiodev.ones((2, 2), "f8", "cpu"), y).synchronize_blocking()
        assert y.numpy_blocking().all()
    with pytest.raises(aiodev.LaunchError):
        turn[4]
    choose: Any = scale.__getitem__
    for given, named in (((), {}), ((1, 2), {}), ((), {"shape": 4, "more": 1})):
        with pytest.raises(TypeError):
            choose(*given, **named)
    with pytest.raises(TypeError):
        scale._call()


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "i8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("other", ["f4", "c8", "c16"])
def test_numbers_of_any_type_are_where_the_kernel_reads_them(dtype: str, other: str, stream: aiodev.Stream) -> None:
    """Ahead of the arrays, whose places follow from how many words each of the numbers takes."""
    x, y = aiodev.zeros(5, dtype=dtype, device="cpu"), aiodev.zeros(5, dtype=other, device="cpu")
    for step in range(20):
        a, b = np.dtype(dtype).type(step % 2), np.dtype(other).type(step - 0.5j if other[0] == "c" else step)
        put[5](a, x, b, y)
        assert (x.numpy_blocking() == a).all() and (y.numpy_blocking() == b).all()
    assert is_native(put)


def test_what_has_other_types_is_never_taken_for_known(stream: aiodev.Stream) -> None:
    """Dtypes, views, numbers of all kinds, and what is no argument at all: in any order, each as if it were the first."""
    chance = random.Random(5)
    arrays = {dtype: aiodev.ones(6, dtype, "cpu") for dtype in ("f4", "f8", "i4", "i8", "c16")}
    for _ in range(400):
        dtype = chance.choice(list(arrays))
        x = arrays[dtype][:: chance.choice((1, 2))]
        out = aiodev.zeros(6, dtype, "cpu")[: x.size]
        a = chance.choice((2, 2.0, np.float32(2), np.int64(2), True))
        expected = a * x.numpy_blocking() + x.numpy_blocking()
        axpy[x.size](a, x, x, out)
        assert np.allclose(out.numpy_blocking(), expected), (dtype, a)
    x, free = arrays["f8"], aiodev.ones(6, "f8", "cpu")
    free.free()
    for wrong in (np.ones(6), None, free, [1.0]):
        with pytest.raises(aiodev.ClosedError if wrong is free else aiodev.LaunchError):
            axpy[6](1.0, x, wrong, x)
    with pytest.raises(aiodev.LaunchError):
        axpy[7](1.0, x, x, x)
    axpy[6](1.0, x, x, x)
    assert (x.numpy_blocking() == 2).all()


def test_numbers_that_do_not_fit_are_refused(stream: aiodev.Stream) -> None:
    """By their names, and the stream goes on."""
    x = aiodev.ones(4, "i8", "cpu")
    learn(lambda: scale[4](x, 1), stream)
    with pytest.raises(aiodev.LaunchError, match="factor"):
        scale[4](x, 1 << 70)
    scale[4](x, 3)
    assert (x.numpy_blocking() == 3).all()
    z = aiodev.ones(4, "c16", "cpu")
    learn(lambda: phase[4](1j, z), stream, 4 * 20)
    assert np.allclose(z.numpy_blocking(), 1)
    y = aiodev.ones(3, "u1", "cpu")
    for _ in range(4):
        kernels.add(y, 1)
    with pytest.raises(OverflowError):
        kernels.add(y, 300)
    assert (kernels.add(y, 2).numpy_blocking() == 3).all()


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_ints_and_floats_become_the_bytes_that_struct_makes(dtype: str, stream: aiodev.Stream) -> None:
    """Of any size, and at the edges of each; native code has none packed that fits, and refuses what Python's way does."""
    chance = random.Random(7)
    powers = [sign * (1 << bits) + more for bits in range(66) for sign in (1, -1) for more in (-1, 0, 1)]
    doubles = [chance.randbytes(8) for _ in range(300)] + [struct.pack("d", float(np.float32(power))) for power in powers]
    singles = [struct.pack("d", struct.unpack("f", chance.randbytes(4))[0]) for _ in range(300)]
    floats = [struct.unpack("d", each)[0] for each in (*doubles, *singles)]
    out, kept = aiodev.zeros(1, dtype, "cpu"), aiodev.kernel(put.py_func)
    blocks: list[bytes] = []

    def keep(entry: int, size: int, block: bytes, site: int) -> int:
        blocks.append(block)
        return launch(entry, size, block, site)

    for value in (1, 1.0):
        learn(lambda value=value: kept[1](value, out, value, out), stream)  # type: ignore[misc]
    assert is_native(kept)
    own = kept._caller._own
    stream._launch, launch = keep, stream._launch
    try:
        for value in [*powers, *floats]:
            made: list[object] = []
            for way in (kept[1, stream], partial(own.slow, (1, stream))):
                try:
                    way(value, out, value, out)
                    made.append(blocks.pop())
                except aiodev.LaunchError as error:
                    made.append(str(error))
            assert made[0] == made[1], value
            if isinstance(made[0], bytes):
                (branch,) = [each for each in own.branches if each.keys[0] is type(value)]
                packs, branch.packs = branch.packs, (None,) * len(branch.packs)  # which would end in Python's way
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(own, "slow", None)
                    kept[1, stream](value, out, value, out)
                branch.packs = packs
                assert blocks.pop() == made[0]
        stream.synchronize_blocking()
    finally:
        stream._launch = launch


def test_ctrl_c_in_what_packs_a_number_goes_on(stream: aiodev.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no number that does not fit, so nothing is launched, and the next launch is as any."""
    z = aiodev.ones(4, "c16", "cpu")
    learn(lambda: phase[4](1 + 0j, z), stream)
    before, branches = stream.timeline.submitted, phase._caller._own.branches
    (branch,) = [each for each in branches if complex in each.keys]
    packs = branch.packs

    def interrupt(*numbers: Any) -> bytes:
        raise KeyboardInterrupt

    branch.packs = (interrupt, *packs[1:])
    with pytest.raises(KeyboardInterrupt):
        phase[4](1 + 0j, z)
    branch.packs = packs
    assert stream.timeline.submitted == before
    phase[4](2 + 0j, z)
    assert (z.numpy_blocking() == 2).all()


def test_programs_have_the_results_of_pythons_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the native code cannot be made every call takes the long way, with a warning; a program computes the same."""

    def program() -> list[Any]:
        chance, results = random.Random(3), []
        with aiodev.Stream("cpu"):
            values = [aiodev.asarray(np.arange(n, dtype="f8").reshape(-1, 2), device="cpu") for n in (4, 8)]
            for _ in range(120):
                x = chance.choice(values)
                made = chance.choice(
                    (
                        lambda x: kernels.add(x, x[::-1]),
                        lambda x: kernels.multiply(x, 0.5),
                        lambda x: kernels.softmax(x),
                        lambda x: x.sum(axis=0, keepdims=True) + x,
                        lambda x: kernels.add(x[1:], x[:-1], out=x[1:]),
                    )
                )(x)
                results.append(made.numpy_blocking())
        return results

    native = program()
    for operation in (kernels.add, kernels.multiply, kernels.softmax, kernels.sum):
        operation.operation.forget()
    monkeypatch.setattr(native_functions, "_code", native_functions._Code())
    assert native_functions.native_function("repeat", object()) is None
    for ours, pythons in zip(native, program(), strict=True):
        np.testing.assert_array_equal(ours, pythons)


@entry
def _without_memory(queue: int, kernel: int, size: int, arguments: int, site: int) -> int:
    raise MemoryError("none")


def test_what_cannot_be_launched_at_an_address_is_pythons(stream: aiodev.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for a record there, say. Elsewhere launches are the executor's own, at their address."""
    x, y = aiodev.zeros(4, "i8", "cpu"), aiodev.ones(4, "i8", "cpu")
    learn(lambda: add_to[4, stream](y, x), stream)
    launch: Any = stream._launch
    address, calls = launch_codes[launch.func], list[int]()

    def count(*given: Any) -> int:
        calls.append(1)
        return int(launch.func(*given))

    stream._launch = partial(count, *launch.args)
    for _ in range(2):
        add_to[4, stream](y, x)
        monkeypatch.setitem(launch_codes, count, address)  # as if it were the executor's
    code = NativeCode(emit("test", [_without_memory]))
    monkeypatch.setitem(launch_codes, count, code.address(_without_memory))
    add_to[4, stream](y, x)
    stream._launch = launch
    assert len(calls) == 2
    assert (x.numpy_blocking() == 83).all()


def test_sites_are_those_of_the_lines_whatever_was_called_before(stream: aiodev.Stream) -> None:
    """In many functions, by turns, more than native code has at hand; one that becomes a library's is none from then on."""
    text = "def launch(kernel, x, stream):\n" + "    kernel[1, stream](x)\n"
    sites = list[int]()

    def keep(kernel: int, size: int, block: bytes, site: int) -> int:
        sites.append(site)
        return launch(kernel, size, block, site)

    functions = []
    for number in range(3 * callsites.RECENT_SITES):
        names: dict[str, Any] = {"__name__": "elsewhere"}
        exec(compile("\n" * number + text, "elsewhere.py", "exec"), names)
        functions.append(names["launch"])
    x = aiodev.zeros(1, "i8", "cpu")
    learn(lambda: scale[1, stream](x), stream)
    stream._launch, launch = keep, stream._launch
    chance = random.Random(3)
    for number in (*range(len(functions)), *chance.choices(range(len(functions)), k=2_000), 5):
        functions[number](scale, x, stream)
        assert callsites.describe_site(sites.pop()) == f"elsewhere.py:{number + 2}"
    callsites.enter_library(functions[5].__code__)
    line = sys._getframe().f_lineno + 1
    functions[5](scale, x, stream)
    assert callsites.describe_site(sites.pop()) == f"{__file__}:{line}"
    stream._launch = launch


# Interrupts


@pytest.mark.parametrize("kind", ["launch", "bound", "operation"])
@pytest.mark.parametrize("place", ["submission", "notes"])
async def test_an_array_whose_use_was_submitted_is_known_to_be_used(place: str, kind: str) -> None:
    """Native code is interrupted where it calls Python: a stream that is traced, notes of what another stream has used."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    x, y = aiodev.zeros(8, "int64", "cpu"), aiodev.ones(8, "int64", "cpu")
    bound = add_to.bind((8, stream), y, x)

    def add() -> None:
        with stream:
            kernels.add(y, y, out=x)

    acts: dict[str, Callable[[], object]] = {"launch": lambda: add_to[8, stream](y, x), "bound": bound, "operation": add}
    act = acts[kind]
    while not isinstance(bound.func, types.BuiltinFunctionType):
        await bound()
    for _ in range(40):  # of what was just learnt
        act()
        await stream.synchronize()
    torn = 0
    if place == "submission":
        launch = stream._launch

        def launch_noted(*given: Any) -> int:
            return launch(*given)

        stream._launch = launch_noted

    def prepare() -> None:
        x._buffer._writer = x._buffer._reader = y._buffer._reader = other.timeline
        x._buffer._written = x._buffer._read = y._buffer._read = 0

    interrupted = sys.modules[__name__] if place == "submission" else buffer
    with Latch(stream):
        before = stream.timeline.submitted
        for _ in interrupted_everywhere(act, interrupted, prepare=prepare, least=1):
            if stream.timeline.submitted > before:
                torn += 1
                before = stream.timeline.submitted
                assert x._buffer.contents() == [(stream.timeline, before)]
                assert (stream.timeline, before) in y._buffer.uses()
    assert torn


# References


def test_nothing_is_kept_and_nothing_let_go_too_often(stream: aiodev.Stream) -> None:
    """Of arguments, stream, timeline, buffers, blocks and forms: as many references after thousands of calls as before."""
    x, out = aiodev.ones((2, 8), "f4", "cpu"), aiodev.zeros((2, 8), "f4", "cpu")
    number, row = np.float32(2), x[0]
    bound = scale.bind((2, stream), row, 1.0)
    acts: list[Callable[[], object]] = [
        lambda: axpy[2, stream](2.0, row, row, out=row),
        lambda: axpy[2](number, row, row, row),
        bound,
        lambda: kernels.add(x, x),
        lambda: kernels.add(x, x, out=out),
        lambda: kernels.multiply(x, number),
        lambda: kernels.softmax(x),
        lambda: kernels.std(x),
        lambda: kernels.concat([x, out, x]),
        lambda: kernels.unstack(x),
        lambda: pytest.raises(aiodev.LaunchError, axpy[2], "no", row, row, row),
    ]
    for act in acts:
        learn(act, stream, 100)
    watched = [x, out, row, number, stream, stream.timeline, x._buffer, out._buffer, x._buffer.block, x._form, row._form]
    watched += [None, 0, True, states.KNOWN, type(x._buffer), aiodev.Array, aiodev.Completion]

    def counts() -> list[int]:
        for _ in range(3):  # what others have left, too
            gc.collect()
        return [sys.getrefcount(each) for each in watched]

    def run() -> None:
        for act in acts:
            for _ in range(500):
                act()
            stream.synchronize_blocking()

    run()
    before, objects_before = counts(), len(gc.get_objects())
    run()
    changes = [after - count for count, after in zip(before, counts(), strict=True)]
    assert all(abs(change) < 400 for change in changes), str(changes)  # others refer to None, too
    assert len(gc.get_objects()) - objects_before < 400
    assert aiodev.memory.memory_allocated("cpu") < 1 << 20


def test_accounts_are_those_of_python(stream: aiodev.Stream) -> None:
    """Bytes in use, and how often there were allocations and ends of buffers."""
    x = aiodev.ones(100, "f8", "cpu")
    learn(lambda: kernels.add(x, x), stream)
    gc.collect()
    before = aiodev.memory.memory_stats("cpu")
    kept = [kernels.add(x, x) for _ in range(10)]
    during = aiodev.memory.memory_stats("cpu")
    size = kept[0]._buffer.block.size
    assert during["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 10 * size
    stream.synchronize_blocking()
    kept.clear()
    assert aiodev.memory.memory_stats("cpu")["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]


def test_threads_that_call_and_free() -> None:
    """An array that one thread frees while another calls with it: an error, or the result; never anything else."""
    sums = list[float]()
    refused, kept = list[Exception](), list[Exception]()

    def call(arrays: list[aiodev.Array]) -> None:
        with aiodev.Stream("cpu") as own:
            made = []
            for x in arrays:
                try:
                    made.append(kernels.add(x, x))
                except aiodev.ClosedError as error:
                    refused.append(error)
            sums.extend(float(result.numpy_blocking().sum()) for result in made)
            own.synchronize_blocking()

    def free(arrays: list[aiodev.Array]) -> None:
        for x in arrays:
            try:
                x.free()
            except ValueError as error:  # a call has its memory
                kept.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            arrays = [aiodev.ones(8, "f8", "cpu") for _ in range(50)]
            aiodev.synchronize_blocking("cpu")
            threads = [threading.Thread(target=target, args=(arrays,)) for target in (call, free)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(sums) <= {16.0} and len(sums) + len(refused) == 100 * 50


# Objects


class Pair:
    __slots__ = ("first", "second")


class PairView(Object):
    second: int = slot(Pair, "second")


def test_a_slot_is_where_python_has_it() -> None:
    pair, value = Pair(), object()
    pair.second = value
    assert PairView(id(pair)).second == id(value) and PairView(id(pair)).type == id(Pair)
    assert Tuple(id((pair, value))).length == 2
    check_layouts()


def test_another_python_is_told_from_this(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its native code would read what is not there: it is not made."""
    monkeypatch.setattr(objects, "_ProbeView", type("Other", (Object,), {}))
    monkeypatch.setattr(objects._ProbeView, "second", 0, raising=False)
    with pytest.raises(NotImplementedError, match="layout"):
        check_layouts()


def test_offsets_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that has its slots elsewhere has other code."""
    key = native_functions.CALLS.key()
    assert offsets_of(PairView) != offsets_of(Object)
    monkeypatch.setattr(native_functions, "VIEWS", (*states.VIEWS, PairView))
    assert native_functions.CALLS.key() != key
    sources.compiled_by.cache_clear()


def test_code_that_cannot_be_made_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And is not tried again."""

    def fail() -> None:
        raise NotImplementedError("no such Python")

    monkeypatch.setattr(native_functions, "check_layouts", fail)
    code = native_functions._Code()
    with caplog.at_level(logging.WARNING, "aiodev"):
        code.load()
    assert not code.functions and "no such Python" in caplog.text
    assert "built-in" not in repr(DeviceBuffer._release)


def test_what_recurs_is_remembered_though_a_plan_serves_it(stream: aiodev.Stream) -> None:
    """Lengths that a plan serves again and again cost no more than those that were there before it."""

    @aiodev.operation(reads=["x"], writes="out")
    def doubled(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        out = call.out(x.shape, x.dtype)
        call.launch(axpy, x.size, 1.0, x, x, out)
        return out

    whole, operation = aiodev.asarray(np.arange(200.0), device="cpu"), doubled.operation
    for length in range(1, 60):
        doubled(whole[:length])
        stream.synchronize_blocking()
    (family,) = operation.families.values()
    assert family.plans and len(operation.known) < 30
    recurring = whole[:150]

    def own() -> list[Any]:
        return [launch for key, launch in operation.known.items() if recurring._form in key]

    for number in range(3 * RECURS):
        assert (doubled(recurring).numpy_blocking() == 2 * np.arange(150.0)).all()
        assert number >= RECURS or not own()
    assert "built-in" in repr(own()[0]) and own()[0] not in family.plans
