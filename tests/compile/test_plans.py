"""Plans for all lengths: a sequence that grows needs an operation's body for its first few lengths only, and is right."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_operations import Counted, add_scaled, compile_kernels, on_device
from hypothesis import given, settings, strategies as st
from length_programs import lengths, programs, run
from selection import examples, some

import aiodev
from aiodev import kernels
from aiodev._kernel.operation import Operation
from aiodev._kernel.tuning import MOST_PLANS, RECURRING

BLOCK = 16


@aiodev.kernel(ndim=2)
def sum_blocks(row: int, block: int, x: Any, sums: Any) -> None:
    total = 0.0
    for k in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[1])):
        total += x[row, k]
    sums[row, block] = total


@aiodev.kernel
def sum_sums(row: int, sums: Any, length: int, out: Any) -> None:
    total = 0.0
    for block in range(sums.shape[1]):
        total += sums[row, block]
    out[row] = total + length


@aiodev.kernel
def sum_row(row: int, length: int, x: Any, out: Any) -> None:
    total = 0.0
    for k in range(x.shape[1]):
        total += x[row, k]
    out[row] = total + length


@aiodev.kernel
def fill_places(i: int, factor: float, out: Any) -> None:
    out[i] = i * factor


@aiodev.kernel
def note(i: int, a: int, b: int, c: int, out: Any) -> None:
    out[0], out[1], out[2] = a, b, c


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels have code, without which no call is remembered."""

    async def compile() -> None:
        await compile_kernels()
        x, out = aiodev.zeros((2, 2), "f4", "cpu"), aiodev.zeros(2, "f4", "cpu")
        for rows in (x, x.T):
            await sum_row.compile(1, rows, out)
            await sum_blocks.compile(rows, x)
        await sum_sums.compile(x, 1, out)
        await fill_places.compile(1.0, out)
        await note.compile(1, 1, 1, aiodev.zeros(3, "i8", "cpu"))

    asyncio.run(compile())


def summing(body: Callable[..., Any] | None = None) -> Counted:
    """Sums of rows, by blocks where rows are long, plus the rows' length."""

    def sum_rows(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        rows, length = x.shape
        result = call.out((rows,), x.dtype)
        if length <= 2 * BLOCK:
            call.launch(sum_row, rows, length, x, result)
            return result
        blocks = -(-length // BLOCK)
        sums = call.scratch((rows, blocks), x.dtype)
        call.launch(sum_blocks, (rows, blocks), x, sums)
        call.launch(sum_sums, rows, sums, length, result)
        return result

    return Counted(body or sum_rows, reads=["x"], writes="out")


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape), dtype="f4").reshape(shape) % 7


def test_a_length_that_was_never_met_needs_no_body() -> None:
    """Once there is a plan for rows of its kind: short ones, and long ones, which are summed with scratch memory."""
    total, host = summing(), numbers(4, 200)
    x = on_device(host)
    for length in range(1, 200):
        assert np.array_equal(total(x[:, :length]).numpy_blocking(), host[:, :length].sum(1) + length), length
    assert total.ran < 5 * RECURRING
    ran = total.ran
    for length in range(199, 0, -1):
        assert np.array_equal(total(x[:, :length]).numpy_blocking(), host[:, :length].sum(1) + length), length
    assert total.ran < ran + 3 * RECURRING  # those from before there was a plan
    operation = total.function.operation
    assert len(operation.known) < 20 * RECURRING  # a plan takes no room for each length that it serves
    assert 0 < sum(len(family.plans) for family in operation.families.values()) <= MOST_PLANS
    operation.forget()
    assert not operation.families


def test_a_width_that_is_new_is_soon_served() -> None:
    """Plans that served many calls were worth their time: the next is made as soon as the first was, not later and later."""
    total, host = summing(), numbers(9, 200)
    x = on_device(host)
    for rows in range(2, 9):
        before = total.ran
        for length in range(1, 100):
            found = total(x[:rows, :length]).numpy_blocking()
            assert np.array_equal(found, host[:rows, :length].sum(1) + length), (rows, length)
        assert total.ran - before < 5 * RECURRING, rows
    assert total.ran - before == 0  # there are plans for any number of rows


def test_a_body_that_decides_in_many_ways_is_not_run_over_and_over() -> None:
    """There are plans for all of twenty ways to launch, through which each sequence goes that grows."""

    def way(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
        number = 0
        while x.shape[1] > 50 * number + 50:  # a reduction cuts what it is given into twice as many parts each time
            number += 1
        result = call.new((x.shape[0],), x.dtype)
        call.launch(sum_row, x.shape[0], number, x, result)
        return result

    total, host = Counted(way, reads=["x"]), numbers(9, 1001)
    x = on_device(host)
    for rows in range(2, 7):
        before = total.ran
        for length in range(1, 1001):
            expected = host[:rows, :length].sum(1) + (length - 1) // 50
            assert np.array_equal(total(x[:rows, :length]).numpy_blocking(), expected), (rows, length)
    assert total.ran == before


def test_what_is_met_while_code_is_compiled_does_not_count() -> None:
    """A program whose kernels are new tries a plan as soon as they are there."""

    @aiodev.kernel
    def double(i: int, x: Any, out: Any) -> None:
        out[i] = x[i] + x[i]

    def doubled(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
        result = call.new(x.shape, x.dtype)
        call.launch(double, x.size, x, result)
        return result

    twice, host = Counted(doubled, reads=["x"]), numbers(400)
    x = on_device(host)
    found = [twice(x[:length]) for length in range(1, 300)]
    assert all(np.array_equal(each.numpy_blocking(), 2 * host[: each.size]) for each in found)
    ran = twice.ran
    for length in range(300, 400):
        assert np.array_equal(twice(x[:length]).numpy_blocking(), 2 * host[:length])
    assert twice.ran <= ran + RECURRING


def test_every_length_that_differs_is_one_of_the_plan() -> None:
    """Two dimensions that grow, results among them, and an array to write to."""
    total, host = summing(), numbers(90, 90)
    x, out = on_device(host), aiodev.zeros(90, "f4", "cpu")
    for length in range(1, 90):
        view = host[:length, length // 2 : length]
        expected = view.sum(1) + view.shape[1]
        assert np.array_equal(total(x[:length, length // 2 : length]).numpy_blocking(), expected)
        assert total(x[:length, length // 2 : length], out=out[:length]) is not None
        assert np.array_equal(out.numpy_blocking()[:length], expected)
    assert total.ran < total.called / 2


def test_a_number_may_be_another() -> None:
    """One that the launch is given, as it is and in another type."""

    def scale(call: aiodev.Call, factor: Any, x: aiodev.Array, /) -> aiodev.Array:
        result = call.new((2, *x.shape), x.dtype)
        call.launch(fill_places, x.size, factor, result[0])
        call.launch(fill_places, x.size, 0.0, result[1])
        call.launch(add_scaled, x.size, factor.astype(x.dtype), x, result[1])
        return result

    scaled = Counted(scale, numbers=["factor"], reads=["x"])
    for length in range(1, 60):
        host = numbers(length)
        found = scaled(0.5 * length, on_device(host)).numpy_blocking()
        assert np.array_equal(found, [np.arange(length) * 0.5 * length, host * 0.5 * length])
    assert scaled.ran <= RECURRING + 2


def test_a_body_may_ask_what_a_length_is() -> None:
    """What it decides by that is decided for a plan as for the length itself."""

    def sum_rows(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
        result, length = call.new(x.shape[:1], x.dtype), x.shape[1]
        added = 1000 if isinstance(length, int) and length > 30 else 0
        call.launch(sum_row, x.shape[0], length + added, x, result)
        return result

    total, host = Counted(sum_rows, reads=["x"]), numbers(3, 60)
    x = on_device(host)
    for length in range(1, 60):
        expected = host[:, :length].sum(1) + length + 1000 * (length > 30)
        assert np.array_equal(total(x[:, :length]).numpy_blocking(), expected)
    assert total.ran < 4 * RECURRING


def refuse_keys(call: aiodev.Call, x: aiodev.Array) -> None:
    hash(x.shape)


def take_as_index(call: aiodev.Call, x: aiodev.Array) -> None:
    np.zeros(x.shape)


def submit_otherwise(call: aiodev.Call, x: aiodev.Array) -> None:
    aiodev.zeros(1 << 17, np.uint8, x.device)  # more than the host writes itself


TILES = {20: 5}


def take_as_key_if_it_is_one(call: aiodev.Call, x: aiodev.Array) -> None:
    try:
        call.scratch((TILES[x.shape[1]],), x.dtype)
    except (KeyError, TypeError):
        pass
    except Exception:
        call.scratch((1,), x.dtype)


def say_once(call: aiodev.Call, x: aiodev.Array) -> None:
    call.once()


@pytest.mark.parametrize("step", [refuse_keys, take_as_key_if_it_is_one, take_as_index, submit_otherwise, say_once])
def test_what_has_no_symbolic_counterpart_is_found_out_each_time(step: Callable[..., None]) -> None:
    """And is right; nothing is submitted for it that was not asked for."""

    def sum_rows(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
        step(call, x)
        result = call.out(x.shape[:1], x.dtype)
        call.launch(sum_row, x.shape[0], x.shape[1], x, result)
        return result

    total, host = summing(sum_rows), numbers(3, 60)
    x = on_device(host)
    for length in range(1, 60):
        stream = aiodev.current_stream("cpu")
        before = stream.timeline.submitted
        result = total(x[:, :length])
        assert stream.timeline.submitted - before == 1 + (step is submit_otherwise)
        assert np.array_equal(result.numpy_blocking(), host[:, :length].sum(1) + length)
    operation = total.function.operation
    assert not any(family.plans for family in operation.families.values())


def test_what_is_refused_is_refused_with_a_plan_too() -> None:
    """By the body, and for what the launch would touch beyond an array."""

    def add(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, /) -> aiodev.Array:
        if x.shape[0] > 100:
            raise ValueError(f"{x.shape[0]} are too many")
        call.launch(add_scaled, y.size, 1.0, x, y)
        return y

    added = Counted(add, reads=["x", "y"])
    x, y = (on_device(numbers(200)) for _ in range(2))
    for length in range(1, 50):
        added(x[:length], y[:length])
    assert added.ran <= RECURRING + 2
    for short, long in ((49, 50), (51, 60), (1, 2)):
        with pytest.raises(aiodev.LaunchError, match="x"):
            added(x[:short], y[:long])
    with pytest.raises(ValueError, match="101 are too many"):
        added(x[:101], y[:101])
    ran = added.ran
    added(x[:99], y[:98])
    assert added.ran == ran  # that is within both
    expected = numbers(200)
    for length in (*range(1, 50), 98):
        expected[:length] += numbers(200)[:length]
    assert np.array_equal(y.numpy_blocking(), expected)


@aiodev.kernel
def add_windows(plane: int, x: Any, scratch: Any, out: Any) -> None:
    for i in range(out.shape[1]):
        scratch[plane, i] = x[plane, i] + x[plane, i + 2]
        out[plane, i] = scratch[plane, i]


def test_lengths_that_would_be_negative_are_refused_with_a_plan_too() -> None:
    """Of results and of scratch memory, where the launch is over something else."""

    def windows(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
        planes, length = x.shape
        result, scratch = call.new((planes, length - 2), x.dtype), call.scratch((planes, length - 2), x.dtype)
        call.launch(add_windows, planes, x, scratch, result)
        return result

    added, host = Counted(windows, reads=["x"]), numbers(3, 60)
    x = on_device(host)
    asyncio.run(add_windows.compile(x[:, :9], x, x))
    for length in (*range(9, 30), 2, 3, 4, 50):
        expected = host[:, : length - 2] + host[:, 2:length]
        assert np.array_equal(added(x[:, :length]).numpy_blocking(), expected)
    assert added.ran < 3 * RECURRING
    for length in (0, 1):
        with pytest.raises(ValueError, match="a length cannot be negative"):
            added(x[:, :length])


def test_operands_in_one_memory_are_told_apart() -> None:
    """What was found out of views of one array serves views of several, and the other way round."""

    def subtract(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, /) -> aiodev.Array:
        result = call.new(x.shape, x.dtype)
        call.launch(fill_places, x.size, 0.0, result)
        call.launch(add_scaled, x.size, 1.0, x, result)
        call.launch(add_scaled, x.size, -1.0, y, result)
        return result

    subtracted, host = Counted(subtract, reads=["x", "y"]), numbers(300)
    x, other = on_device(host), on_device(host[::-1].copy())
    for length in range(1, 100):
        pairs = (x[:length], x[length : 2 * length]), (x[:length], other[length : 2 * length])
        hosts = (host[:length], host[length : 2 * length]), (host[:length], host[::-1][length : 2 * length])
        for (a, b), (c, d) in zip(pairs, hosts, strict=True):
            assert np.array_equal(subtracted(a, b).numpy_blocking(), c - d)
    assert subtracted.ran < 3 * RECURRING


#: Functions of a matrix, part of which is taken; and of as much of another one.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, y: kernels.softmax(x),
    "softmax of columns": lambda x, y: kernels.softmax(x, axis=0),
    "rms_norm": lambda x, y: kernels.rms_norm(x),
    "layer_norm": lambda x, y: kernels.layer_norm(x),
    "sum of rows": lambda x, y: kernels.sum(x, axis=-1),
    "sum of columns": lambda x, y: kernels.sum(x, axis=0),
    "max": lambda x, y: kernels.max(x),
    "mean": lambda x, y: kernels.mean(x, axis=1, keepdims=True),
    "argmax": lambda x, y: kernels.argmax(x, axis=1),
    "var": lambda x, y: kernels.var(x, axis=0),
    "product": lambda x, y: kernels.matmul(x, y.mT),
    "product of columns": lambda x, y: kernels.matmul(x.mT, y),
    "product with a row": lambda x, y: kernels.matmul(x, y[0]),
    "vecdot": lambda x, y: kernels.vecdot(x, y),
    "attention": lambda x, y: kernels.scaled_dot_product_attention(x, y, y),
    "concat": lambda x, y: kernels.concat([x, y]),
    "concat of columns": lambda x, y: kernels.concat([x, y, x], axis=1),
    "stack": lambda x, y: kernels.stack([x, y], axis=1),
    "repeated rows": lambda x, y: x + y[:1],
    "repeated columns": lambda x, y: x * y[:, :1] + 1,
    "running": lambda x, y: kernels.cumulative_sum(x, axis=1),
    "running down": lambda x, y: kernels.cumulative_sum(x, axis=0),
    "take": lambda x, y: kernels.take(x, kernels.astype(y[:, 0], "int64") % x.shape[0], axis=0),
    "sort": lambda x, y: kernels.sort(x),
    "argsort": lambda x, y: kernels.argsort(x, stable=True),
    "roll": lambda x, y: kernels.roll(x, 1, axis=1),
    "flattened": lambda x, y: kernels.sum(x.reshape(-1)),
    "sum of all but a middle axis": lambda x, y: kernels.sum(kernels.stack([x, y], axis=1), axis=(0, 2)),
    "mean of all but a middle axis": lambda x, y: kernels.mean(kernels.stack([x, y], axis=1), axis=(0, 2)),
}

bounds = st.tuples(st.integers(0, 40), st.integers(0, 40))


@settings(max_examples=examples(100), deadline=None)
@given(
    name=st.sampled_from(list(FUNCTIONS)),
    sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=4),
    steps=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    packed=st.booleans(),
)
def test_functions_of_growing_arrays_are_what_their_bodies_compute(
    name: str, sizes: list[tuple[int, int]], steps: tuple[int, int], packed: bool
) -> None:
    """To the bit: rows and columns that grow from several sizes on, of views or of arrays without gaps."""
    function, host = FUNCTIONS[name], numbers(80, 80)
    wide, other = on_device(host), on_device(numbers(80, 81)[:, 1:])

    def operands(rows: int, columns: int) -> tuple[Any, Any]:
        x, y = wide[:rows, :columns], other[:rows, :columns]
        return (x + 0, y + 0) if packed else (x, y)

    shapes = [(rows + k * steps[0], columns + k * steps[1]) for rows, columns in sizes for k in range(RECURRING + 4)]
    found = [function(*operands(*shape)) for shape in shapes]
    for own in list(aiodev._kernel.operation._operations):  # type: ignore[attr-defined]
        own.forget()
    for shape, result in zip(shapes, found, strict=True):
        expected = function(*operands(*shape))
        assert expected.shape == result.shape and expected.dtype == result.dtype
        assert np.array_equal(expected.numpy_blocking(), result.numpy_blocking(), equal_nan=True), (shape, steps)


@settings(max_examples=examples(1000), deadline=None)
@given(program=programs, first=lengths, others=st.lists(lengths, max_size=12))
def test_native_code_computes_what_a_body_does(
    program: list[tuple[int, int, int]], first: list[int], others: list[list[int]]
) -> None:
    """Of lengths of three arrays, whatever it decides by them; what is no word is refused as the body's launch is."""

    def computing(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, z: aiodev.Array, /) -> Any:
        values = run(program, [x.size, y.size, z.size])
        result, room = call.new((3,), "i8"), call.new((x.size + 2 * y.size, 2), "i4")
        call.launch(note, (1,), *values[-3:], result)
        return result, room

    compute, whole = Counted(computing, reads=["x", "y", "z"]), on_device(np.zeros(5100))
    near = [[max(0, value + step) for value in first] for step in (0, 1, 2, 3, 4, 5, 6, -1, -2, -3)]
    for values in (*near, *others, *near, *others):
        expected = run(program, values)[-3:]
        arrays = [whole[:value] for value in values]
        if all(-(1 << 63) <= one < 1 << 63 for one in expected):
            result, room = compute(*arrays)
            assert result.numpy_blocking().tolist() == expected
            assert room.shape == (values[0] + 2 * values[1], 2) and room.nbytes == 8 * room.shape[0]
        else:
            with pytest.raises(OverflowError):
                compute(*arrays)


def test_what_is_no_word_is_left_to_the_body() -> None:
    """A plan that serves lengths of thousands is asked for such of which the product is more than native code computes with."""

    def measuring(call: aiodev.Call, x: aiodev.Array, /) -> aiodev.Array:
        result = call.new((3,), "i8")
        size = x.shape[0] * x.shape[1] * x.shape[2]
        call.launch(note, (1,), size % 1000, x.shape[0], 0, result)
        return result

    measure, one = Counted(measuring, reads=["x"]), on_device(np.zeros((1, 1, 1)))
    for length in range(2, 60):
        found = measure(kernels.broadcast_to(one, (length, 7, length + 1))).numpy_blocking()
        assert found[0] == length * 7 * (length + 1) % 1000
    assert measure.ran < 3 * RECURRING
    ran, large = measure.ran, 1 << 40
    found = measure(kernels.broadcast_to(one, (large, 7, large + 1))).numpy_blocking()
    assert found.tolist() == [large * 7 * (large + 1) % 1000, large, 0] and measure.ran == ran + 1


def test_more_arrays_than_native_code_has_room_for_have_no_plan() -> None:
    """The body runs for each new length."""

    def doubling(call: aiodev.Call, xs: list[aiodev.Array], /) -> aiodev.Array:
        result = call.new(xs[0].shape, "f4")
        call.launch(add_scaled, result.size, 2.0, xs[0].reshape(-1), result.reshape(-1))
        return result

    double, x = Counted(doubling, reads=["*xs"]), on_device(np.ones(40))
    for length in range(2, 20):
        assert double([x[:length]] * 300).shape == (length,)
    assert double.ran >= 18


#: Those whose launches follow from the lengths by arithmetic alone.
PLANNED = [name for name in FUNCTIONS if name not in ("concat of columns", "roll", "sort", "argsort")]


@pytest.mark.parametrize("name", some(PLANNED, 5))
def test_functions_of_the_library_have_plans(name: str) -> None:
    function, operations = FUNCTIONS[name], list(aiodev._kernel.operation._operations)  # type: ignore[attr-defined]
    wide = on_device(numbers(60, 60))
    for length in (20, 21, 60):
        function(wide[:length], wide[:length]).numpy_blocking()  # so the kernels are there
    for own in operations:
        own.forget()
    for length in range(24, 60):
        function(wide[:length], wide[:length])
    assert any(family.plans for own in operations for family in own.families.values())


@pytest.mark.parametrize("name", ["sum of columns", "max", "var", "softmax", "running down"])
def test_bodies_of_functions_of_the_library_run_for_few_lengths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that they decide by, and do not need, makes conditions."""
    function, ran = FUNCTIONS[name], list[str]()
    wide = on_device(numbers(300, 20))
    for length in (20, 21, 100, 205, 299):
        function(wide[:length], wide[:length]).numpy_blocking()  # so the kernels are there
    for own in list(aiodev._kernel.operation._operations):  # type: ignore[attr-defined]
        own.forget()
    run = Operation._pass
    monkeypatch.setattr(Operation, "_pass", lambda own, call, *args: (ran.append(own.name), run(own, call, *args))[1])
    for length in range(2, 300):
        function(wide[:length], wide[:length])
    assert 0 < len(ran) < 60
