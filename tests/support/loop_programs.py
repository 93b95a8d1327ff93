"""Bodies with loops, at random: their source, for launches of two dimensions on x, y (5 by 5), n and out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["bodies"]

_VALUES = ("a", "b", "c")
#: What a loop may go over; all but the last one are the same for all indices.
_RANGES = ("y.shape[0]", "n", "n + y.shape[1]", "4", "1, n + 1", "y.shape[1] - 1, -1, -2", "min(n, x.shape[0])", "found")
_HEAD = "    a, b, c, found = x[i, j], y[0, 1] * 0.5, y[i % 5, 0] + j, 2\n"
_FOOT = "    out[i, j] = a\n    out[i, j] += b - c * 0.25 + found\n"
#: A number that is assigned in a branch alone, and what is made of it.
_KEPT = """\
for k in range(y.shape[0]):
    if k == 0 or {condition} > 0:
        {name} = {value}
{name}_too = {name}
for q in range(y.shape[1]):
    {target} += y[{name}_too % 5, q] * {name} * 0.125
"""


def bodies() -> st.SearchStrategy[str]:
    """Sources of bodies of up to five statements, beside those in loops and branches."""
    parts = st.lists(_statements(2, ()), min_size=1, max_size=3)
    return st.builds(_source, parts, st.lists(_kept(), max_size=2))


def _source(statements: Sequence[str], kept: Sequence[str]) -> str:
    parts = [*statements, *(text.replace("KEPT", f"kept{number}") for number, text in enumerate(kept))]
    return "def body(i, j, x, y, n, out):\n" + _HEAD + textwrap.indent("\n".join(parts), "    ") + "\n" + _FOOT


def _kept() -> st.SearchStrategy[str]:
    """Statements by which a value is kept that a branch has found."""

    def written(condition: str, value: str, target: str) -> str:
        return _KEPT.format(condition=condition, value=value, target=target, name="KEPT")

    return st.builds(written, _numbers(("k",)), st.sampled_from(["k", "k + i % 2", "3"]), st.sampled_from(_VALUES))


def _numbers(counters: Sequence[str]) -> st.SearchStrategy[str]:
    """Formulas of a number, some of them with a loop's; none grows beyond what a float can be."""
    ends = [*_VALUES, "x[i, j]", "y[1, 2]", "y[j % 5, 3]", "found", "0.5", "i"]
    for name in counters:
        ends += [name, f"y[{name} % 5, 1]", f"y[{name} % 5, j % 5]", f"x[i, {name} % x.shape[1]]"]
    ways = ["({0} + {1})", "({0} - {1})", "({0} * 0.5 - {1} * 0.125)", "max({0}, {1})", "(abs({0}) if {1} > 0 else {0})"]
    end = st.sampled_from(ends)
    return end | st.builds(lambda way, x, y: way.format(x, y), st.sampled_from(ways), end, end)


def _statements(depth: int, counters: Sequence[str]) -> st.SearchStrategy[str]:
    """Statements, with so many levels of loops and branches at most within them."""
    numbers = _numbers(counters)
    assigned = st.builds(" ".join, st.tuples(st.sampled_from(_VALUES), st.sampled_from(["=", "+=", "-="]), numbers))
    if not depth:
        return assigned
    within = st.lists(assigned, min_size=1, max_size=2)
    ends = ["found = i % 3", *(["continue", f"found = {counters[-1]}"] if counters else [])]

    def branch(condition: str, inner: list[str], end: str) -> str:
        return f"if {condition} > 0:\n" + textwrap.indent("\n".join([*inner, end]), "    ")

    counter = f"k{len(counters)}"
    rounds = st.lists(st.deferred(lambda: _statements(depth - 1, (*counters, counter))), min_size=1, max_size=2)

    def loop(limits: str, inner: list[str]) -> str:
        return f"for {counter} in range({limits}):\n" + textwrap.indent("\n".join(inner), "    ")

    branches = st.builds(branch, numbers, within, st.sampled_from(ends))
    loops = st.builds(loop, st.sampled_from(_RANGES), rounds)
    return st.one_of(loops, assigned, branches, loops)
