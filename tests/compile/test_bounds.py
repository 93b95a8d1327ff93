"""Launches that go beyond an array are refused where that is certain, and no other launch is."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from kernel_entry import needs_compiler
from selection import examples

import aiodev
from aiodev import LaunchError, kernel, lang
from aiodev._kernel.analysis.bounds import accesses, check_bounds, farthest

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def checked(value: Any) -> Any:
    """A function that may end a body."""
    if value < 0:
        raise ValueError
    return value


def doubled(value: Any) -> Any:
    """One that does not."""
    return 2 * value


def body_of(source: str, number: int = 0) -> Callable[..., None]:
    """The function ``body`` of a text, which is found again."""
    filename = f"<bounds {hash(source)} {number}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace = {"__name__": __name__, "lang": lang, "np": np, "checked": checked, "doubled": doubled}
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    return namespace["body"]  # type: ignore[no-any-return]


def refused(body: Callable[..., None], shape: tuple[int, ...], *args: Any) -> bool:
    """Whether a launch of the body over NumPy arrays would be."""
    found = farthest(accesses(body, len(shape)), {place: np.ndim(arg) for place, arg in enumerate(args)})
    try:
        check_bounds("body", [f"x{k}" for k in range(len(args))], found, shape, args)
    except LaunchError:
        return True
    return False


def is_wrong(body: Callable[..., None], shape: tuple[int, ...], *args: Any) -> bool:
    """Whether an index of the launch goes beyond an array, as NumPy sees it."""
    copies = [np.copy(arg) for arg in args]
    for index in itertools.product(*map(range, shape)):
        try:
            body(*index, *copies)
        except IndexError:
            return True
        except (AssertionError, TypeError, ValueError):
            continue
    return False


@pytest.mark.parametrize(
    "text",
    [
        "a[i] = 1.0",
        "a[i] += 1.0",
        "v = a[i]",
        "b[0] = a[i] + 1.0",
        "b[0] = doubled(a[i])",
        "b[0] = doubled(b[0])\na[i] = 1.0",
        "b[0] = lang.exp(b[0])\na[i] = 1.0",
        "a[i + 1] = 1.0",
        "a[1 + i] = 1.0",
        "lang.atomic_add(a, i, 1.0)",
        "a[i], b[0] = 1.0, 2.0",
        "if a[i] > 0:\n    b[0] = 1.0",
        "while a[i] < 0:\n    break",
        "for k in range(int(a[i])):\n    pass",
        "for k in range(2):\n    if k > 0:\n        break\na[i] = 1.0",
        "if i > 2:\n    b[0] = 1.0\na[i] = 1.0",
        "b[0] = 1.0 if a[i] > 0 else 2.0",
        "b[0] = a[i] > 0 and b[0] > 0",
        "a[i] = 1.0\nreturn",
        "m[i] = 1.0",
        "m[i, 0] = 1.0",
        "m[0, i] = 1.0",
        "m[-1, i] = 1.0",
        "m[:, i] = 1.0",
        "m[1:, i] += 1.0",
        "b[0] = m[0, i]",
        "m[i, i] = 1.0",
        "b[0] = a[i]\nif i > 3:\n    return\na[i] = 1.0",
    ],
)
def test_what_every_index_does_is_refused(text: str) -> None:
    """Beyond the length; at the length it is not, and NumPy agrees on both."""
    body = body_of("def body(i, a, b, m):\n" + textwrap.indent(text, "    "))
    args = np.ones(8), np.ones(64), np.ones((8, 8))
    assert refused(body, (9,), *args) and is_wrong(body, (9,), *args)
    right = 7 if "+ 1]" in text or "1 + i]" in text else 8
    assert not refused(body, (right,), *args) and not is_wrong(body, (right,), *args)
    assert not refused(body, (0,), *args)


@pytest.mark.parametrize(
    "text",
    [
        "if i < a.size:\n    a[i] = 1.0",
        "if i >= a.size:\n    return\na[i] = 1.0",
        "if i < 3:\n    pass\nelif i >= a.size:\n    return\na[i] = 1.0",
        "b[0] = a[i] if i < a.size else 0.0",
        "b[0] = i < a.size and a[i] > 0",
        "b[0] = i >= a.size or a[i] > 0",
        "b[0] = 0 < i < a.size and 0 < a[i]",
        "b[0] = i < 0 < a[i]",
        "for k in range(a.size - i):\n    a[i] = 1.0",
        "while i < a.size:\n    a[i] = 1.0\n    break",
        "for k in range(1):\n    if i >= a.size:\n        return\na[i] = 1.0",
        "i = i % a.size\na[i] = 1.0",
        "i %= a.size\na[i] = 1.0",
        "for i in range(2):\n    pass\na[i] = 1.0",
        "if (i := i % 8) < 3:\n    pass\na[i] = 1.0",
        "a = b\na[i] = 1.0",
        "checked(a.size - 1 - i)\na[i] = 1.0",
        "a[i] = checked(a.size - 1 - i)",
        "if i > 2:\n    checked(a.size - 1 - i)\na[i] = 1.0",
        "b[0] = i < 2 and checked(a.size - 1 - i)\na[i] = 1.0",
        "assert i < a.size\na[i] = 1.0",
        "if i >= a.size:\n    raise ValueError\na[i] = 1.0",
        "try:\n    a[i] = 1.0\nexcept IndexError:\n    pass",
        "a[i - 1] = 1.0",
        "a[i // 2] = 1.0",
        "a[-i] = 1.0",
        "a[i:] = 1.0",
        "a[:i] = 1.0",
        "row = m[i:]",
        "row = m[i]\nif i < 8:\n    row[0] = 1.0",
        "row = m[i, :]\nif i < 8:\n    row[0] = 1.0",
        "m[..., 0, i % 8] = 1.0",
        "b[0] = (lambda k: a[k])(0)",
        "b[0] = sum([a[i] for k in range(max(0, a.size - i))])",
        "raise ValueError\na[i] = 1.0",
        "return\na[i] = 1.0",
    ],
)
def test_what_may_be_right_is_not_refused(text: str) -> None:
    """What a branch, an end, or another name keeps from happening."""
    body = body_of("def body(i, a, b, m):\n" + textwrap.indent(text, "    "))
    assert not refused(body, (12,), np.ones(8), np.ones(64), np.ones((8, 8)))


SHAPES = st.lists(st.integers(0, 4), min_size=2, max_size=2).map(tuple)
INDICES = st.sampled_from(["i", "j", "i + 1", "j + 2", "i - 1", "0", "-1", "i * j", "n - 1", "k"])
ELEMENTS = st.one_of(
    st.builds("a[{}]".format, INDICES),
    st.builds("m[{}, {}]".format, INDICES, INDICES),
    st.builds("m[{}]".format, INDICES),
    st.builds("m[:, {}]".format, INDICES),
)
VALUES = st.recursive(
    st.one_of(st.sampled_from(["1.0", "i", "n"]), st.builds("np.sum({})".format, ELEMENTS)),
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} if {} < n else {})".format, inner, INDICES, inner),
        st.builds("({} > 0 and {})".format, inner, inner),
        st.builds("({} > 0 or {})".format, inner, inner),
        st.builds("(0 < {} < {})".format, inner, inner),
        st.builds("doubled({})".format, inner),
        st.builds("checked({})".format, inner),
    ),
    max_leaves=4,
)
STATEMENTS = st.recursive(
    st.one_of(
        st.builds("{} = {}".format, ELEMENTS, VALUES),
        st.builds("{} += {}".format, ELEMENTS, VALUES),
        st.builds("v = {}".format, VALUES),
        st.builds("lang.atomic_add(a, {}, {})".format, INDICES, st.just("1.0")),
        st.sampled_from(["return", "i = i % 2", "j = 0", "k = i", "a = m[0]", "assert i < n", "pass"]),
    ),
    lambda inner: st.builds(
        lambda head, block: head + "\n" + textwrap.indent("\n".join(block), "    "),
        st.one_of(
            st.builds("if {} < n:".format, VALUES),
            st.builds("if {} >= n:".format, INDICES),
            st.builds("for k in range({}):".format, INDICES),
        ),
        st.lists(inner, min_size=1, max_size=2),
    ),
    max_leaves=4,
)


@given(st.lists(STATEMENTS, min_size=1, max_size=4), SHAPES, st.integers(0, 4), SHAPES)
@settings(max_examples=examples(400), deadline=None)
def test_no_right_program_is_refused(
    statements: list[str], shape: tuple[int, ...], length: int, lengths: tuple[int, ...]
) -> None:
    """Whatever is refused raises IndexError when it is interpreted with bounds."""
    body = body_of("def body(i, j, a, m, n):\n    k = 0\n" + textwrap.indent("\n".join(statements), "    "))
    args = np.ones(length), np.ones(lengths), 2
    if refused(body, shape, *args):
        assert is_wrong(body, shape, *args)


def test_the_error_names_what_there_is_to_know() -> None:
    """The kernel, the argument and its shape, the launch, the place in the body, and what to do."""

    @kernel(ndim=2)
    def transpose(i: int, j: int, x: Any, out: Any) -> None:
        out[j, i] = x[i, j]

    x, out = aiodev.zeros((3, 4), device="cpu"), aiodev.zeros((4, 3), device="cpu")
    line = transpose.py_func.__code__.co_firstlineno + 2
    for _ in range(2):  # at first, and when the types are known
        with pytest.raises(LaunchError) as caught:
            transpose[3, 5](x, out)
        message = str(caught.value)
        assert caught.value.argument == "x" and caught.value.kernel == "transpose"
        for part in ("at least 5 in dimension 1", "(3, 5)", "x[i, j]", f"line {line}", "(3, 4)", "if j < x.shape[1]"):
            assert part in message
        transpose[3, 4](x, out).synchronize_blocking()


@needs_compiler
def test_every_way_to_launch_refuses() -> None:
    """With the code there or not, bound, by the stream, with arrays of other shapes in between; right ones go on."""

    @kernel
    def increment(i: int, x: Any, y: Any) -> None:
        x[i] += y[i]

    stream = aiodev.Stream("cpu")
    long, short = aiodev.zeros(100, device="cpu"), aiodev.ones(90, device="cpu")
    for _ in range(4):
        for arguments in ((long, short), (short, long)):
            for launch in (increment[91], increment[91, stream], lambda *a: stream.launch(increment, 91, *a)):
                with pytest.raises(LaunchError, match=r"shape \(90,\)"):
                    launch(*arguments)
            with pytest.raises(LaunchError, match=r"shape \(90,\)"):
                increment.bind(91, *arguments)
            increment[90, stream](*arguments).synchronize_blocking()
            increment.bind((0, stream), *arguments)().synchronize_blocking()
            increment[0, stream](*arguments).synchronize_blocking()
    assert long.numpy_blocking()[89] != 0 == long.numpy_blocking()[90]


@needs_compiler
def test_each_body_counts_on_its_own_device() -> None:
    """A hand-written body that guards what the common one does not, and one that does not."""

    @kernel
    def guarded(i: int, x: Any) -> None:
        x[i] = 1

    @guarded.implementation("cpu")
    def guarded_cpu(i: int, x: Any) -> None:
        if i < x.size:
            x[i] = 2

    @kernel
    def bare(i: int, x: Any) -> None:
        if i < x.size:
            x[i] = 1

    @bare.implementation("cpu")
    def bare_cpu(i: int, x: Any) -> None:
        x[i] = 2

    x = aiodev.zeros(10, device="cpu")
    guarded[12](x)
    assert x.numpy_blocking().tolist() == [2] * 10
    with pytest.raises(LaunchError):
        bare[12](x)
