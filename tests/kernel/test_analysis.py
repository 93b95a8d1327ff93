"""What is read from a body: which arrays it surely does not write."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from aiodev._kernel import analysis
from aiodev._kernel.analysis import analyse

helper: Any = None
atomic_add: Any = None


def elements(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[i] + y[i + 1].real * len(x) * y.shape[0]


def rows(i: int, x: Any, y: Any, out: Any) -> None:
    row = x[i]
    row[0] = y[i][1]
    out[i, 0] = y[i, 2]


def handed_over(i: int, x: Any, y: Any, out: Any) -> None:
    helper(x, i)
    out[i] = helper(y[i])


def renamed(i: int, x: Any, y: Any, out: Any) -> None:
    other = x
    other[i] = y[i]
    out[i] = 0


def sliced(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i:]
    part[0] = y[i]
    out[i] = 0


def sliced_later(i: int, x: Any, y: Any, out: Any) -> None:
    where = slice(0, 2)
    x[where][0] = y[i]
    out[i] = 0


def expanded(i: int, x: Any, y: Any, out: Any) -> None:
    part = x[i, None]
    part[0] = y[i]
    out[i] = 0


def updated(i: int, x: Any, y: Any, out: Any) -> None:
    x[i] += y[i]
    atomic_add(out, i, 1)


def unpacked(i: int, x: Any, y: Any, out: Any) -> None:
    x[i], out[i] = y[i], 0


def rebound(i: int, x: Any, y: Any, out: Any) -> None:
    x = y
    x[i] = 0
    out[i] = 0


def filled(i: int, x: Any, y: Any, out: Any) -> None:
    x.fill(y[i])
    out[i] = 0


def of_no_dimension(i: int, x: Any, y: Any, out: Any) -> None:
    out[i] = x[()] + y[i]


@pytest.mark.parametrize(
    ("body", "only_read"),
    [
        (elements, {"x": 1, "y": 1}),
        (rows, {"x": 1, "y": 2}),
        (handed_over, {"y": 1}),
        (renamed, {"y": 1}),
        (sliced, {"y": 1}),
        (sliced_later, {}),
        (expanded, {"y": 1}),
        (updated, {"y": 1}),
        (unpacked, {"y": 1}),
        (rebound, {}),
        (filled, {"y": 1}),
        (of_no_dimension, {"x": 0, "y": 1}),
    ],
)
def test_arrays_that_are_surely_not_written(body: Callable[..., None], only_read: dict[str, int]) -> None:
    """Only elements of them are read: with as many indices as there are dimensions, and by no other name."""
    use = analyse(body, ("x", "y", "out"))
    for name in ("x", "y", "out"):
        found = [ndim for ndim in range(4) if use.only_reads(name, ndim)]
        assert found == list(range(only_read.get(name, -1) + 1)), name


def test_no_source_no_knowledge() -> None:
    """What was typed at a prompt may write anything."""
    namespace: dict[str, Any] = {}
    exec("def body(i, x):\n    y = x[i]\n", namespace)
    assert not analyse(namespace["body"], ("x",)).only_reads("x", 1)


def test_odd_shapes_of_source_are_read() -> None:
    """Decorators over several lines, comments and blank lines, a last line that runs on, a body on the line of its head."""

    def last(i: int, x: Any, out: Any) -> None:
        out[i] = x[i]  # it reads

        if x[i] > 0:
            pass

    # fmt: off
    def short(i: int, x: Any, out: Any) -> None: out[i] = (  # noqa: E704
        x[i]
    )
    # fmt: on

    for body in (last, short):
        use = analyse(body, ("x", "out"))
        assert use.known and use.written == {"out"} and use.only_reads("x", 1)


def test_a_text_that_is_not_the_code_s_is_not_believed(tmp_path: Path) -> None:
    """A file that was edited after it was imported: nothing is known, not what the new text says."""
    path = tmp_path / "edited.py"
    texts = {
        "as it is": "def body(i, x, out):\n    out[i] = x[i]\n",
        "other names": "def body(i, x, out):\n    x[i] = out[i]\n",
        "another constant": "def body(i, x, out):\n    out[i] = x[i] + 1.0\n",
        "something else": "import os\nos.getcwd()\n",
        "nothing": "",
    }
    path.write_text(texts["as it is"])
    namespace: dict[str, Any] = {}
    exec(compile(texts["as it is"], str(path), "exec"), namespace)
    for name, text in texts.items():
        path.write_text(text)
        linecache.checkcache(str(path))
        function = FunctionType(namespace["body"].__code__.replace(co_firstlineno=1), namespace)
        use = analyse(function, ("x", "out"))
        analysis._known.clear()
        assert use.known == (name == "as it is")
        assert use.only_reads("x", 1) == (name == "as it is")
        assert not use.only_reads("out", 1)


def test_definitions_of_all_kinds_are_found() -> None:
    """Decorated, with defaults and annotations, in a closure, several lambdas on one line, nested functions."""
    scale: Any = 2

    def decorated(function: Any) -> Any:
        return function

    @decorated
    @decorated
    def inner(i: int, x: Any, out: Any, k: Any = (1, 2)) -> None:
        def part(j: int) -> Any:
            return scale * x[j]

        out[i] = part(i) + -0.0 + k[0]

    first, second = lambda i, x, out: x[i], lambda i, x, out: out[i]
    assert analyse(inner, ("x", "out")).known
    assert analyse(first, ("x", "out")).only_reads("x", 1)
    assert analyse(second, ("x", "out")).indices == {"x": 99, "out": 1}
