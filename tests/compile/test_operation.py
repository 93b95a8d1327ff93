"""Operations: what their calls are told apart by, and what a call that is repeated does."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import aiodev
import aiodev.kernels
from aiodev import ClosedError, KernelError, LaunchError, StreamFullError
from aiodev._array import form as form_module
from aiodev._core import callsites

pytestmark = pytest.mark.anyio


@aiodev.kernel
def add_scaled(i: int, factor: float, x: Any, out: Any) -> None:
    out[i] += factor * x[i]


@aiodev.kernel
def subtract(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] - y[i]


@aiodev.kernel
def look_up(i: int, table: Any, shift: int, x: Any, out: Any) -> None:
    out[i] = table[x[i] + shift]


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


class Counted:
    """An operation, and how often its body has run."""

    def __init__(self, body: Callable[..., Any], **roles: Any) -> None:
        def counted(*args: Any, **named: Any) -> Any:
            self.ran += 1
            return body(*args, **named)

        self.ran = self.called = 0
        counted.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
        self.function = aiodev.operation(**roles)(counted)

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.called += 1
        return self.function(*args, **named)

    @property
    def repeated(self) -> int:
        return self.called - self.ran


def accumulating(most: int = 1024) -> Counted:
    """``out += factor * x`` of arrays of any shape."""

    def accumulate(call: aiodev.Call, factor: Any, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, factor.astype(x.dtype), x.reshape(-1), out.reshape(-1))
        return out

    return Counted(accumulate, numbers=["factor"], reads=["x"], writes="out", most=most)


def on_device(host: Any, dtype: str = "f4") -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(np.asarray(host, dtype), device="cpu")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What is not compiled yet is launched, but not remembered."""

    async def compile() -> None:
        x, wide, gaps = aiodev.zeros(2, "f4", "cpu"), aiodev.zeros(2, "f8", "cpu"), on_device([1, 2, 3])[::2]
        for array in (x, wide, gaps):
            await add_scaled.compile(array.dtype.type(2), array, array)
        await look_up.compile(wide, 1, on_device([0, 1], "i8"), wide)
        await subtract.compile(x, x, x)
        await refuse.compile(x)

    asyncio.run(compile())


# Any length


def scaling() -> Counted:
    """``out += factor * x``, by one launch over all elements where there are no gaps."""

    def scale(call: aiodev.Call, factor: Any, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, factor.astype(x.dtype), x.reshape(x.size), out.reshape(x.size))
        return out

    return Counted(scale, numbers=["factor"], reads=["x"], writes="out", elementwise=True)


def test_a_length_that_was_never_met_needs_no_body() -> None:
    """Of an elementwise operation, from the third length on; shapes of any number of dimensions are alike."""
    scale = scaling()
    for count, shape in enumerate([(2,), (3,), (4, 5), (6,), (2, 3, 4), (1, 7), (9,)]):
        x, out = on_device(np.arange(np.prod(shape)).reshape(shape)), aiodev.ones(shape, "f4", "cpu")
        scale(2.0 + count, x, out)
        expected = 1 + (2 + count) * np.arange(np.prod(shape)).reshape(shape)
        assert np.array_equal(out.numpy_blocking(), expected)
        assert scale.ran == min(count + 1, 2)
    operation = scale.function.operation
    assert len(operation._of_any_length) == 1 and len(operation.known) == 6
    operation.forget()
    assert not operation._of_any_length


@pytest.mark.parametrize("form", ["gaps", "one", "none", "shapes", "type", "number"])
def test_other_forms_are_not_taken_for_another_length(form: str) -> None:
    """Gaps, one element or none, shapes that differ, another type, another class of number: the body decides."""
    scale = scaling()
    for size in (2, 3, 4):
        scale(2.0, on_device(np.ones(size)), on_device(np.ones(size)))
    assert scale.ran == 2
    x, factor = on_device(np.ones(10)), 3.0
    match form:
        case "gaps":
            x, out = x[::2], on_device(np.ones(5))
        case "one":
            x, out = x[:1], on_device(np.ones(1))
        case "none":
            x, out = x[:0], on_device(np.ones(0))
        case "shapes":
            out = on_device(np.ones((2, 5)))
        case "type":
            x, out = on_device(np.ones(5), "f8"), on_device(np.ones(5), "f8")
        case _:
            factor, out = np.float32(3), on_device(np.ones(10))
    scale(factor, x, out)
    assert scale.ran == 3
    assert np.array_equal(out.numpy_blocking(), np.full(out.shape, 4.0))


def test_what_is_said_to_be_elementwise_and_is_not_is_remembered_by_its_layout() -> None:
    """A launch over anything but whole operands serves no other length."""

    def shift(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(subtract, x.size - 1, x[1:], x[:-1], out[1:])
        return out

    shifted = Counted(shift, reads=["x"], writes="out", elementwise=True)
    for size in (3, 4, 5, 5, 5):
        out = aiodev.zeros(size, "f4", "cpu")
        shifted(on_device(np.arange(size)), out)
        assert out.numpy_blocking().tolist() == [0, *[1] * (size - 1)]
    assert not shifted.function.operation._of_any_length


def test_elementwise_results_are_made_for_each_length() -> None:
    """Of the shape of the operands, whatever it is; the library's are so."""
    for name in ("add", "less", "divide"):
        function = getattr(aiodev.kernels, name)
        for shape in [(2,), (3,), (2, 2), (5,), (3, 1, 2)]:
            host = np.arange(1.0, 1 + np.prod(shape), dtype="f4").reshape(shape)
            found = function(on_device(host), on_device(host[::-1])).numpy_blocking()
            assert np.array_equal(found, getattr(np, name)(host, host[::-1])) and found.shape == shape


def test_sequences_are_not_elementwise() -> None:
    """The decorator says so."""
    with pytest.raises(TypeError, match="no sequences"):
        aiodev.operation(reads=["*xs"], elementwise=True)(lambda call, xs: None)


async def test_a_copy_without_gaps_is_remembered_with_the_rest() -> None:
    """``Call.packed`` gives the array itself where it has none, else memory of the call."""

    def pack(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, np.float32(1), call.packed(x).reshape(x.size), out)
        return out

    packing = Counted(pack, reads=["x"], writes="out")
    host = np.arange(12.0, dtype="f4").reshape(3, 4)
    await add_scaled.compile(np.float32(1), on_device([1.0]), on_device([1.0]))
    for layout in (lambda x: x, lambda x: x[:, 1:3], lambda x: x.T):
        for _ in range(3):
            x, out = layout(on_device(host)), aiodev.zeros(layout(host).size, "f4", "cpu")
            packing(x, out)
            assert np.array_equal(await out.numpy(), layout(host).ravel())
            await aiodev.synchronize("cpu")
        ran = packing.ran
        packing(x, out)
        assert packing.ran == ran


# What is remembered


def test_it_is_remembered_from_the_second_time_on() -> None:
    """Every call has its effect; what is called once is not kept."""
    accumulate, x, out = accumulating(), on_device([1, 2, 3]), on_device([0, 0, 0])
    for call in range(1, 6):
        assert accumulate(2.0, x, out) is out
        assert accumulate.repeated == max(0, call - 2)
    operation = accumulate.function.operation
    assert len(operation.known) == 1 and not operation._met
    assert out.numpy_blocking().tolist() == [10, 20, 30]
    operation.forget()
    accumulate(2.0, x, out)
    assert accumulate.repeated == 3


def test_other_arrays_and_numbers_of_the_same_layout() -> None:
    """Addresses and the values of numbers are those of each call; operands may be one array."""
    accumulate = accumulating()
    for round in range(4):
        x, out = on_device(np.arange(6.0).reshape(2, 3) + round), on_device(np.ones((2, 3)))
        accumulate(0.5 + round, x, out)
        expected = np.ones((2, 3), "f4") + np.float32(0.5 + round) * (np.arange(6, dtype="f4").reshape(2, 3) + round)
        assert np.array_equal(out.numpy_blocking(), expected)
    assert accumulate.repeated == 2
    accumulate(1.0, x, x)
    assert accumulate.repeated == 3
    assert np.array_equal(x.numpy_blocking(), 2 * (np.arange(6, dtype="f4").reshape(2, 3) + 3))


@given(st.lists(st.sampled_from(["line", "longer", "matrix", "wide", "gaps", "transposed", "column"]), max_size=12))
@settings(deadline=None, max_examples=40)
def test_no_call_takes_anothers_plan(kinds: list[str]) -> None:
    """Calls of different shapes, dtypes and strides in any order, with tables so small that they are emptied in between."""
    accumulate = accumulating(most=2)
    for kind in kinds:
        host = np.arange(12, dtype="f8" if kind == "wide" else "f4")
        views: dict[str, Any] = {"line": lambda a: a[:6], "matrix": lambda a: a.reshape(3, 4), "gaps": lambda a: a[::2]}
        views |= {"transposed": lambda a: a.reshape(3, 4).T, "column": lambda a: a.reshape(3, 4)[:, 1]}
        view = views.get(kind, lambda a: a)
        x, whole = aiodev.asarray(host, device="cpu"), aiodev.zeros(12, host.dtype, "cpu")
        expected = np.zeros(12, host.dtype)
        view(expected)[...] += 3 * view(host)
        out = view(whole)
        if kind != "transposed":  # whose flat copy would be what is written to
            accumulate(3.0, view(x), out)
            assert np.array_equal(whole.numpy_blocking(), expected), kind
        else:
            accumulate(3.0, view(x), aiodev.zeros((4, 3), "f4", "cpu"))
    operation = accumulate.function.operation
    assert len(operation.known) <= 2 and len(operation._met) <= 2


def test_a_copy_is_not_taken_for_a_view() -> None:
    """An argument that was copied on the way is launched with, each time anew."""
    accumulate, out = accumulating(), aiodev.zeros(6, "f4", "cpu")
    for round in range(4):
        x = on_device(np.arange(6.0).reshape(2, 3) + round).T
        accumulate(1.0, x, out)
    assert accumulate.repeated == 0
    expected = sum((np.arange(6, dtype="f4").reshape(2, 3) + round).T.reshape(6) for round in range(4))
    assert np.array_equal(out.numpy_blocking(), expected)


def test_numbers_are_told_by_their_class() -> None:
    """And one that does not fit is the body's to deal with."""
    accumulate, x, out = accumulating(), on_device([1, 1]), on_device([0, 0])
    for number in (2.0, 2.0, 2, np.float64(2), True, 2.0):
        accumulate(number, x, out)
    assert accumulate.repeated == 1
    with np.errstate(over="ignore"):
        accumulate(1e300, x, out)  # what NumPy makes of it
    assert accumulate.repeated == 1
    assert out.numpy_blocking().tolist() == [np.inf, np.inf]


def test_a_number_as_it_is_is_no_constant() -> None:
    """A body that launches with the number that it was given has another in the next call."""

    def add(call: aiodev.Call, factor: float, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, factor, x, out)
        return out

    accumulate, x, out = Counted(add, numbers=["factor"], reads=["x"], writes="out"), on_device([1]), on_device([0])
    asyncio.run(add_scaled.compile(1.0, x, out))
    for number in range(5):
        accumulate(float(number), x, out)
    assert accumulate.repeated == 3
    assert out.numpy_blocking().tolist() == [10]


async def test_constants_and_options() -> None:
    """A constant is what it was, and is kept alive; another option is another call."""
    x = on_device([0, 1, 0], "i8")

    def shift(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, by: Any) -> aiodev.Array:
        table = call.constant(aiodev.asarray(np.array([5.0, 6, 7]), device="cpu", copy=False))
        call.launch(look_up, 3, table, int(by), x, out)
        return out

    shifted = Counted(shift, reads=["x"], writes="out")
    for by in (0, 1):
        out = aiodev.zeros(3, "f8", "cpu")
        for _ in range(3):
            shifted(x, out, by)
        filler = [on_device(np.full(3, 9.0), "f8") for _ in range(4)]  # takes the memory of tables that were dropped
        shifted(x, out, by)
        assert filler
        assert (await out.numpy()).tolist() == [5 + by, 6 + by, 5 + by]
    assert shifted.repeated == 4


def test_options_are_told_by_class_and_value() -> None:
    """In all of their parts; what cannot be hashed has the body run, which sees it."""
    seen: list[Any] = []

    def run(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, option: Any = None) -> aiodev.Array:
        seen.append(option)
        call.launch(add_scaled, x.size, np.float32(1), x, out)
        return out

    function, x, out = Counted(run, reads=["x"], writes="out"), on_device([1]), on_device([0])
    options = [1, True, 1.0, np.int64(1), (1,), (True,), (1.0,), [1], ((1, 2),), ("1",), np.array([1]), None, "f4"]
    options.append(np.dtype("f4"))
    for _ in range(4):
        for option in options:
            function(x, out, option)
    assert function.repeated == 2 * len(options)
    assert [(type(a), str(a)) for a in seen[: len(options)]] == [(type(a), str(a)) for a in options]
    function(x, out, {})
    function(x, out, {})
    assert seen[-1] == {} and function.repeated == 2 * len(options)
    assert out.numpy_blocking().tolist() == [4 * len(options) + 2]


def test_defaults_of_every_kind() -> None:
    """An option that usually is a truth value, a string or a float is told from what equals that, too."""

    def run(
        call: aiodev.Call, x: aiodev.Array, flag: Any = False, mode: Any = "a", eps: Any = 1e-5, *, out: aiodev.Array
    ) -> aiodev.Array:
        call.launch(add_scaled, x.size, np.float32(1), x, out)
        return out

    function, x, out = Counted(run, reads=["x"], writes="out"), on_device([1]), on_device([0])
    calls: list[tuple[Any, ...]] = [(), (0,), (True,), (1,), (False, "b")]
    calls += [(False, "a", eps) for eps in (1, True, 1.0)]
    for _ in range(3):
        for given_ in calls:
            function(x, *given_, out=out)
    assert function.repeated == len(calls)


# Whose an argument is


def difference() -> Counted:
    def run(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        out = call.out(x.shape, x.dtype)
        call.launch(subtract, x.size, x, y, out)
        return out

    return Counted(run, reads=["x", "y"], writes="out")


@pytest.mark.parametrize("first", [0, 1, 2])
def test_operands_in_the_same_memory_are_told_apart(first: int) -> None:
    """Views that overlap, one array twice, and the array that is written to; whichever comes first."""
    f = difference()
    whole, other = on_device([1, 2, 4, 8, 16]), on_device([3, 3, 3, 3])
    calls: list[Callable[[], aiodev.Array]] = [
        lambda: f(whole[1:], whole[:-1]),
        lambda: f(other, other),
        lambda: f(whole[1:], other),
    ]
    expected = [[1, 2, 4, 8], [0, 0, 0, 0], [-1, 1, 5, 13]]
    calls, expected = calls[first:] + calls[:first], expected[first:] + expected[:first]
    for _ in range(3):
        for call, values in zip(calls, expected, strict=True):
            assert call().numpy_blocking().tolist() == values
    assert f.repeated == 7
    for values in ([3, 3, 3, 3], [0, 0, 0, 0], [-3, -3, -3, -3], [-6, -6, -6, -6]):
        assert other.numpy_blocking().tolist() == values
        three = on_device([3, 3, 3, 3])
        assert f(other, three, out=other) is other
    out = on_device([0] * 4)
    assert f(three, other, out=out) is out
    assert out.numpy_blocking().tolist() == [12, 12, 12, 12]


async def test_uses_of_aliases_are_noted() -> None:
    """Where operands share memory, what reads it on another stream still waits for what writes it."""
    f, x, y = difference(), on_device([5, 6]), on_device([1, 1])
    stream = aiodev.Stream("cpu")
    stream.wait_stream(aiodev.current_stream("cpu"))
    gate = stream._gate()
    with stream:
        assert f(x, y, out=x) is x
        result = f(x, x)
    assert (stream.timeline, stream.timeline.submitted) in result._buffer.uses()
    assert any(timeline is stream.timeline for timeline, _ in x._buffer.pending())
    gate.open()
    assert (await x.numpy()).tolist() == [4, 5]
    assert (await result.numpy()).tolist() == [0, 0]
    await stream.synchronize()
    assert not x._buffer.pending()


def test_what_else_is_submitted_is_not_forgotten() -> None:
    """A body that copies, or calls another operation, runs at every call."""
    inner = accumulating()

    def copies(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, np.float32(1), x, out)
        out.copy_from(x)
        return out

    def calls(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, np.float32(1), x, out)
        inner(1.0, x, out)
        return out

    def decides(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.once()
        call.launch(add_scaled, x.size, np.float32(1), x, out)
        return out

    for body, expected in ((copies, [1, 2]), (calls, [8, 16]), (decides, [4, 8])):
        function, x, out = Counted(body, reads=["x"], writes="out"), on_device([1, 2]), on_device([0, 0])
        for _ in range(4):
            function(x, out)
        assert function.repeated == 0
        assert out.numpy_blocking().tolist() == expected


def test_sequences_of_arrays() -> None:
    """Of any length, in lists and tuples; a generator is used up once, and nothing remembered."""

    def add_all(call: aiodev.Call, xs: Any, /, *, out: aiodev.Array) -> aiodev.Array:
        for x in xs:
            call.launch(add_scaled, x.size, np.float32(1), x, out)
        return out

    function = Counted(add_all, reads=["*xs"], writes="out")
    one, two, out = on_device([1, 1]), on_device([10, 20]), on_device([0, 0])
    total = np.zeros(2)
    for _ in range(3):
        for given_ in ([one], (one, two), [two, two, one]):
            function(given_, out=out)
            total += sum(x.numpy_blocking() for x in given_)
    assert function.repeated == 3
    function((x for x in (one, two)), out=out)
    assert out.numpy_blocking().tolist() == (total + [11, 21]).tolist()
    with pytest.raises(TypeError, match=r"argument xs\[1\]: expected an array, got a NumPy array"):
        function([one, np.ones(2)], out=out)


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
    """Their table is emptied when it is full; old arrays keep theirs, and both compute."""
    monkeypatch.setattr(form_module, "MOST_FORMS", 3)
    monkeypatch.setattr(form_module, "_forms", {})
    accumulate, old, out = accumulating(), on_device([1, 2]), on_device([0, 0])
    for size in range(3, 12):
        accumulate(1.0, old, out)
        accumulate(1.0, on_device(np.ones(size)), aiodev.zeros(size, "f4", "cpu"))
        assert len(form_module._forms) <= 3
    again = on_device([1, 2])
    accumulate(1.0, again, out)
    assert again._form is not old._form
    assert out.numpy_blocking().tolist() == [10, 20]


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
