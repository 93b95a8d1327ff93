"""Parsing sources where other threads do."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiodev._core import parsing

SOURCE = "".join(f"def function_{n}(i, x):\n    x[i] = {n} * (x[i] + 1) if i % {n + 2} else -x[i]\n" for n in range(60))


class Slow:
    """An object that gives other threads a turn when the collector finds it."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def many_turns() -> Iterator[None]:
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("many_turns")
def test_threads_that_parse_at_once() -> None:
    """Each has the tree of its source. On Python 3.11.7 ``ast.parse`` raises SystemError in each of these runs."""
    expected, failures = ast.dump(ast.parse(SOURCE)), list[BaseException]()

    def run() -> None:
        try:
            for _ in range(5):
                for _ in range(20):
                    Slow()
                assert ast.dump(parsing.parse(SOURCE)) == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(("errors", "enough"), [(0, True), (3, True), (1000, False)])
def test_an_error_is_believed_in_the_end(errors: int, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised, should it have another reason than threads."""
    left, whole = iter(range(errors)), ast.parse

    def disturbed(*given: Any, **named: Any) -> ast.AST:
        for _ in left:
            raise SystemError("AST constructor recursion depth mismatch (before=123, after=89)")
        return whole(*given, **named)

    monkeypatch.setattr(parsing.ast, "parse", disturbed)
    if enough:
        assert isinstance(parsing.parse("1 + 1"), ast.Module)
    else:
        with pytest.raises(SystemError):
            parsing.parse("1 + 1")


def test_a_source_without_a_tree_is_refused() -> None:
    """At once."""
    with pytest.raises(SyntaxError):
        parsing.parse("def :")
