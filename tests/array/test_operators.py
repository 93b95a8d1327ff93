"""Operators compute what the functions do, and what NumPy's do; NumPy's functions refuse arrays; copies, pickles, iteration."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from selection import some

import aiodev
from aiodev import kernels
from aiodev.testing import Latch, SimulatedBackend

ARITHMETIC = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
]  # fmt: skip
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.ipow, operator.iand, operator.ior,
    operator.ixor, operator.ilshift, operator.irshift,
]  # fmt: skip
UNARY = [operator.neg, operator.pos, operator.invert, abs]
NUMBERS = (3, 2.5, True, np.float64(2), np.float32(2), np.int8(1))


def named(symbol: Callable[..., Any]) -> str:
    return symbol.__name__


def same(found: aiodev.Array, expected: Any) -> bool:
    """The same values, of the same type."""
    return found.dtype == expected.dtype and np.array_equal(found.numpy_blocking(), expected)


@pytest.fixture
def x() -> aiodev.Array:
    return aiodev.arange(3, device="cpu")


@pytest.mark.parametrize("symbol", [*ARITHMETIC, *COMPARISONS], ids=named)
def test_operators_of_arrays_and_numbers(symbol: Callable[[Any, Any], Any]) -> None:
    """On either side; types are promoted as NumPy's, Python's numbers are weak, and shapes broadcast."""
    # NumPy's own operator squares where a power is 2, which up to 2.0 gave the array's type.
    numpys = np.power if symbol is operator.pow else symbol
    for dtype in some(("f4", "i4", "f8")):
        host, other = np.arange(1, 4).astype(dtype), np.arange(2, 8).reshape(2, 3)
        x, y = aiodev.asarray(host, device="cpu"), aiodev.asarray(other, device="cpu")
        assert same(symbol(x, y), numpys(host, other)) and same(symbol(y, x), numpys(other, host))
        for number in some(NUMBERS, 4):
            assert same(symbol(x, number), numpys(host, number))
            assert same(symbol(number, x), numpys(number, host))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, which multiplies infinities
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4", "u1", "b1"])
def test_squares(dtype: str) -> None:
    """To the bit NumPy's, which squares them as well; of integers powers, whose type follows from both."""
    host = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 3.1] if dtype[0] in "fc" else [0, 1, 3, 200]).astype(dtype)
    x = aiodev.asarray(host, device="cpu")
    for power in (2, 2.0, np.int64(2), np.float32(2)):
        found, expected = x**power, np.power(host, power)
        assert found.dtype == expected.dtype
        assert np.array_equal(found.numpy_blocking(), expected, equal_nan=True)
    if dtype[0] in "fc":
        assert (x**2).numpy_blocking().tobytes() == np.square(host).tobytes()
        before = x
        x **= 2
        assert x is before and x.numpy_blocking().tobytes() == np.square(host).tobytes()


@pytest.mark.parametrize("symbol", BITS, ids=named)
def test_operators_of_bits(x: aiodev.Array, symbol: Callable[[Any, Any], Any]) -> None:
    """Of integers, with arrays and numbers on either side."""
    host = np.arange(3)
    assert same(symbol(x, x[::-1]), symbol(host, host[::-1]))
    assert same(symbol(x, 2), symbol(host, 2)) and same(symbol(2, x), symbol(2, host))
    assert same(symbol(x, np.int64(2)), symbol(host, np.int64(2))) and same(symbol(np.int64(2), x), symbol(2, host))


@pytest.mark.parametrize("symbol", UNARY, ids=named)
def test_operators_of_one(symbol: Callable[[Any], Any]) -> None:
    """As NumPy's."""
    host = np.arange(-2, 3)
    assert same(symbol(aiodev.asarray(host, device="cpu")), symbol(host))


def test_products_of_matrices(x: aiodev.Array) -> None:
    """``@`` on either side, and in place."""
    host = np.arange(9.0).reshape(3, 3)
    m = aiodev.asarray(host, device="cpu")
    assert same(m @ m, host @ host) and same(m @ kernels.astype(x, "f8"), host @ np.arange(3.0))
    with pytest.raises(TypeError, match="matmul"):
        np.ones((3, 3)) @ m
    view = m
    m @= m
    assert m is view and same(m, host @ host)
    host.flags.writeable = False
    m = aiodev.asarray(host, device="cpu", copy=False)
    with pytest.raises(ValueError, match="aiodev.Array .* is read-only"):
        m @= view


def test_quotient_and_remainder(x: aiodev.Array) -> None:
    """``divmod`` gives both."""
    host = np.arange(3)
    expected = *divmod(host, 2), *divmod(7, host + 1)
    assert all(map(same, divmod(x, 2) + divmod(7, x + 1), expected))


@pytest.mark.parametrize("symbol", IN_PLACE, ids=named)
def test_operators_in_place(symbol: Callable[[Any, Any], Any]) -> None:
    """They write to the array's memory; another view of that is read before."""
    host = np.arange(1, 7).reshape(2, 3)
    for other in (lambda a: 2, lambda a: a, lambda a: a[::-1], lambda a: a[0]):
        x, expected = aiodev.asarray(host, device="cpu"), host.copy()
        view = x[:]
        found = symbol(x, other(x))
        assert found is x
        symbol(expected, other(expected).copy() if isinstance(other(expected), np.ndarray) else other(expected))
        assert np.array_equal(view.numpy_blocking(), expected)


def test_in_place_keeps_shape_and_type(x: aiodev.Array) -> None:
    """What does not fit is refused, and the array stays as it was."""
    with pytest.raises(TypeError, match="float64 cannot be written to int64"):
        x += 1.5
    with pytest.raises(ValueError, match="shape"):
        x += aiodev.ones((2, 3), "int64", "cpu")
    with pytest.raises(TypeError, match="float64"):
        x /= x[::-1]
    host = np.ones(3)
    with pytest.raises(TypeError):
        host += x
    assert same(x, np.arange(3)) and host.tolist() == [1, 1, 1]


@pytest.mark.parametrize("symbol", [*ARITHMETIC, *BITS, *COMPARISONS, operator.matmul], ids=named)
def test_what_is_on_the_host_is_refused_by_name(x: aiodev.Array, symbol: Callable[[Any, Any], Any]) -> None:
    """On either side: who wants it on the device says so."""
    for other in (np.ones(3), [1, 2, 3], (1, 2, 3)):
        for left, right in ((x, other), (other, x)):
            with pytest.raises(TypeError, match=r"expected an array|unsupported"):
                symbol(left, right)


def test_what_is_no_number_is_left_to_the_other(x: aiodev.Array) -> None:
    """Python asks the other operand; what nobody knows is a TypeError, and is not equal."""

    class Other:
        def __radd__(self, other: Any) -> str:
            return "mine"

        def __eq__(self, other: object) -> str:  # type: ignore[override]
            return "equal to mine"

    assert x + Other() == "mine" and (x == Other()) == "equal to mine"
    for other in (None, "x", object()):
        assert (x == other) is False and (x != other) is True
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = x + other
        with pytest.raises(TypeError, match="not supported"):
            _ = x < other


@pytest.mark.parametrize("conversion", [bool, int, float, complex])
def test_conversions_to_one_value(x: aiodev.Array, conversion: Callable[[Any], Any]) -> None:
    """They wait for the work, and are of arrays of one element."""
    with aiodev.Stream("cpu"):
        y = x * 2 + 1
        assert conversion(y[1]) == conversion(3) and conversion(y[2:]) == conversion(5)
        assert not conversion(x[0])
        for wrong in (x, x[:0]):
            with pytest.raises((TypeError, ValueError), match="element"):
                conversion(wrong)


def test_an_array_as_an_index(x: aiodev.Array) -> None:
    """One integer of no dimensions is one."""
    assert operator.index(x[2]) == 2 and [4, 5, 6][x[1]] == 5 and list(range(x[2])) == [0, 1]
    for wrong in (x, x[1:2], x[0] * 1.0, x[0] == 0):
        with pytest.raises(TypeError):
            operator.index(wrong)


async def test_values_that_hold_the_loop_are_told(x: aiodev.Array) -> None:
    """What has to wait is; what is there is not."""
    await x.numpy()
    with aiodev.Stream("cpu") as stream:
        aiodev.set_sync_debug_mode("error")
        assert float(x[1]) == 1.0 and bool(x[2])
        with Latch(stream):
            y = x + 1
            for attempt in (lambda: bool(y[0]), lambda: float(y[0]), lambda: 1 in y, lambda: y[y > 1]):
                with pytest.raises(aiodev.SyncError) as caught:
                    attempt()
                assert caught.value.instead.startswith("await ")
        assert await y[2].item() == 3


def test_whether_an_array_contains_a_value(x: aiodev.Array) -> None:
    """An element that equals it."""
    assert 1 in x and 3 not in x and x[1] in x


def test_dictionaries_find_arrays_by_identity(x: aiodev.Array) -> None:
    """And so do sets, and lists, which ask for identity first."""
    y = aiodev.arange(3, device="cpu")
    assert {x: 1, y: 2}[y] == 2 and len({x, y, x}) == 2
    assert x in [x, y] and hash(x) == hash(x) != hash(y)


def test_a_freed_array_refuses_as_well(x: aiodev.Array) -> None:
    """It does not compare to 3, either."""
    x.free()
    with pytest.raises(aiodev.ClosedError, match="freed"):
        _ = x == 3
    assert {x: 1}[x] == 1


def test_operators_submit_and_wait_for_nothing() -> None:
    """Behind a stream that is held they queue up."""
    with aiodev.Stream("cpu") as stream:
        x = aiodev.ones(3, device="cpu")
        with Latch(stream):
            y = np.float64(2) * x + x**2 - x / 4
            y += 1
            assert not stream.query()
        assert y.numpy_blocking().tolist() == [3.75] * 3


def test_an_error_names_the_users_line(x: aiodev.Array) -> None:
    """Not the operator's."""

    @aiodev.kernel
    def fail(i, x):
        raise ValueError("bad row")

    with aiodev.Stream("cpu"):
        fail[1](x)
        with pytest.raises(aiodev.DependencyError) as caught:
            (x + 1).numpy_blocking()
        assert isinstance(caught.value.__cause__, aiodev.KernelError)


@pytest.mark.parametrize("conversion", [round, math.trunc, math.floor, math.ceil])
def test_arrays_are_not_rounded_by_pythons_functions(x: aiodev.Array, conversion: Callable[[Any], Any]) -> None:
    """Which give integers; NumPy's arrays have none of them, either."""
    with pytest.raises(TypeError):
        conversion(x)


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
            for attempt in (lambda: np.sqrt(x), lambda: x + np.ones(3), lambda: np.ones(3) * x, lambda: np.sum(x)):
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


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, aiodev.Array.copy])
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


def test_pickles_from_another_device(register: Callable[[type[Any]], str]) -> None:
    """An array comes back to the device of the same name; where there is none, to the current one."""
    name = register(SimulatedBackend)
    x = aiodev.arange(5, device=name)
    data = pickle.dumps(x)
    assert pickle.loads(data).device is x.device
    program = (
        "import sys, pickle, aiodev\n"
        "x = pickle.loads(sys.stdin.buffer.read())\n"
        "print(x.device, x.numpy_blocking().tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, timeout=120)
    assert done.stdout.decode().strip().endswith("[0, 1, 2, 3, 4]") and name.encode() not in done.stdout, done.stderr


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


def test_an_array_of_no_dimensions_is_formatted_as_a_number() -> None:
    """Others have no format but that of their text."""
    x = aiodev.asarray([1.5, 2.25], device="cpu")
    assert f"{x.sum():.3f} {aiodev.asarray(7, device='cpu'):04d}" == "3.750 0007"
    assert f"{x}" == str(x)
    with pytest.raises(TypeError, match="unsupported format string"):
        format(x, ".2f")
