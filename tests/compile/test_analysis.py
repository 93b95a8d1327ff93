"""Where the source of a body is, and that only its own is believed."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from aiodev._kernel.analysis import source as analysis
from aiodev._kernel.analysis.source import analyse


def test_no_source_no_knowledge() -> None:
    """What was typed at a prompt may write anything; so may a function without a source that a body calls."""
    namespace: dict[str, Any] = {}
    exec("def body(i, x):\n    y = x[i]\n", namespace)
    assert not analyse(namespace["body"], ("x",)).only_read({"x": 1})
    silent = namespace["body"]

    def calling(i: int, x: Any, y: Any) -> None:
        silent(i, x)
        y[i]

    assert analyse(calling, ("x", "y")).only_read({"x": 1, "y": 1}) == {"y"}


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
        assert use.known and use.written == {"out"} and use.only_read({"x": 1, "out": 1}) == {"x"}


def test_a_text_that_is_not_the_code_s_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(analysis, "_known", WeakKeyDictionary())
        monkeypatch.setattr(analysis, "_definitions", WeakKeyDictionary())
        function = FunctionType(namespace["body"].__code__.replace(co_firstlineno=1), namespace)
        use = analyse(function, ("x", "out"))
        assert use.known == (name == "as it is")
        assert ("x" in use.only_read({"x": 1, "out": 1})) == (name == "as it is")
        assert "out" not in use.only_read({"x": 1, "out": 1})


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
    assert analyse(first, ("x", "out")).only_read({"x": 1, "out": 1}) == {"x", "out"}
    assert analyse(second, ("x", "out")).partners == {}


def test_expressions_that_are_too_deep_do_no_harm() -> None:
    """Such as generated ones; they are compiled nevertheless."""
    text = f"def body(i, a, x, out):\n    out[i] = {' + '.join(['a * x[i]'] * 900)}\n"
    linecache.cache["deep.py"] = (len(text), None, text.splitlines(True), "deep.py")
    namespace: dict[str, Any] = {}
    exec(compile(text, "deep.py", "exec"), namespace)
    use = analyse(namespace["body"], ("a", "x", "out"))
    assert "out" not in use.only_read({"x": 1, "out": 1})  # how deep is too deep depends on the interpreter
