"""What calls of an operation are told apart by, and when a call repeats an earlier one."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_operations import Counted, accumulating, add_scaled, compile_kernels, on_device, subtract
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
import aiodev.kernels
from aiodev._kernel.tuning import RECURRING

pytestmark = pytest.mark.anyio

#: How often a body runs until there is a plan, for which it runs once more.
PLANNED = RECURRING + 1


@aiodev.kernel
def look_up(i: int, table: Any, shift: int, x: Any, out: Any) -> None:
    out[i] = table[x[i] + shift]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels have code, without which no call is remembered."""

    async def compile() -> None:
        await compile_kernels()
        x = aiodev.zeros(2, "f8", "cpu")
        await look_up.compile(x, 1, on_device([0, 1], "i8"), x)

    asyncio.run(compile())


# Any length


def scaling() -> Counted:
    """``out += factor * x``, by one launch over all elements where there are no gaps."""

    def scale(call: aiodev.Call, factor: Any, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, x.size, factor.astype(x.dtype), x.reshape(x.size), out.reshape(x.size))
        return out

    return Counted(scale, numbers=["factor"], reads=["x"], writes="out", elementwise=True)


VIEWS: list[Callable[[Any, int], Any]] = [
    lambda x, t: x[0, 0, : 2 * t : 2],
    lambda x, t: x[0, :, :t],
    lambda x, t: x[0, :t, :t].T,
    lambda x, t: x[:, :t, 1 : t + 1],
    lambda x, t: x[0, ::-1, 2 : t + 2],
    lambda x, t: x[:, :t],
    lambda x, t: x[:1, 2:7, :t],
]


@pytest.mark.parametrize("view", VIEWS)
def test_a_length_of_views_that_was_never_met_needs_no_body(
    view: Callable[[Any, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once there is a plan for views like it; a shape that recurs is remembered by itself."""
    ran: list[aiodev.Operation] = []
    run = aiodev.Operation._pass

    def noted(self: aiodev.Operation, *args: Any) -> Any:
        ran.append(self)
        return run(self, *args)

    monkeypatch.setattr(aiodev.Operation, "_pass", noted)
    subtract = aiodev.kernels.subtract
    subtract.operation.forget()
    host, other = np.arange(3000, dtype="f4").reshape(2, 25, 60), np.full((2, 25, 60), 3, "f4")
    x, y = on_device(host), on_device(other)
    for t in range(3, 25):
        ran.clear()
        found = subtract(view(x, t), view(y, t))
        assert np.array_equal(found.numpy_blocking(), view(host, t) - view(other, t))
        target = np.zeros_like(host)
        out = on_device(target)
        subtract(view(x, t), view(y, t), out=view(out, t))
        np.subtract(view(host, t), view(other, t), out=view(target, t))
        assert np.array_equal(out.numpy_blocking(), target)
        assert not ran or t < 3 + 2 * RECURRING
    for repetition in range(4):
        ran.clear()
        found = subtract(view(x, 3), view(y, 3))
        assert np.array_equal(found.numpy_blocking(), view(host, 3) - view(other, 3))
        assert not ran or repetition == 0


#: What an index says of a dimension, by a length that grows.
ITEMS: list[Callable[[int], Any]] = [
    lambda t: slice(None),
    lambda t: slice(None, t),
    lambda t: slice(5 - t, 5),
    lambda t: slice(t, None, -1),
    lambda t: slice(None, 2 * t, 2),
    lambda t: t,
]


@given(
    templates=st.lists(st.tuples(*[st.sampled_from(ITEMS)] * 3), min_size=1, max_size=2),
    calls=st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 3), st.sampled_from(["new", "out", "in place"])), min_size=4, max_size=12
    ),
    orders=st.permutations(range(3)).map(lambda axes: [axes] * 3) | st.lists(st.permutations(range(3)), min_size=3, max_size=3),
)
@settings(deadline=None, max_examples=examples(300))
def test_views_of_lengths_that_grow_are_numpys(templates: Any, calls: Any, orders: Any) -> None:
    """Of arrays whose axes lie in any order in memory; a call takes the plan that one of another shape has left."""
    subtract = aiodev.kernels.subtract
    hosts, arrays = [], []
    for number, axes in enumerate(orders):
        back = np.argsort(axes)
        memory = np.arange(120, dtype="f4").reshape([(4, 5, 6)[axis] for axis in axes]) * (number + 1)
        hosts.append(memory.transpose(back))
        arrays.append(on_device(memory).transpose(*back.tolist()))
    for template, t, kind in calls:
        index = tuple(item(t) for item in templates[template % len(templates)])
        if all(isinstance(item, int) for item in index):
            continue
        (x, y, out), (u, v, w) = ([array[index] for array in own] for own in (hosts, arrays))
        if kind == "new":
            assert np.array_equal(subtract(u, v).numpy_blocking(), x - y)
        else:
            first, second = (x, u) if kind == "out" else (out, w)
            subtract(second, v, out=w)
            np.subtract(first, y, out=out)
    for host, array in zip(hosts, arrays, strict=True):
        assert np.array_equal(array.numpy_blocking(), host)


def test_views_whose_dimensions_become_one_are_told_apart() -> None:
    """Rows without gaps, single rows and columns are looped over in another way, so the body decides for each."""
    negative = aiodev.kernels.negative
    host = np.arange(60, dtype="f4").reshape(5, 12)
    x = on_device(host)
    for _ in range(2):
        for t in (3, 4, 5, 6):
            negative(x[:, :t])
    views = [np.s_[:, :12:2], np.s_[1:3], np.s_[:1, :4], np.s_[:, 3:4], np.s_[::2, ::-1], np.s_[:, ::3], np.s_[:, :7]]
    for view in views:
        for _ in range(3):
            assert np.array_equal(negative(x[view]).numpy_blocking(), -host[view])


@pytest.mark.parametrize("form", ["gaps", "one", "none", "shapes", "type", "number"])
def test_other_forms_are_not_taken_for_another_length(form: str) -> None:
    """Gaps, no elements, shapes that differ, another type, another class of number: the body decides."""
    scale = scaling()
    for size in range(2, 20):
        scale(2.0, on_device(np.ones(size)), on_device(np.ones(size)))
    assert scale.ran == PLANNED
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
    assert scale.ran == PLANNED + (form != "one")
    assert np.array_equal(out.numpy_blocking(), np.full(out.shape, 4.0))


def test_a_launch_over_a_part_of_the_operands_is_planned_as_such() -> None:
    """As of differences of neighbours."""

    def shift(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> aiodev.Array:
        call.launch(subtract, x.size - 1, x[1:], x[:-1], out[1:])
        return out

    shifted = Counted(shift, reads=["x"], writes="out", elementwise=True)
    for size in (*range(3, 20), 5, 5):
        out = aiodev.zeros(size, "f4", "cpu")
        shifted(on_device(np.arange(size)), out)
        assert out.numpy_blocking().tolist() == [0, *[1] * (size - 1)]
    assert shifted.ran == PLANNED


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


@pytest.mark.parametrize("given", [0.0, complex(0, 0.0), np.float32(0), (1, 0.0)])
def test_zeros_are_told_by_their_signs(given: Any) -> None:
    """Which a body may copy, though the two are equal."""

    def signs(call: aiodev.Call, x: aiodev.Array, /, *, by: Any = 0.5, out: aiodev.Array | None = None) -> aiodev.Array:
        result = call.out(x.shape, x.dtype)
        part = by[1] if isinstance(by, tuple) else by.imag if isinstance(by, complex) else by
        call.launch(add_scaled, x.size, math.copysign(1.0, part), x, result)
        return result

    signed = Counted(signs, reads=["x"], writes="out")
    x, out = on_device([1.0]), on_device([0.0])
    negative = (1, -0.0) if isinstance(given, tuple) else np.conj(given) if isinstance(given, complex) else -given
    for _ in range(3):
        signed(x, by=given, out=out)
    assert out.numpy_blocking()[0] == 3.0
    for _ in range(3):
        signed(x, by=negative, out=out)
    assert out.numpy_blocking()[0] == 0.0 and signed.ran == 4


def test_several_sequences_are_told_apart_by_their_lengths() -> None:
    """Not by that of all arrays together."""

    def counts(call: aiodev.Call, xs: Any, ys: Any, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        result = call.out(xs[0].shape, xs[0].dtype)
        call.launch(add_scaled, 1, 10.0 * len(xs) + len(ys), xs[0], result)
        return result

    counted = Counted(counts, reads=["*xs", "*ys"], writes="out")
    arrays = [on_device([1.0]) for _ in range(4)]
    for _ in range(3):
        for first in (1, 3, 2):
            out = on_device([0.0])
            counted(arrays[:first], arrays[first:], out=out)
            assert out.numpy_blocking()[0] == 9 * first + 4
    assert counted.ran == 6


def test_what_is_refused_is_not_kept() -> None:
    """Neither the call nor what it was given: an array in the place of an option is a mistake that is made again and again."""

    def scaled(call: aiodev.Call, x: aiodev.Array, /, *, axis: Any = 0, out: aiodev.Array | None = None) -> aiodev.Array:
        if not isinstance(axis, int):
            raise TypeError("expected an integer")
        return call.out(x.shape, x.dtype)

    refusing = Counted(scaled, reads=["x"], writes="out")
    x = on_device([1.0])
    for _ in range(3):
        given = on_device([2.0])
        gone = weakref.ref(given)
        with pytest.raises(TypeError, match="an integer"):
            refusing(x, axis=given)
        del given
        gc.collect()
        assert gone() is None
    operation = refusing.function.operation
    assert not (operation.known or operation._met or operation.families)
    refusing(x, axis=1)
    assert operation._met and operation.families


def test_a_copy_of_another_shape_is_refused() -> None:
    """It would read beyond what is copied."""

    def copied(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        call.copy(call.out((3,), "float32"), x)
        return call.out((3,), "float32")

    for x in (on_device([1.0]), on_device([1, 2, 3], "f8")):
        with pytest.raises(aiodev.LaunchError, match="dst"):
            Counted(copied, reads=["x"], writes="out")(x)


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


def test_more_arrays_than_native_code_has_room_for() -> None:
    """They are called each time."""
    arrays, out = [on_device([float(number)]) for number in range(300)], on_device([0.0])

    def first(call: aiodev.Call, xs: Any, out: aiodev.Array) -> aiodev.Array:
        call.launch(add_scaled, 1, 1.0, xs[-1], out)
        return out

    function = Counted(first, reads=["*xs"], writes="out")
    for count in (300, 257, 256, 300, 257, 256):
        out[:] = 0.0
        function(arrays[:count], out)
        assert out.numpy_blocking().tolist() == [count - 1]
    assert function.repeated == 0


class Odd:
    """An option that says what it likes when it is asked for its hash."""

    def __init__(self, error: type[Exception] | None) -> None:
        self.error = error

    def __hash__(self) -> int:
        if self.error is not None:
            raise self.error("no hash")
        return 1


@pytest.mark.parametrize("known", [False, True])
def test_an_option_whose_hash_fails(known: bool) -> None:
    """With a TypeError the body runs, since it may know what is wrong; any other error goes on. Nothing is let go too often."""
    seen: list[Any] = []

    def run(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, option: Any = None) -> aiodev.Array:
        seen.append(option)
        call.launch(add_scaled, x.size, 1.0, x, out)
        return out

    function, x, out, option = Counted(run, reads=["x"], writes="out"), on_device([1.0]), on_device([0.0]), Odd(None)
    for _ in range(3 if known else 0):
        function(x, out, option)
    assert function.repeated == known
    seen.clear()
    before = sys.getrefcount(option), sys.getrefcount(x)
    for error in [TypeError, ValueError] * 3:
        option.error = error
        seen.clear()
        if error is TypeError:
            function(x, out, option)
            assert seen == [option]
        else:
            with pytest.raises(ValueError, match="no hash"):
                function(x, out, option)
            assert not seen
    seen.clear()
    gc.collect()
    assert (sys.getrefcount(option), sys.getrefcount(x)) == before
