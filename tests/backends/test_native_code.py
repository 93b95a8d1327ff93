"""Native functions: what the translator makes of Python, and what Python sees of it."""

# What is translated has no types to declare.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples_of, strategies as st

from aiodev._kernel.dispatch import native
from aiodev._native import wrap
from aiodev._native.compile import (
    External,
    boolean,
    bytes_type,
    callback,
    entry,
    exported,
    inner,
    int32,
    int64,
    method,
    void,
)
from aiodev._native.emit import emit
from aiodev._native.fields import Cell
from aiodev._native.intrinsics import bytes_address, bytes_length, call_entry, get, on_stack, put
from aiodev._native.kinds import TranslationError
from aiodev._native.native_code import NativeCode
from aiodev._native.objects import Object, Tuple, as_int, error_is_set, new_int

TWO = 2
_abs = External("abs", int32(int32))
_is_held = External("PyGILState_Check", int32())


def compiled(*functions: Any) -> Any:
    """The functions, to be called; one if there is one."""
    code = NativeCode(emit("test", functions))
    made = [code.function(function) for function in functions]
    return made[0] if len(made) == 1 else made


NUMBERS = (-(2**63), -(2**62) - 5, -9, -8, -7, -2, -1, 0, 1, 2, 3, 7, 8, 9, 64, 2**62 + 3, 2**63 - 1)


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a // b if b else 0,
    "remainder": lambda a, b: a % b if b else 0,
    "bits": lambda a, b: (a & b) | (a ^ ~b),
    "shifts": lambda a, b: (a << (b & 15)) + (a >> (b & 15)),
    "signs": lambda a, b: -a + +(a > b),
    "by a power": lambda a, b: a // 8 + b % 16,
    "by a constant": lambda a, b: a // 7 + b % 5,
    "by a negative": lambda a, b: a // -8 + b % -5,
    "comparisons": lambda a, b: (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b),
    "chains": lambda a, b: (a < b < 9) + 2 * (-7 <= a <= b),
    "logic": lambda a, b: (a and b) + 3 * (a or b) + 5 * (not a),
    "choice": lambda a, b: a if a < b else TWO,
    "extremes": lambda a, b: min(a, b, 5) + max(3, a) + min(TWO, 3),
}


@exported(int64(int64, int64))
def _sum(a, b):
    return a + b


@exported(int64(int64, int64))
def _difference(a, b):
    return a - b


@exported(int64(int64, int64))
def _product(a, b):
    a *= b
    return a


@exported(int64(int64, int64))
def _quotient(a, b):
    return a // b


@exported(int64(int64, int64))
def _remainder(a, b):
    return a % b


@exported(int64(int64, int64))
def _bits(a, b):
    return (a & b) | (a ^ ~b)


@exported(int64(int64, int64))
def _shifts(a, b):
    return (a << (b & 15)) + (a >> (b & 15))


@exported(int64(int64, int64))
def _signs(a, b):
    return -a + (a > b)


@exported(int64(int64, int64))
def _by_a_power(a, b):
    return a // 8 + b % 16


@exported(int64(int64, int64))
def _by_a_constant(a, b):
    return a // 7 + b % 5


@exported(int64(int64, int64))
def _by_a_negative(a, b):
    return a // -8 + b % -5


@exported(int64(int64, int64))
def _comparisons(a, b):
    return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)


@exported(int64(int64, int64))
def _chains(a, b):
    return (a < b < 9) + 2 * (-7 <= a <= b)


@exported(int64(int64, int64))
def _logic(a, b):
    return (a and b) + 3 * (a or b) + 5 * (not a)


@exported(int64(int64, int64))
def _choice(a, b):
    return a if a < b else TWO


@exported(int64(int64, int64))
def _extremes(a, b):
    return min(a, b, 5) + max(3, a) + min(TWO, 3)


NATIVE = (
    _sum, _difference, _product, _quotient, _remainder, _bits, _shifts, _signs, _by_a_power, _by_a_constant, _by_a_negative,
    _comparisons, _chains, _logic, _choice, _extremes,
)  # fmt: skip


def test_arithmetic_is_pythons_in_words() -> None:
    """Of every pair of small, large and extreme numbers, wrapped to 64 bits; a division by 0 gives 0."""
    made = compiled(*NATIVE)
    assert len(made) == len(ARITHMETIC)
    for (name, meant), function in zip(ARITHMETIC.items(), made, strict=True):
        for a, b in itertools.product(NUMBERS, NUMBERS):
            assert function(a, b) == wrapped(meant(a, b)), (name, a, b)


@exported(int64(int64))
def _flow(n):
    total, seen = 0, 0
    for i in range(n):
        if i % 3 == 0:
            continue
        if i > 20:
            break
        total += i
    for i in range(2, n, 5):
        total += i
        i = 0  # which the next turn does not see
    while True:
        seen += 1
        if seen * seen > n:
            break
    for step in (1, TWO, 4):
        if step > n:
            break
        if step == TWO:
            continue
        seen, total = total, seen + step
    first = last = total - seen
    if n < 0:
        return -1
    elif n == 7:
        pass
    else:
        last += 1
    return first * 1000 + last


@pytest.mark.parametrize("n", [-5, 0, 1, 2, 3, 7, 8, 30, 1000])
def test_loops_and_branches_are_pythons(n: int) -> None:
    """Nested, with breaks and continues, over ranges and constants."""
    assert compiled(_flow)(n) == _flow.py_func(n)


@inner
def _note(place, value):
    put(place, get(place) * 10 + value)
    return value


@exported(int64(int64))
def _order(place):
    put(place, 0)
    if _note(place, 0) and _note(place, 1) or _note(place, 2):
        _note(place, 3)
    if _note(place, 4) < _note(place, 3) < _note(place, 9):
        _note(place, 9)
    _note(place, 5) if place != 0 else _note(place, 6)
    return get(place)


def test_evaluation_is_in_order_and_lazy() -> None:
    """What Python would not evaluate is not."""
    cell = ctypes.c_int64()
    assert compiled(_order)(ctypes.addressof(cell)) == 23435


@inner
def _positive(value):
    if value < 0:
        raise MemoryError("it is negative")
    return value


@inner
def _twice(value):
    return 2 * _positive(value)


@exported(int64(int64), nogil=True)
def _raising(value):
    return _twice(value) + 1


def test_an_error_passes_through_those_who_call() -> None:
    """It arrives as the exception that was raised, with its message, also without the GIL."""
    function = compiled(_raising)
    assert function(4) == 9
    for _ in range(3):
        with pytest.raises(MemoryError, match=r"^it is negative$"):
            function(-1)


@exported(int64(int64, boolean, bytes_type))
def _taken(number, truth, text):
    return number * 100 + truth * 10 + bytes_length(text) + get(bytes_address(text))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("1", True, b""), TypeError),
        ((1.0, True, b""), TypeError),
        ((2**63, True, b""), OverflowError),
        ((1, True, bytearray(8)), TypeError),
        ((1, True, None), TypeError),
        ((1, True), TypeError),
        ((1, True, b"", 4), TypeError),
        ((), TypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    """By type, size and number."""
    with pytest.raises(error):
        compiled(_taken)(*arguments)


def test_arguments_and_results_leak_nothing() -> None:
    """Words, truths, bytes and None come and go."""
    function = compiled(_taken)
    assert function(-1, True, bytes(8)) == -100 + 10 + 8
    assert function(1, [], (5).to_bytes(8, "little")) == 100 + 8 + 5
    text, number = bytes(range(8)), 1 << 40
    before = sys.getrefcount(text), sys.getrefcount(number)
    for _ in range(1000):
        function(number, True, text)
    assert (sys.getrefcount(text), sys.getrefcount(number)) == before


@exported(boolean(int64))
def _truth(value):
    return value & 6


@exported(void(int64))
def _nothing(value):
    pass


@exported(int64())
def _with_gil():
    return _is_held()


@exported(int64(), nogil=True)
def _without_gil():
    return _is_held()


def test_results_are_of_their_kinds() -> None:
    """A truth is a bool, nothing is None; and the GIL is let go where that was said."""
    truth, nothing, with_gil, without = compiled(_truth, _nothing, _with_gil, _without_gil)
    assert truth(2) is True and truth(8) is False and truth(4) is True
    assert nothing(1) is None
    assert (with_gil(), without()) == (1, 0)
    assert truth.__name__ == "_truth"


@entry
def _sum_entry(arguments, lo, hi):
    return get(arguments) + lo + hi


@entry
def _positive_entry(arguments, lo, hi):
    return _positive(lo - hi)


@exported(int64(int64, int64, int64))
def _call(code, first, second):
    outcome = on_stack(16)
    if call_entry(code, outcome, 0, first, second):
        return -1
    return get(outcome)


def test_an_entry_is_called_as_kernels_are() -> None:
    """``int32 f(result*, excinfo**, arguments, lo, hi)``: its result is written, its status 0; it is 1 where it has raised."""
    code = NativeCode(emit("test", [_sum_entry, _positive_entry, _call]))
    word = ctypes.c_int64
    result, excinfo, argument = word(-1), ctypes.c_void_p(), word(100)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, word, word)(code.address(_sum_entry))
    status = function(ctypes.addressof(result), ctypes.addressof(excinfo), ctypes.addressof(argument), 20, 3)
    assert (status, result.value) == (0, 123)
    address, call = code.address(_positive_entry), code.function(_call)
    assert (call(address, 7, 3), call(address, 3, 7), call(address, 3, 3)) == (4, -1, 0)


def test_a_callback_is_called_by_c_and_knows_its_function_s_constants() -> None:
    """Constants of the function around it are its own; words on the stack are apart."""
    base, cell = 1000, ctypes.c_int64(7)

    def added(place):
        first, second = on_stack(16), on_stack(8)
        put(first + 8, get(place))
        put(second, base)
        put(place, get(first + 8) + get(second) + _abs(-5))

    function = callback(added)
    address = NativeCode(emit("test", [function])).address(function)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(cell))
    assert cell.value == 1012


@inner
def _endless(n):
    return _endless(n - 1)


@exported(int64(int64))
def _recursive(n):
    return _endless(n)


@exported(int64(int64))
def _floating(n):
    return n + 1.5


@exported(int64(int64))
def _unknown(n):
    return print(n)


@exported(int64(int64))
def _other_error(n):
    raise ValueError("no")


@exported(int64(int64))
def _with(n):
    with n:
        return 1


@exported(int64(int64))
def _too_few(n):
    return _note(n)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_recursive, "calls itself"),
        (_floating, r"test_native_code.py:\d+: 1.5 is not understood"),
        (_unknown, "a call of print"),
        (_other_error, "an exception other than MemoryError"),
        (_with, "With is not understood"),
        (_too_few, "with 1 arguments"),
    ],
)
def test_what_native_code_has_not_is_refused(function: Any, message: str) -> None:
    """By its line, when it is compiled."""
    with pytest.raises(TranslationError, match=message):
        emit("test", [function])


def test_what_code_is_made_of_is_let_go_at_once() -> None:
    """Function by function, not by the collector: that would hold the GIL while it walks all of them, again and again."""
    functions = [getattr(native, name) for name in native.__all__]
    held: set[int] = set()

    def instructions() -> int:
        return sum(type(each).__module__ == "llvmlite.ir.instructions" for each in gc.get_objects())

    def watched(module: Any, function: Any) -> None:
        held.add(instructions())
        role(module, function)

    role = wrap._ROLES["method"]
    gc.collect()
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(wrap._ROLES, "method", watched)
            text = wrap.make_module("test", functions)
        assert text.count(" = load ") > 1000 and max(held) == instructions() == 0
    finally:
        gc.enable()


def test_code_of_several_files_is_apart() -> None:
    """Functions of one name, each in its own file, keep their own meaning."""

    def make(value):
        @exported(int64())
        def same():
            return value

        return same

    first, second = compiled(make(1)), compiled(make(2))
    assert (first(), second()) == (1, 2)


@method
def _read_int(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    value = as_int(given.value)
    if value == -1 and error_is_set() != 0:
        return 0
    return new_int(value)


near_powers = st.builds(lambda bits, by: (1 << bits) + by, st.integers(0, 65), st.integers(-2, 2))


@pytest.fixture(scope="module")
def read_int() -> Callable[[int], int]:
    """Reads an int natively, and makes another."""
    return NativeCode(emit("test", [_read_int])).method(_read_int)(None)


@examples_of(number=st.integers(-(1 << 66), 1 << 66) | near_powers)
def test_ints_are_read_where_they_lie(read_int: Callable[[int], int], number: int) -> None:
    """Short ones; others by CPython, which refuses what is no word."""
    for value in (number, -number):
        if -(1 << 63) <= value < 1 << 63:
            assert read_int(value) == value
        else:
            with pytest.raises(OverflowError):
                read_int(value)


@pytest.mark.parametrize("value", [True, False, np.int64(7), np.uint8(0), np.int64(-1), np.int64(1 << 40)])
def test_other_integers_are_asked(read_int: Callable[[int], int], value: Any) -> None:
    """NumPy's have their value where an int has its size."""
    assert read_int(value) == int(value)


def test_what_is_no_integer_is_refused(read_int: Callable[[Any], int]) -> None:
    """A float, of which some have the bits of an int's size."""
    for value in (1.0, 5e-324, None, "1"):
        with pytest.raises(TypeError):
            read_int(value)


@pytest.mark.parametrize("kind", ["function", "method"])
def test_threads_that_ask_for_a_function_at_once_have_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them was given works on: none of another's takes its place, and its memory."""
    code = NativeCode(emit("test", [_read_int if kind == "method" else _one_more]))
    asked = threading.Barrier(4)
    found = code.address

    def address(function: Any) -> int:
        asked.wait(30)  # all of them have seen that there is none yet
        return found(function)

    monkeypatch.setattr(code, "address", address)
    with ThreadPoolExecutor(4) as pool:
        if kind == "function":
            made = list(pool.map(code.function, 4 * [_one_more]))
        else:
            made = list(pool.map(lambda _: code._method_of(_read_int, "read", None), range(4)))
    assert len({id(each) for each in made}) == 1
    if kind == "function":
        assert made[0](7) == 8


@exported(int64(int64))
def _one_more(number: int) -> int:
    """One more."""
    return number + 1
