"""Which arrays a body surely does not write."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_entry import needs_compiler

from aiodev import lang
from aiodev._backends.cpu.compile import compiler
from aiodev._core.backend.interface import KernelSpec
from aiodev._kernel.analysis.source import analyse

ARRAYS = ("x", "y", "out")
unknown: Any = None
WHERE = slice(0, 2)
ROWS = (1, 2)


def total(v: Any) -> Any:
    part = 0.0
    for k in range(v.size):
        part += v[k]
    return part


def first_half(v: Any) -> Any:
    return v[: v.size // 2]


def both(v: Any, w: Any) -> Any:
    return v, w


def clear(v: Any, value: float = 0.0) -> None:
    for k in range(v.size):
        v[k] = value


def clear_second(v: Any, w: Any) -> None:
    v[0] + clear(w)


def last_of(v: Any) -> Any:
    return last_of(v[1:]) if v.size > 1 else v[0]


def missing(k: int) -> Any:
    if k > 9:
        return k


def any_of(*values: Any) -> Any:
    values[1][0] = 0
    return 0


# What only reads x, as long as it has so many dimensions; y and out are said beside it.


def elements(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] + y[i + 1].real * len(x) * y.shape[0]


def rows(i: int, x: Any, y: Any, out: Any) -> None:
    row = x[i]
    row[0] = y[i][1]
    out[i, 0] = y[i, 2]


def sums(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i : i + 2]
    out[i] = total(part) + total(v=y[i:]) + total(first_half(x[1:])) + np.sum(x[:2]) + x[:2].sum() + np.dot(part, part)
    out[i] += lang.sum(x[i:]) + lang.sum(x[i:], i, True) + lang.sum_squares(x[i:], i, i) + lang.moments(x[i:], i)[1]


def products(i: int, x: Any, y: Any, out: Any) -> None:
    lang.matmul(x[i:], y, out[i:])


def multiplied(i: int, x: Any, y: Any, out: Any) -> None:
    lang.matmul(y, out, x[i:])


def tuples(i: int, x: Any, y: Any, out: Any) -> None:
    a, b = x[i:], y[i:]
    c, d = both(a, b)
    for v, w in zip(c, d):  # noqa: B905
        out[i] = v + w
    for k, v in enumerate(a):
        out[k] = v


def swapped(i: int, x: Any, y: Any, out: Any) -> None:
    c, d = both(out[i:], x[i:])
    c[0] = d[0] + y[ROWS[0]]


def recursive(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = y[i]
    x[last_of(x[:2])]


def fresh(i: int, x: Any, y: Any, out: Any) -> None:
    new = x[i:].copy()
    new[0] = y[i]
    value = x[i]
    value += 1
    out[i] = new[0] + value


def inside(i: int, x: Any, y: Any, out: Any) -> None:
    def part(k: int) -> Any:
        return y[k]

    out[i] = x[i] + part(i)


# What may write x.


def sliced(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i:]
    part[0] = y[i]
    out[i] = 0


def sliced_twice(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = y[i]
    x[i:][1:][0] = 0


def renamed(i: int, x: Any, y: Any, out: Any) -> None:
    other = x
    other[i] = y[i]
    out[i] = 0


def renamed_later(i: int, x: Any, y: Any, out: Any) -> None:
    target = out
    for _ in range(2):
        target[i] = y[i]
        target = x


def rebound(i: int, x: Any, y: Any, out: Any) -> None:
    x = y
    x[i] = 0
    out[i] = 0


def chosen(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[:2] if i else out[:2]
    part[0] = y[i]


def added_to(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i:]
    part += y[i]
    out[i] = 0


def updated(i: int, x: Any, y: Any, out: Any) -> None:
    x[i] += y[i]
    lang.atomic_add(out, i, 1)


def updated_atomically(i: int, x: Any, y: Any, out: Any) -> None:
    lang.atomic_add(x[i:], 0, y[i])
    out[i] = 0


def unpacked(i: int, x: Any, y: Any, out: Any) -> None:
    x[i], out[i] = y[i], 0


def in_a_tuple(i: int, x: Any, y: Any, out: Any) -> None:
    pair = (x[i:], y[i:])
    pair[0][0] = 0
    out[i] = 0


def in_a_loop(i: int, x: Any, y: Any, out: Any) -> None:
    for part in (x[i:], out[i:]):
        part[0] = y[i]


def in_what_it_calls(i: int, x: Any, y: Any, out: Any) -> None:
    clear(x[i:])
    out[i] = y[i]


def by_its_name(i: int, x: Any, y: Any, out: Any) -> None:
    clear_second(y, w=x[i:])
    out[i] = 0


def by_what_it_gets_back(i: int, x: Any, y: Any, out: Any) -> None:
    first_half(x)[0] = y[i]
    out[i] = 0


def by_an_unknown(i: int, x: Any, y: Any, out: Any) -> None:
    unknown(x, i)
    out[i] = y[i]


def by_stars(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = any_of(y[i], x[:2])


def by_a_method(i: int, x: Any, y: Any, out: Any) -> None:
    x.fill(y[i])
    out[i] = 0


def into_a_result(i: int, x: Any, y: Any, out: Any) -> None:
    np.add(y[i:], 1, x[i:])
    out[i] = 0


def by_a_property(i: int, x: Any, y: Any, out: Any) -> None:
    x.T[i] = 0
    x.flat[i] = y[i]
    out[i] = 0


def by_a_function_inside(i: int, x: Any, y: Any, out: Any) -> None:
    def put(k: int) -> None:
        x[k] = y[i]

    put(i)
    out[i] = 0


def in_a_comprehension(i: int, x: Any, y: Any, out: Any) -> None:
    parts = [v for v in (x[i:], out[i:])]  # noqa: C416
    parts[0][0] = y[i]


def with_another_name(i: int, x: Any, y: Any, out: Any) -> None:
    if (part := x[i:]).size:
        part[0] = y[i]
    out[i] = 0


def by_a_slice(i: int, x: Any, y: Any, out: Any) -> None:
    where = slice(0, 2)
    part = x[where]
    part[0] = y[i]
    out[i] = 0


def by_a_slice_of_the_module(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[WHERE]
    part[0] = y[i]
    out[i] = 0


def by_nothing(i: int, x: Any, y: Any, out: Any) -> None:
    axis = None
    part = x[axis]
    part[0] = y[i]
    out[i] = 0


def by_what_may_be_nothing(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[missing(i)]
    part[0] = y[i]
    out[i] = 0


def by_a_tuple_of_nothing(i: int, x: Any, y: Any, out: Any) -> None:
    where = ()
    part = x[where]
    part[0] = y[i]
    out[i] = 0


def expanded(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i, None]
    part[0] = y[i]
    out[i] = 0


def expanded_by_name(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i, np.newaxis]
    part[0] = y[i]
    out[i] = 0


def growing(i: int, x: Any, y: Any, out: Any) -> None:
    both = (y, x)
    for _ in range(3):
        both = (both, x)
    both[1][i] = 0
    out[i] = 0


@pytest.mark.parametrize(
    ("body", "ndim", "only_read"),
    [
        (elements, 1, {"x", "y"}),
        (elements, 2, {"x", "y"}),  # where elements of an array are stored, they are copied
        (rows, 1, {"x", "y"}),
        (rows, 2, {"y"}),
        (sums, 1, {"x", "y"}),
        (products, 2, {"x", "y"}),
        (multiplied, 2, {"y", "out"}),
        (tuples, 1, {"x", "y"}),
        (swapped, 1, {"y"}),  # a tuple is one thing
        (recursive, 1, {"y"}),
        (fresh, 1, {"x", "y"}),
        (fresh, 2, {"y"}),
        (inside, 1, {"x"}),
        (sliced, 1, {"y"}),
        (sliced_twice, 1, {"y"}),
        (renamed, 1, {"y"}),
        (renamed_later, 1, {"y"}),
        (rebound, 1, set()),
        (chosen, 1, {"y"}),
        (added_to, 1, {"y"}),
        (updated, 1, {"y"}),
        (updated_atomically, 1, {"y"}),
        (unpacked, 1, {"y"}),
        (in_a_tuple, 1, set()),
        (in_a_loop, 1, {"y"}),
        (in_what_it_calls, 1, {"y"}),
        (by_its_name, 1, {"y"}),
        (by_what_it_gets_back, 1, {"y"}),
        (by_an_unknown, 1, {"y"}),
        (by_stars, 1, {"y"}),
        (by_a_method, 1, {"y"}),
        (into_a_result, 1, set()),
        (by_a_property, 1, {"y"}),
        (by_a_function_inside, 1, set()),
        (in_a_comprehension, 1, {"y"}),
        (with_another_name, 1, {"y"}),
        (by_a_slice, 1, {"y"}),
        (by_a_slice_of_the_module, 1, {"y"}),
        (by_nothing, 1, {"y"}),
        (by_what_may_be_nothing, 1, {"y"}),
        (by_a_tuple_of_nothing, 1, {"y"}),
        (expanded, 1, {"y"}),
        (expanded_by_name, 1, {"y"}),
        (growing, 1, set()),
    ],
)
def test_arrays_that_are_surely_not_written(body: Callable[..., None], ndim: int, only_read: set[str]) -> None:
    """Only elements of them are read, by whatever name, by whatever is called; what is not understood counts as a write."""
    assert analyse(body, ARRAYS).only_read(dict.fromkeys(ARRAYS, ndim)) == only_read


@needs_compiler
@pytest.mark.parametrize("body", [elements, sums, tuples, fresh])
def test_the_compiler_agrees(body: Callable[..., None]) -> None:
    """It lets read-only arrays be given where the body is said to only read."""
    names = analyse(body, ARRAYS).only_read(dict.fromkeys(ARRAYS, 1))
    arguments = tuple("A1f8Cr" if name in names else "A1f8C" for name in ARRAYS)
    compiler.compile_result(KernelSpec(body.__name__, body, 1, arguments, ()))


def test_an_array_of_no_dimension() -> None:
    """Its element is a number, and it may be written to."""

    def body(i: int, x: Any, y: Any, out: Any) -> None:
        value = x[()]
        value += 1
        y[()] = value

    assert analyse(body, ARRAYS).only_read(dict.fromkeys(ARRAYS, 0)) == {"x", "out"}


def test_functions_are_those_of_the_moment() -> None:
    """Bodies share their code, not what they call; a global may be another function the next time."""

    def body_of(function: Callable[..., Any]) -> Callable[..., None]:
        def body(i: int, x: Any, out: Any) -> None:
            function(x[i:])
            out[i] = 0

        return body

    assert analyse(body_of(total), ("x", "out")).only_read({"x": 1, "out": 1}) == {"x"}
    assert not analyse(body_of(clear), ("x", "out")).only_read({"x": 1, "out": 1})
    texts = "def body(i, x):\n    helper(x)\n"
    linecache.cache["moment.py"] = (len(texts), None, texts.splitlines(True), "moment.py")
    namespace: dict[str, Any] = {"helper": total}
    exec(compile(texts, "moment.py", "exec"), namespace)
    use = analyse(namespace["body"], ("x",))
    assert use.only_read({"x": 1}) == {"x"}
    namespace["helper"] = clear
    assert not use.only_read({"x": 1})
