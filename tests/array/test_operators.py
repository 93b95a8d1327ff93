"""Operators and NumPy's functions on arrays refuse by name; copies, pickles and iteration do what they say."""

from __future__ import annotations

import copy
import gc
import math
import operator
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.testing import Latch, SimulatedBackend

BINARY = {
    operator.eq: "equal",
    operator.ne: "not_equal",
    operator.lt: "less",
    operator.le: "less_equal",
    operator.gt: "greater",
    operator.ge: "greater_equal",
    operator.add: "add",
    operator.sub: "subtract",
    operator.mul: "multiply",
    operator.matmul: "matmul",
    operator.truediv: "divide",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.pow: "pow",
    operator.lshift: "bitwise_left_shift",
    operator.rshift: "bitwise_right_shift",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    divmod: "floor_divide",
}
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
#: What a comparison with the array on the right asks of the array.
MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
IN_PLACE = {
    operator.iadd: "add",
    operator.isub: "subtract",
    operator.imul: "multiply",
    operator.imatmul: "matmul",
    operator.itruediv: "divide",
    operator.ifloordiv: "floor_divide",
    operator.imod: "remainder",
    operator.ipow: "pow",
    operator.ilshift: "bitwise_left_shift",
    operator.irshift: "bitwise_right_shift",
    operator.iand: "bitwise_and",
    operator.ior: "bitwise_or",
    operator.ixor: "bitwise_xor",
}
UNARY = {
    operator.neg: "negative",
    operator.pos: "positive",
    operator.invert: "bitwise_invert",
    abs: "abs",
    round: "round",
    math.trunc: "trunc",
    math.floor: "floor",
    math.ceil: "ceil",
}
#: What stands beside an array: Python's numbers, NumPy's, whose operators come first, and what is no number at all.
BESIDE = (3, 2.5, True, 1j, np.float64(2), np.int8(1), np.ones(3), None, "x", [1, 2, 3])


@pytest.fixture
def x() -> aiodev.Array:
    return aiodev.arange(3, device="cpu")


@pytest.mark.parametrize("symbol", BINARY, ids=lambda symbol: symbol.__name__)
def test_operators_of_two_name_their_function(x: aiodev.Array, symbol: Callable[[Any, Any], Any]) -> None:
    """Whatever stands beside the array, on either side, NumPy's numbers and arrays too; nothing is computed."""
    assert callable(getattr(kernels, BINARY[symbol]))
    for other in (*BESIDE, x[:], x[:1]):
        with pytest.raises(TypeError, match=rf"kernels\.{BINARY[symbol]}\(x, y\).*await x\.numpy\(\)"):
            symbol(x, other)
    for other in BESIDE:
        if symbol is operator.mod and isinstance(other, str):
            continue  # which formats the array
        name = MIRRORED.get(BINARY[symbol], BINARY[symbol])
        order = r"\(x, y\)" if symbol in COMPARISONS else r"\(y, x\)"
        with pytest.raises(TypeError, match=rf"kernels\.{name}{order}"):
            symbol(other, x)


@pytest.mark.parametrize("symbol", IN_PLACE, ids=lambda symbol: symbol.__name__)
def test_operators_in_place(x: aiodev.Array, symbol: Callable[[Any, Any], Any]) -> None:
    """They name the function, and how it writes to the array."""
    with pytest.raises(TypeError, match=rf"kernels\.{IN_PLACE[symbol]}\(x, y"):
        symbol(x, 2)
    host = np.ones(3)
    with pytest.raises(TypeError):
        symbol(host, x)
    assert host.tolist() == [1, 1, 1]


@pytest.mark.parametrize("symbol", UNARY, ids=lambda symbol: symbol.__name__)
def test_operators_of_one(x: aiodev.Array, symbol: Callable[[Any], Any]) -> None:
    """They name their function, too."""
    assert callable(getattr(kernels, UNARY[symbol]))
    with pytest.raises(TypeError, match=rf"kernels\.{UNARY[symbol]}\(x\)"):
        symbol(x)


@pytest.mark.parametrize("conversion", [bool, int, float, complex, operator.index, range, [1, 2].__getitem__])
def test_conversions_to_one_value(x: aiodev.Array, conversion: Callable[[Any], Any]) -> None:
    """They say what brings the value here."""
    with pytest.raises(TypeError, match=r"await x\.numpy\(\)"):
        conversion(x[0])


def test_whether_an_array_contains_a_value(x: aiodev.Array) -> None:
    """``in`` would compare identities of views."""
    with pytest.raises(TypeError, match=r"kernels\.any\(aiodev\.kernels\.equal\(x, y\)\)"):
        _ = 1 in x


def test_identity_is_what_containers_ask_for(x: aiodev.Array) -> None:
    """Arrays are keys of dictionaries and members of sets, weak ones too, and are found in lists by identity."""
    y = aiodev.arange(3, device="cpu")
    assert {x: 1, y: 2}[y] == 2 and len({x, y, x}) == 2
    assert x in [x, y] and hash(x) == hash(x) != hash(y)
    weak = weakref.WeakSet([x, y])
    values = weakref.WeakKeyDictionary({x: "x", y: "y"})
    assert x in weak and values[y] == "y"
    del y
    gc.collect()
    assert len(weak) == len(values) == 1
    assert (x, 1) == (x, 1)
    with pytest.raises(TypeError, match="not_equal"):
        _ = x != x


def test_a_freed_array_refuses_as_well(x: aiodev.Array) -> None:
    """It is not equal to 3, either."""
    x.free()
    with pytest.raises(TypeError, match="equal"):
        _ = x == 3
    assert {x: 1}[x] == 1


@pytest.mark.parametrize(
    "function",
    [np.sum, np.mean, np.concatenate, np.stack, np.reshape, np.sort, np.allclose, np.array_equal, np.dot, np.linalg.norm],
)
def test_numpys_functions_refuse(x: aiodev.Array, function: Callable[..., Any]) -> None:
    """They would wait for the device, on the loop; the message says what to call instead, and how to have the values."""
    arguments = ([x, x],) if function in (np.concatenate, np.stack) else (x, x)
    with pytest.raises(TypeError, match=rf"{function.__name__} would wait .* aiodev\.kernels .*await x\.numpy\(\)"):
        function(*arguments)


@pytest.mark.parametrize("attempt", [lambda x: np.add(x, 1), lambda x: np.add(1.0, 1.0, out=x), lambda x: np.add.reduce(x)])
def test_numpys_ufuncs_refuse(x: aiodev.Array, attempt: Callable[[Any], Any]) -> None:
    """An array is no operand of theirs, and no output."""
    with pytest.raises(TypeError, match="does not support ufuncs"):
        attempt(x)


def test_what_refuses_waits_for_nothing() -> None:
    """Nor does what NumPy asks of the shape alone: a stream that is held stays held."""
    with aiodev.Stream("cpu") as stream:
        x = aiodev.zeros((2, 3), device="cpu")
        with Latch(stream):
            kernels.add(x, 1, out=x)
            for attempt in (lambda: x * np.float64(2), lambda: x + np.ones(3), lambda: np.ones(3) * x, lambda: np.sum(x)):
                with pytest.raises(TypeError):
                    attempt()
            assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((2, 3), 2, 6, 3)
            assert np.isrealobj(x) and not np.iscomplexobj(x)
            assert np.atleast_1d(x) is x and np.atleast_1d(x[0, 0]).shape == (1,)
            assert [found.shape for found in np.atleast_1d(x, 3)] == [(2, 3), (1,)]
            assert len(list(x)) == 2
            copy.copy(x), copy.deepcopy(x)
            assert not stream.query()
        assert np.asarray(x).tolist() == np.array(x).tolist() == [[1, 1, 1]] * 2


# Iteration


def test_iteration_gives_views(x: aiodev.Array) -> None:
    """As many as the length says, which share the memory; backwards, too."""
    rows = aiodev.arange(6, device="cpu").reshape(3, 2)
    found = list(rows)
    assert [row.shape for row in found] == [(2,)] * 3
    found[1].copy_from(np.array([7, 8]))
    assert rows.numpy_blocking().tolist() == [[0, 1], [7, 8], [4, 5]]
    assert [row.numpy_blocking().tolist() for row in reversed(rows)] == [[4, 5], [7, 8], [0, 1]]
    first, second, third = x
    assert [int(v.numpy_blocking()) for v in (first, second, third)] == [0, 1, 2]
    assert list(aiodev.empty((0, 3), device="cpu")) == []


def test_iteration_needs_a_dimension(x: aiodev.Array) -> None:
    """It is refused at once, not by an empty loop."""
    for attempt in (iter, list, tuple):
        with pytest.raises(TypeError, match="no dimensions"):
            attempt(x[0])


# Copies


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[0, 0], lambda x: x[:0]])
def test_copies_are_arrays_of_their_own(copied: Callable[[Any], Any], view: Callable[[Any], Any]) -> None:
    """Of the same elements, made in stream order: what is written to the array afterwards is not in them."""
    with aiodev.Stream("cpu") as stream:
        x = aiodev.arange(12, device="cpu").reshape(3, 4)
        expected = view(np.arange(12).reshape(3, 4) + 1)
        with Latch(stream):
            kernels.add(x, 1, out=x)
            made = copied(view(x))
            kernels.add(x, 1, out=x)
        assert made.device is x.device and made.dtype == x.dtype and made.writable
        assert np.array_equal(made.numpy_blocking(), expected)


def test_a_copy_of_what_repeats_elements_can_be_written_to(x: aiodev.Array) -> None:
    """Its elements are its own."""
    made = copy.copy(aiodev.broadcast_to(x, (2, 3)))
    made[0].copy_from(np.zeros(3, "i8"))
    assert made.numpy_blocking().tolist() == [[0, 0, 0], [0, 1, 2]]


def test_deep_copies_of_containers(x: aiodev.Array) -> None:
    """An array that occurs twice is copied once."""
    found = copy.deepcopy({"a": x, "b": [x, x[1:]]})
    assert found["a"] is found["b"][0] is not x
    assert found["b"][1].numpy_blocking().tolist() == [1, 2]


# Pickles


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_pickles_hold_what_the_array_does(dtype: str, protocol: int) -> None:
    """In every protocol, of views and of arrays without elements, too."""
    host = np.arange(12).reshape(3, 4).astype(dtype)
    x = aiodev.asarray(host, device="cpu")
    for view, expected in ((x, host), (x.T, host.T), (x[1:, ::2], host[1:, ::2]), (x[0, 0], host[0, 0]), (x[:0], host[:0])):
        found = pickle.loads(pickle.dumps(view, protocol))
        assert found.device is x.device and found.dtype == x.dtype and found.writable
        assert np.array_equal(found.numpy_blocking(), expected)


def test_pickles_have_buffers_out_of_band() -> None:
    """Of protocol 5. They are read by the time that the array is there: whoever lends them may write to them again."""
    x = aiodev.arange(10_000, device="cpu")
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1000 and len(buffers) == 1
    lent = bytearray(buffers[0].raw())
    with aiodev.Stream("cpu") as stream, Latch(stream):
        found = pickle.loads(data, buffers=[lent])
        lent[:] = bytes(len(lent))
    assert np.array_equal(found.numpy_blocking(), np.arange(10_000))


def test_pickles_wait_for_the_work(x: aiodev.Array) -> None:
    """And raise what failed."""

    @aiodev.kernel
    def fail(i, x):
        x[i] = 1
        raise ValueError("bad row")

    fail[1](x)
    with pytest.raises(aiodev.KernelError):
        pickle.dumps(x)


def test_pickles_from_another_device() -> None:
    """An array comes back to the device of the same name; where there is none, to the current one."""
    aiodev.register_backend("sim_operators", SimulatedBackend)
    x = aiodev.arange(5, device="sim_operators")
    data = pickle.dumps(x)
    assert pickle.loads(data).device is x.device
    program = (
        "import sys, pickle, aiodev\n"
        "x = pickle.loads(sys.stdin.buffer.read())\n"
        "print(x.device, x.numpy_blocking().tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, timeout=120)
    assert done.stdout.decode().strip().endswith("[0, 1, 2, 3, 4]") and b"sim_operators" not in done.stdout, done.stderr


# Other libraries


def test_matplotlib_plots_an_array(x: aiodev.Array) -> None:
    """It copies what it is given, and converts it when it draws."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    (line,) = axes.plot(x, kernels.multiply(x, 2))
    assert line.get_xydata().tolist() == [[0, 0], [1, 2], [2, 4]]
    axes.plot(x)
    axes.scatter(x, x)
    axes.imshow(aiodev.ones((3, 3), device="cpu"))
    assert axes.hist(x)[0].sum() == 3


def test_pandas_makes_columns_of_arrays(x: aiodev.Array) -> None:
    """Not one object."""
    pandas = pytest.importorskip("pandas")
    assert pandas.Series(x).tolist() == [0, 1, 2]
    assert pandas.DataFrame({"a": x})["a"].dtype == np.int64
