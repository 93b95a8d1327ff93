"""Operations: what their bodies are given, and where what they launch runs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from counted_operations import accumulating, compile_kernels, on_device, subtract

import aiodev
import aiodev.kernels
from aiodev import ClosedError, KernelError, LaunchError, StreamFullError
from aiodev._array import form as form_module
from aiodev._array.array import Allocation
from aiodev._core import callsites

pytestmark = pytest.mark.anyio


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels have code, without which no call is remembered."""

    async def compile() -> None:
        await compile_kernels()
        await refuse.compile(aiodev.zeros(2, "f4", "cpu"))

    asyncio.run(compile())


# Roles


def test_arguments_of_other_kinds_are_refused() -> None:
    """By the operation's name, the parameter's, and what it is."""

    def run(call: aiodev.Call, x: Any, scale: Any, shift: Any = None, /, *, out: Any = None) -> Any:
        return call.out(x.shape, "f4")

    function = aiodev.operation(reads=["x", "scale", "shift"], numbers=["scale"], writes="out", name="blur")(run)
    x = on_device([1, 2])
    assert function(x, 2.0).shape == (2,)
    for args, out, message in [
        ((2.0, x), None, "blur: argument x: expected an array, got float"),
        ((np.ones(2), x), None, r"blur: argument x: expected an array, got a NumPy array in host memory; aiodev\.asarray"),
        ((x, "2"), None, "blur: argument scale: expected an array or a number, got str"),
        ((x, None), None, "blur: argument scale: expected an array or a number, got NoneType"),
        ((x, x, 3), None, "blur: argument shift: expected an array, got int"),
        ((x, x), np.ones(2), "blur: out: expected an aiodev.Array, got ndarray"),
        ((x, x), aiodev.empty(2, "i4", "cpu"), "blur: out: float32 cannot be written to int32"),
    ]:
        with pytest.raises(TypeError, match=message):
            function(*args, out=out)
    with pytest.raises(ValueError, match=r"blur: out: expected the shape \(2,\), got \(3,\)"):
        function(x, x, out=aiodev.empty(3, "f4", "cpu"))
    scaled = aiodev.operation(reads=["x"], numbers=["by"], name="scaled")(lambda call, x, by: x)
    for number in (x, None):
        with pytest.raises(TypeError, match="scaled: argument by: expected a number, got (Array|NoneType)"):
            scaled(x, number)
    changing = aiodev.operation(writes="x")(lambda call, x: x)
    with pytest.raises(TypeError, match="argument x: expected an array, got NoneType"):
        changing(None)
    with pytest.raises(LaunchError, match="can be written to"):
        function(x, x, out=aiodev.broadcast_to(on_device([1]), (2,)))


@pytest.mark.parametrize(
    ("roles", "message"),
    [({"reads": ["y"]}, "y: no such parameter"), ({"writes": "z"}, "z: no such"), ({"reads": "x"}, "a sequence of names")],
)
def test_roles_are_of_parameters(roles: dict[str, Any], message: str) -> None:
    """They are refused where the operation is made."""
    with pytest.raises(TypeError, match=message):

        @aiodev.operation(**roles)
        def run(call: aiodev.Call, x: Any, out: Any = None) -> Any:
            return out


def test_an_operation_has_to_be_told_its_parameters() -> None:
    """Written without parentheses it says what to write."""

    def double(call: aiodev.Call, x: aiodev.Array) -> None: ...

    with pytest.raises(TypeError, match=r"got double itself; write @aiodev.operation\(reads="):
        aiodev.operation(double)  # type: ignore[arg-type]


def test_bodies_name_their_parameters() -> None:
    """What is not named has no role."""
    with pytest.raises(TypeError, match="a parameter for each argument"):

        @aiodev.operation(reads=["x"])
        def run(call: aiodev.Call, x: Any, *more: Any) -> Any:
            return x


def test_the_rule_of_dtypes_is_asked_once() -> None:
    """For each combination of dtypes, and of classes of Python numbers."""
    asked = []

    def rule(*kinds: Any) -> Any:
        asked.append(kinds)
        return "f8", "f8", np.dtype("f4")

    def run(call: aiodev.Call, x: Any, factor: Any, /) -> Any:
        assert call.dtypes[0] == "f8"
        return call.out((3,))

    function = aiodev.operation(reads=["x"], numbers=["factor"], dtypes=rule)(run)
    x = on_device([1, 2])
    for factor in (1, 2, 1.0, np.float32(3), True, False):
        assert function(x, factor).dtype == np.float32
    f4 = np.dtype("f4")
    assert asked == [(f4, int), (f4, float), (f4, f4), (f4, np.dtype(bool))]


def test_in_place_is_told_apart() -> None:
    """Where the array that is written is the one that is read, and only there."""
    found = []

    def run(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        found.append(call.in_place)
        out = call.out(x.shape, x.dtype)
        call.launch(subtract, x.size, x, x, out)
        return out

    function = aiodev.operation(reads=["x"], writes="out", in_place="x")(run)
    x, out = on_device([1, 2]), on_device([0, 0])
    for _ in range(4):
        function(x, out=out)
        function(x, out=x)
    assert found == [False, True, False, True] and x.numpy_blocking().tolist() == [0, 0]


@aiodev.operation(reads=["x"], writes="out")
def documented(call: aiodev.Call, x: aiodev.Array, /, shift: int = 1, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """What it does."""
    return call.out(x.shape, x.dtype)


def test_it_is_a_plain_function() -> None:
    """With the body's name, signature and docstring, but for the call; it is pickled by reference, its operation is not."""
    assert inspect.isfunction(documented) and documented.__name__ == "documented"
    assert inspect.signature(documented).parameters.keys() == {"x", "shift", "out"}
    assert "x: 'aiodev.Array', /, shift: 'int' = 1, *, out" in str(inspect.signature(documented))
    assert documented.__doc__ == "What it does." and documented.__module__ == __name__
    assert "call" not in documented.__annotations__ and documented.__annotations__["shift"] == "int"
    assert pickle.loads(pickle.dumps(documented)) is documented
    assert repr(documented.operation) == "<aiodev.Operation documented of (x), writes out>"
    with pytest.raises(TypeError, match="missing 1 required"):
        documented()
    with pytest.raises(TypeError, match="unexpected keyword"):
        documented(on_device([1]), axis=1)


# Where it runs


def test_it_runs_on_the_current_stream() -> None:
    """Whose end, bound and operations are those of any other launch; buffers know of their use."""
    accumulate, x, out = accumulating(), on_device([1, 1]), on_device([0, 0])
    for _ in range(3):
        accumulate(1.0, x, out)
    aiodev.synchronize_blocking("cpu")
    stream = aiodev.Stream("cpu")
    with stream:
        accumulate(1.0, x, out)
    last = stream.timeline, stream.timeline.submitted
    assert last[1] == 1 and last in out._buffer.uses() and last in x._buffer.uses()
    stream.synchronize_blocking()
    bounded = aiodev.Stream("cpu", maxsize=1)
    with bounded:
        gate = bounded._gate()
        with pytest.raises(StreamFullError):
            accumulate(1.0, x, out)
        gate.open()
        bounded.synchronize_blocking()
        accumulate(1.0, x, out)
    bounded.synchronize_blocking()
    assert out.numpy_blocking().tolist() == [5, 5]


async def test_closed_streams_and_freed_arrays() -> None:
    """They are refused as by any other launch."""
    accumulate, x, out = accumulating(), on_device([1, 1]), on_device([0, 0])
    for _ in range(3):
        accumulate(1.0, x, out)
    stream = aiodev.Stream("cpu")
    await stream.aclose()
    with stream, pytest.raises(ClosedError):
        accumulate(1.0, x, out)
    x.free()
    with pytest.raises(ClosedError):
        accumulate(1.0, x, out)
    assert (await out.numpy()).tolist() == [3, 3]


_CHECK = """
import aiodev
@aiodev.operation(reads=["x"])
def check(call, x):
    call.launch(refuse, x.size, x)
    return x
def deep(x):
    return check(x)
"""


@pytest.mark.parametrize("library", [False, True])
async def test_an_error_names_the_place_that_called(library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation, whether its body runs or is repeated; and where a library called it, the place that called that."""
    if library:
        monkeypatch.setattr(callsites, "_libraries", callsites._libraries | {"shelf"})
    namespace: dict[str, Any] = {"__name__": "shelf", "refuse": refuse}
    exec(compile(_CHECK, "shelf.py", "exec"), namespace)
    x, stream = on_device(np.arange(8.0)), aiodev.current_stream("cpu")
    for name in ("check", "check", "check", "deep", "check"):
        line, _ = sys._getframe().f_lineno, namespace[name](x)
        with pytest.raises(KernelError) as caught:
            await stream.synchronize()
        inside = name == "deep" and not library
        assert caught.value.submitted_at == ("shelf.py:8" if inside else f"{__file__}:{line}")
    assert len(namespace["check"].operation.known) == 1


def test_forms_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their table forgets when it is full; old arrays keep theirs, and both compute."""
    monkeypatch.setattr(form_module, "MOST_FORMS", 3)
    monkeypatch.setattr(form_module, "_forms", table := {})
    monkeypatch.setattr(aiodev.Array, "__getitem__", aiodev.Array._full_getitem)  # native code has the table's size in it
    monkeypatch.setattr(Allocation, "__call__", Allocation._full_call)
    accumulate, old, out = accumulating(), on_device([1, 2]), on_device([0, 0])
    for size in range(3, 12):
        accumulate(1.0, old, out)
        accumulate(1.0, on_device(np.ones(size)), aiodev.zeros(size, "f4", "cpu"))
        assert len(table) <= 3
    again = on_device([1, 2])
    accumulate(1.0, again, out)
    assert again._form is not old._form
    assert out.numpy_blocking().tolist() == [10, 20]


def test_the_oldest_calls_are_forgotten() -> None:
    """Where there is no room; a program of as many kinds as there is room for finds out each of them once."""
    accumulate = accumulating(most=32)
    arrays = [(on_device(np.ones(size)), aiodev.zeros(size, "f4", "cpu")) for size in range(2, 34)]
    for _ in range(3):  # met, remembered, repeated
        for x, out in arrays:
            accumulate(1.0, x, out, tag=x.size)
    known = accumulate.function.operation.known
    before = list(known)
    assert len(before) == 32
    for _ in range(2):
        accumulate(1.0, on_device(np.ones(50)), aiodev.zeros(50, "f4", "cpu"), tag=50)
    assert list(known)[:-1] == before[2:], "a sixteenth is forgotten at once"
    assert all(out.numpy_blocking().tolist() == [3] * out.size for _, out in arrays)


def test_a_remembered_call_is_few_objects() -> None:
    """For the collector, which walks thousands of them at once: a function and its defaults, beside the key of the table."""

    def tracked(launch: Any) -> set[int]:
        """Whatever the collector walks that can be reached from a function in three steps."""
        reached = [launch]
        for _ in range(3):
            reached += gc.get_referents(*reached)
        return {id(one) for one in reached if gc.is_tracked(one)}

    accumulate = accumulating()
    for size in (100, 200) * 2:
        accumulate(1.0, on_device(np.ones(size)), aiodev.zeros(size, "f4", "cpu"))
    one, other = accumulate.function.operation.known.values()
    assert len(tracked(one) - tracked(other)) <= 4


def test_several_threads() -> None:
    """Each with its own arrays and stream, all with one operation whose tables are too small for them."""
    accumulate, outs = accumulating(most=3).function, [aiodev.zeros(size, "f4", "cpu") for size in range(2, 8)]
    aiodev.synchronize_blocking("cpu")  # what fills them is on another stream

    def work(out: aiodev.Array) -> None:
        with aiodev.Stream("cpu") as stream:
            x = on_device(np.ones(out.shape))
            for _ in range(300):
                accumulate(1.0, x, out)
            stream.synchronize_blocking()

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.numpy_blocking().tolist() == [300] * out.size for out in outs)


def test_a_forked_child_starts_with_nothing() -> None:
    """What the parent has compiled is not where the child's backend has it."""
    program = """
import os, sys
import aiodev, aiodev.kernels as kernels
x, out = aiodev.ones(3, "f4", "cpu"), aiodev.zeros(3, "f4", "cpu")
for _ in range(3):
    kernels.add(x, x, out=out).numpy_blocking()
child = os.fork()
if child == 0:
    y, z = aiodev.ones(3, "f4", "cpu"), aiodev.zeros(3, "f4", "cpu")
    found = [kernels.add(y, y, out=z).numpy_blocking().tolist() for _ in range(4)]
    os._exit(0 if found == [[2, 2, 2]] * 4 else 1)
assert os.waitpid(child, 0)[1] == 0
assert kernels.add(out, x, out=out).numpy_blocking().tolist() == [3, 3, 3]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
