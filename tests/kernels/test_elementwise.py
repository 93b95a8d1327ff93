"""The elementwise kernels against NumPy: values, types, shapes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.elementwise.iteration import make_kernel
from aiodev.kernels.elementwise.rows import TABLE

#: NumPy's functions, by name.
UNARY, BINARY = (
    {name: row.reference for name, row in TABLE.items() if len(row.operands) == count} for count in (1, 2)
)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """NumPy warns of what IEEE arithmetic defines."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        yield


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def check(found: aiodev.Array, expected: Any) -> None:
    """The same shape and dtype, and values to some units in the last place."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    values = found.numpy_blocking()
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(values, expected, rtol=16 * np.finfo(expected.dtype).eps)
    else:
        np.testing.assert_array_equal(values, expected)


def test_every_name_is_public_and_documented() -> None:
    """``__all__`` has the whole table."""
    names = {*UNARY, *BINARY, "astype", "clip", "where"}
    assert names <= set(kernels.__all__)
    for name in names:
        function = getattr(kernels, name)
        assert function.__name__ == name
        assert function.__doc__


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_functions(name: str) -> None:
    """Ordinary values, and those that are not."""
    host = np.concatenate([np.linspace(0.05, 0.95, 20), [0.0, -0.0, np.inf, -np.inf, np.nan, -0.5]])
    if name == "bitwise_invert":
        host = np.arange(-5, 5)
    check(getattr(kernels, name)(on_device(host)), UNARY[name](host))


#: Each kind of number; integers by the float that functions of them give: float16, float32, float64.
TYPES = ["?", "i1", "u2", "u8", "f2", "f4", "c8"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_types(name: str, dtype: str) -> None:
    """The result's dtype and values are NumPy's; what NumPy refuses is refused."""
    host = np.array([0, 1, 2, 3], dtype)
    try:
        expected = UNARY[name](host)
    except TypeError:
        with pytest.raises(TypeError):
            getattr(kernels, name)(on_device(host))
        return
    if name in ("ceil", "floor", "round", "trunc") and host.dtype.kind in "biu":
        expected = host
    check(getattr(kernels, name)(on_device(host)), expected)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_functions(name: str) -> None:
    """All pairs of ordinary values and those that are not."""
    host = np.array([1.5, 0.0, -2.0, 0.25, np.inf, np.nan])
    if name.startswith("bitwise"):
        host = np.array([5, 0, 1, 12, 3])
    expected = BINARY[name](host[:, None], host)
    if name == "floor_divide":  # as the array API has it: NumPy fits it to its remainder
        expected = np.where(np.isinf(host[:, None]) | np.isinf(host), host[:, None] / host, expected)
    check(getattr(kernels, name)(on_device(host[:, None]), on_device(host)), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_types(name: str, dtype: str) -> None:
    """The result's dtype and values are NumPy's; what NumPy refuses is refused."""
    x1, x2 = np.array([1, 2, 3, 1], dtype), np.array([2, 1, 2, 1], dtype)
    try:
        expected = BINARY[name](x1, x2)
        if name == "nextafter" and expected.dtype == np.float16:
            raise TypeError("float16 is computed with in single precision")
    except TypeError:
        with pytest.raises(TypeError):
            getattr(kernels, name)(on_device(x1), on_device(x2))
        return
    check(getattr(kernels, name)(on_device(x1), on_device(x2)), expected)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift", "pow"])
def test_powers_wrap_and_shifts_run_out(name: str, dtype: str) -> None:
    """Powers modulo the dtype's size; shifts by as many bits as there are, and more."""
    info = np.iinfo(dtype)
    values = np.array([0, 1, 2, 3, 7, info.max, info.min], dtype)
    x1, x2 = (a.ravel() for a in np.meshgrid(values, np.array([0, 1, 3, info.bits - 1, info.bits, 100], dtype)))
    check(getattr(kernels, name)(on_device(x1), on_device(x2)), BINARY[name](x1, x2))


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_division_of_integers_is_numpys(name: str, dtype: str) -> None:
    """Rounded down, of all signs; by zero 0, and of the least number by -1 what wraps around."""
    least = np.iinfo(dtype).min
    x1, x2 = (a.ravel() for a in np.meshgrid(np.array([7, -7, 0, 1, least], dtype), np.array([2, -2, 0, 7, -1], dtype)))
    check(getattr(kernels, name)(on_device(x1), on_device(x2)), getattr(np, name)(x1, x2))


@pytest.mark.parametrize("name", ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"])
def test_signed_and_unsigned_integers_are_compared_as_they_are(name: str) -> None:
    """What both would be promoted to, ``float64``, has one number for several of the large ones."""
    signed = np.array([-(2**63), -1, 0, 5, 2**63 - 1])
    unsigned = np.array([0, 5, 2**63 - 1, 2**63, 2**64 - 1], "u8")
    function, expected = getattr(kernels, name), getattr(np, name)
    check(function(on_device(signed[:, None]), on_device(unsigned)), expected(signed[:, None], unsigned))
    check(function(on_device(unsigned[:, None]), on_device(signed)), expected(unsigned[:, None], signed))


def test_zeros_have_the_signs_that_the_standard_gives_them() -> None:
    """A remainder of 0 that of the divisor, a quotient by an infinity its own; and 0 to a complex power is 0 where the real
    part of that is positive.
    """
    x1 = np.array([0.0, -0.0, 6.0, -6.0])
    for divisor in (3.0, -3.0, np.inf, -np.inf):
        found = kernels.remainder(on_device(x1), divisor).numpy_blocking()
        np.testing.assert_array_equal(found, np.remainder(x1, divisor))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(np.remainder(x1, divisor)))
    quotients = kernels.floor_divide(on_device(np.array([3.0, -3.0, 3.0, -3.0])), np.inf).numpy_blocking()
    np.testing.assert_array_equal(np.signbit(quotients), [False, True, False, True])
    found = kernels.expm1(on_device(np.array([complex(-0.0, 0.0)]))).numpy_blocking()
    assert not np.signbit(found.real) and not np.signbit(found.imag)
    found = kernels.tanh(on_device(np.array([complex(np.inf, 2.0), complex(-np.inf, -2.0)]))).numpy_blocking()
    np.testing.assert_array_equal(found, [1, -1])
    np.testing.assert_array_equal(np.signbit(found.imag), [False, True])
    zeros, powers = np.zeros(3, complex), np.array([1 + 2j, 2, 0])
    check(kernels.pow(on_device(zeros), on_device(powers)), zeros**powers)


def test_complex_numbers_that_are_infinite_or_nan() -> None:
    """Signs, quotients by zeros of any sign, and comparisons, of which NaN in any part has none."""
    parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    host = np.empty((len(parts), len(parts)), complex)
    host.real, host.imag = parts[:, None], parts
    x = on_device(host.ravel())
    for name in ("sign", "sqrt"):
        check(getattr(kernels, name)(x), getattr(np, name)(host.ravel()))
    for name in ("less", "greater_equal"):
        check(getattr(kernels, name)(x[:, None], x), getattr(np, name)(host.reshape(-1, 1), host.ravel()))
    for zero in (0j, complex(-0.0, 0.0), complex(0.0, -0.0)):
        check(kernels.divide(x, on_device(np.array([zero]))), host.ravel() / zero)


def test_signs_of_tiny_complex_numbers() -> None:
    """Subnormal ones as well as others; those of real numbers are 1."""
    for dtype, tiny in (("c8", 2.0**-149), ("c16", 2.0**-1074)):
        sizes = [tiny, 7 * tiny, tiny * 2.0**20, np.finfo(dtype).tiny, 1.5e-30, 0.9e-30, 49.0]
        host = np.multiply.outer(sizes, [1, -1, 1j, 3 + 4j, -5 + 12j, 1 - 1j]).astype(dtype)
        check(kernels.sign(on_device(host)), np.broadcast_to(host[-1] / abs(host[-1]), host.shape))
    reals = np.arange(1.0, 2000)
    np.testing.assert_array_equal(kernels.sign(on_device(reals + 0j)).numpy_blocking(), np.ones(1999))


def test_reciprocals_of_integers() -> None:
    """Cut to whole numbers; of 0, where NumPy's depend on the type and the processor, 0."""
    for dtype in ("i1", "i8", "u4"):
        host = np.array([0, 1, 2, np.iinfo(dtype).max, np.iinfo(dtype).min, -1 if dtype[0] == "i" else 1]).astype(dtype)
        found = kernels.reciprocal(on_device(host)).numpy_blocking()
        np.testing.assert_array_equal(found, np.where(abs(host) == 1, host, 0))


@pytest.mark.parametrize("x1", ["?", "i1", "u4", "i8", "f4", "c8"])
@pytest.mark.parametrize("x2", ["i2", "f8"])
def test_types_are_promoted_as_numpy_does(x1: str, x2: str) -> None:
    """Sums of every kind with every kind."""
    a, b = np.array([1, 0, 1], x1), np.array([3, 4, 5], x2)
    check(kernels.add(on_device(a), on_device(b)), a + b)


def test_numbers_are_weak() -> None:
    """They take the array's type, unless they are of a higher kind; NumPy's scalars keep theirs."""
    host = np.arange(5, dtype="f4")
    array = on_device(host)
    check(kernels.multiply(array, 2.5), host * np.float32(2.5))
    check(kernels.subtract(1, array), 1 - host)
    check(kernels.add(array, np.float64(1)), host + np.float64(1))
    whole = on_device(np.arange(5, dtype="i2"))
    check(kernels.add(whole, 3), np.arange(5, dtype="i2") + np.int16(3))
    check(kernels.divide(whole, 2.0), np.arange(5, dtype="i2") / 2.0)
    mask = on_device(host > 2)  # a truth value has a type, which is the least
    check(kernels.logical_not(mask), host <= 2)
    check(kernels.bitwise_and(mask, True), host > 2)
    check(kernels.maximum(mask, True), np.ones(5, bool))
    check(kernels.where(mask, True, False), host > 2)
    check(kernels.where(mask, array, True), np.where(host > 2, host, np.float32(1)))


def test_division_by_zero_raises_nothing() -> None:
    """Infinities and NaN, of integers too."""
    host = np.array([1, 0, -3], "i4")
    check(kernels.divide(on_device(host), on_device(np.zeros(3, "i4"))), [np.inf, np.nan, -np.inf])


@given(st.data())
@settings(deadline=None, max_examples=examples(40))
def test_shapes_broadcast_and_strides_do_not_matter(data: st.DataObject) -> None:
    """Any two shapes that go together, any basic views of them."""
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=6, max_side=3, min_side=0))
    hosts, arrays = [], []
    for shape in shapes.input_shapes:
        host = np.arange(np.prod([2 * n for n in shape]), dtype="f8").reshape([2 * n for n in shape])
        every = (..., *(slice(None, None, data.draw(st.sampled_from([2, -2]))) for _ in shape))
        hosts.append(host[every])
        arrays.append(on_device(host)[every])
    check(kernels.add(*arrays), hosts[0] + hosts[1])
    out = aiodev.zeros(shapes.result_shape, device="cpu")
    assert kernels.multiply(*arrays, out=out) is out
    check(out, hosts[0] * hosts[1])


def test_out_may_be_a_view_with_gaps() -> None:
    """What lies between stays as it was."""
    base = aiodev.zeros((4, 6), device="cpu")
    kernels.add(on_device(np.ones((2, 3))), 1.0, out=base[::2, ::2])
    expected = np.zeros((4, 6))
    expected[::2, ::2] = 2
    check(base, expected)


def test_where_clip_and_astype() -> None:
    """Each in its forms."""
    host = np.array([-2, -1, 0, 1, 2], "f4")
    array = on_device(host)
    check(kernels.where(kernels.greater(array, 0), array, 0), np.where(host > 0, host, np.float32(0)))
    check(kernels.where(kernels.greater(array, 0), 1, 2.5), np.where(host > 0, 1.0, 2.5))
    check(kernels.clip(array, -1, 1), host.clip(-1, 1))
    check(kernels.clip(array, min=0), host.clip(0, None))
    check(kernels.clip(array, max=on_device(host[::-1])), np.minimum(host, host[::-1]))
    check(kernels.clip(array), host)
    for dtype in ("i4", "?", "f2", "f8", "c16"):
        check(kernels.astype(array, dtype), host.astype(dtype))
    assert kernels.astype(array, "f4", copy=False) is array
    assert kernels.astype(array, "f4") is not array
    with pytest.raises(TypeError, match="complex"):
        kernels.astype(kernels.astype(array, "c8"), "f4")
    odd = np.array([0, 1j, complex(0, np.nan), -0.0])
    check(kernels.astype(on_device(odd), bool), odd.astype(bool))


@pytest.mark.parametrize("given", ["f2", "f4", "f8"])
@pytest.mark.parametrize("wanted", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_floats_beyond_an_integer_are_converted_alike(given: str, wanted: str) -> None:
    """Wherever they stand: alone, in vector code, or behind it. Those that ``int32`` has wrap, but for negative ``uint64``."""
    beyond = np.array([300, -1, -300, 40000, -40000, 2.0**31 - 128, -(2.0**31), np.inf, -np.inf, np.nan, 3e9, -3e9, 1e20])
    with np.errstate(over="ignore"):
        host = beyond.astype(given)
    count = 1 + 256 + 3
    found = kernels.astype(on_device(np.repeat(host, count).reshape(-1, count)), wanted).numpy_blocking()
    alone = [kernels.astype(on_device(one), wanted).numpy_blocking() for one in host.reshape(-1, 1)]
    np.testing.assert_array_equal(found, np.broadcast_to(alone, found.shape))
    wraps = (abs(host.astype("f8")) <= 2.0**31) & ((wanted != "u8") | (host >= 0))
    np.testing.assert_array_equal(found[wraps, 0], host[wraps].astype("i8").astype(wanted))
    if wanted == "u4":
        assert kernels.astype(on_device(np.array([3e9], "f8")), wanted).numpy_blocking() == 3_000_000_000


def test_astype_moves_where_it_is_told() -> None:
    """``device`` is the array API's; an array that is there already is copied as without it."""
    array = on_device(np.array([0.5, 2.5]))
    for device in ("cpu", aiodev.Device("cpu"), None):
        check(kernels.astype(array, "i8", device=device), [0, 2])
        assert kernels.astype(array, "f8", copy=False, device=device) is array
        assert kernels.astype(array, "f8", device=device) is not array
    with pytest.raises(aiodev.BackendNotFoundError):
        kernels.astype(array, "i8", device="elsewhere")


def test_what_does_not_fit_is_said_with_the_functions_name() -> None:
    """Shapes and dtypes, as they are."""
    x = on_device(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"add: the shapes \(2, 3\) and \(3, 2\) do not broadcast"):
        kernels.add(x, x.T)
    with pytest.raises(TypeError, match="bitwise_and: not defined for float64 and int; .*astype"):
        kernels.bitwise_and(x, 1)
    with pytest.raises(TypeError, match="negative: not defined for bool"):
        kernels.negative(kernels.greater(x, 0))


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 3), (0.5, 2.5), (3.0, 1), (np.float32(0.5), None), (None, np.int8(2)), (np.full(5, 1000), None), (np.full(5, 1.5), 3)],
)
@pytest.mark.parametrize("dtype", ["i1", "f4", "?"])
def test_bounds_are_promoted_as_numpy_does(dtype: str, low: Any, high: Any) -> None:
    """Fractions and numbers beyond the dtype are not cut silently."""
    host = np.arange(5).astype(dtype)
    bounds = [on_device(bound) if isinstance(bound, np.ndarray) else bound for bound in (low, high)]
    check(kernels.clip(on_device(host), *bounds), np.clip(host, low, high))


def test_bounds_that_do_not_fit_are_refused() -> None:
    """Neither they nor the result are cut; those that nothing can pass are none."""
    host = np.arange(5, dtype="i1")
    x = on_device(host)
    for low, high in ((2, 1000), (-1000, 3), (-(2**70), 2**70), (None, 128), (-129, None)):
        check(kernels.clip(x, low, high), np.clip(host, low, high))
    for low, high in ((1000, None), (0, -1000), (1000, 2000)):
        with pytest.raises(OverflowError):
            kernels.clip(x, low, high)
    with pytest.raises(TypeError, match="out"):
        kernels.clip(x, 0.5, 2.5, out=x)


@pytest.mark.parametrize("dtype", ["i1", "u8"])
def test_integers_beyond_the_dtype(dtype: str) -> None:
    """They can be compared with, as in NumPy, and not computed with; which is said every time."""
    host = np.array([0, 1, 127], dtype)
    x = on_device(host)
    for number in (2, -129, 1 << 64, 2, -(1 << 70)):
        for name in some(("less", "equal", "not_equal", "less_equal", "greater", "greater_equal"), 2):
            check(getattr(kernels, name)(x, number), getattr(np, name)(host, number))
            check(getattr(kernels, name)(number, x), getattr(np, name)(number, host))
        for array in (x, x[:0]):
            if number == 2:
                kernels.add(array, number)
                continue
            with pytest.raises(OverflowError, match=f"add: argument x2: {number} is out of bounds for"):
                kernels.add(array, number)


def test_signs_of_zeros_and_of_large_unsigned_integers() -> None:
    """Zero has none, whatever its sign bit; the upper half of unsigned integers is positive."""
    for dtype in ("u1", "u8"):
        host = np.array([0, 1, np.iinfo(dtype).max], dtype)
        check(kernels.sign(on_device(host)), np.sign(host))
    found = kernels.sign(on_device(np.array([-0.0, 0.0, -2.5, np.nan], "f4"))).numpy_blocking()
    assert found.tobytes() == np.array([0.0, 0.0, -1.0, np.nan], "f4").tobytes()


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("name", ["expm1", "tanh"])
def test_complex_numbers_of_all_sizes(name: str, dtype: str) -> None:
    """Each part is accurate for very small ones, and nothing overflows on the way to a result that does not."""
    sizes = np.random.default_rng(1).uniform(-30, 2, (2, 500))
    parts = 10**sizes * np.random.default_rng(2).choice([-1, 1], (2, 500))
    host = np.append(parts[0] + 1j * parts[1], [400 + 1j, -800 - 3j, 0]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(host.astype("c16")).astype(dtype)
    found = getattr(kernels, name)(on_device(host)).numpy_blocking()
    assert found.dtype == dtype
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), 1e-14 if dtype == "c16" else 1e-6, 1e-290)


def test_rounding_leaves_integers_alone() -> None:
    """As the array API has it: the same dtype."""
    host = np.array([1, -2, 3], "i4")
    for name in ("ceil", "floor", "round", "trunc"):
        check(getattr(kernels, name)(on_device(host)), host)


def test_wrong_arguments_name_themselves() -> None:
    """Which argument, what was expected, what to do."""
    array = aiodev.ones(3, device="cpu")
    with pytest.raises(TypeError, match=r"add: argument x2: .*NumPy.*asarray"):
        kernels.add(array, np.ones(3))
    for convert in (lambda x: kernels.astype(x, "f4"), kernels.clip):
        with pytest.raises(TypeError, match="argument x: expected an array, got list"):
            convert([1.0])
    with pytest.raises(TypeError, match="numbers only"):
        kernels.add(1, 2)
    with pytest.raises(TypeError, match="x1"):
        kernels.add("a", array)
    with pytest.raises(TypeError, match="nextafter: float16"):
        kernels.nextafter(aiodev.ones(3, "i1", "cpu"), 2)
    with pytest.raises(ValueError, match="out"):
        kernels.add(array, 1, out=aiodev.empty(4, device="cpu"))
    with pytest.raises(TypeError, match="out"):
        kernels.add(array, 1.5, out=aiodev.empty(3, "i4", "cpu"))
    with pytest.raises(ValueError):
        kernels.add(array, aiodev.ones(4, device="cpu"))


async def test_submission_does_not_wait() -> None:
    """A chain behind a host-held stream is submitted at once, and runs in order."""
    stream = aiodev.Stream("cpu")
    async with stream:
        gate = stream._gate()
        x = aiodev.ones(1000)
        for _ in range(10):
            x = kernels.add(kernels.multiply(x, 2.0), 1.0)
        assert not stream.query()
        gate.open()
        assert (await x.numpy() == 2047).all()


def test_a_layout_that_was_seen_before() -> None:
    """The same shapes with other strides, other dtypes, other kinds of numbers, or another result are not taken for it."""
    host = np.arange(6, dtype="f4").reshape(2, 3)
    x = on_device(host)
    other = on_device(host.reshape(3, 2)).T
    for _ in range(2):
        np.testing.assert_array_equal(kernels.add(x, x).numpy_blocking(), host + host)
        np.testing.assert_array_equal(kernels.add(x, other).numpy_blocking(), host + host.reshape(3, 2).T)
        np.testing.assert_array_equal(kernels.add(x, 2).numpy_blocking(), host + 2)
        np.testing.assert_array_equal(kernels.add(2.5, x).numpy_blocking(), host + 2.5)
        assert kernels.add(x, np.float64(2)).dtype == np.float64
        out = aiodev.zeros((2, 6), np.float64, "cpu")
        assert kernels.add(x, x, out=out[:, ::2]).dtype == np.float64
        np.testing.assert_array_equal(out.numpy_blocking()[:, ::2], host + host)
        with pytest.raises(TypeError, match="out"):
            kernels.add(x, x, out=host)
        with pytest.raises(ValueError, match="shape"):
            kernels.add(x, x, out=aiodev.zeros(6, np.float32, "cpu"))


def test_one_of_numpys_numbers_is_no_array() -> None:
    """Nor where an array of its dtype came before, for which types are known."""
    kernels.exp(on_device(np.float32([1])))
    with pytest.raises(TypeError, match="exp: expected an array among the arguments"):
        kernels.exp(np.float32(1))


def test_numbers_of_own_classes_are_numbers() -> None:
    """With the types of Python's."""

    class Count(int):
        pass

    check(kernels.add(on_device(np.int8([1])), Count(2)), np.int8([3]))


def test_numbers_that_no_device_has_are_refused_by_name() -> None:
    """Beside an array, too."""
    for number in (np.timedelta64(1, "s"), np.longdouble(1)):
        if f"{number.dtype.kind}{number.itemsize}" != "f8":
            with pytest.raises(TypeError, match="add: argument x2: expected an array or a number"):
                kernels.add(on_device([1]), number)


def test_a_bound_beyond_all_floats_is_told_by_name() -> None:
    """Floats have no limits to compare it with."""
    with pytest.raises(OverflowError, match="clip: argument min"):
        kernels.clip(on_device([1.0]), 10**400)


def test_kernels_of_one_name_have_sources_of_their_own() -> None:
    """What a kernel reads is found out from its source when it is needed, whichever others were made since."""
    forms = ((0,), (0,))
    plain, cast = (make_kernel("negative", "-{x}", ["x"], forms, [how], 1, None) for how in ("{}", "np.float32({})"))
    assert inspect.getsource(plain.py_func) == "def body(i0, x, out):\n    out[i0] = -x[i0]\n"
    assert inspect.getsource(cast.py_func) == "def body(i0, x, out):\n    out[i0] = -np.float32(x[i0])\n"
