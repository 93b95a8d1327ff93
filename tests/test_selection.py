"""What runs by default: each value of each parameter, on each executor; and every public name."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import selection

TESTS = Path(__file__).parent
#: Modules whose public names are to be used by tests that run by default.
MODULES = ("aiodev", "aiodev.lang", "aiodev.memory", "aiodev.profiler", "aiodev.testing")


def items(name: str, *marks: tuple[str, list[Any]], exhaustive: bool = False) -> list[Any]:
    """What pytest would make of a test with these calls of ``parametrize``."""
    parent = object()
    combinations = itertools.product(*(values for _, values in marks))
    found = []
    for values in combinations:
        parameters: dict[str, Any] = {}
        for (names, _), value in zip(marks, values, strict=True):
            parameters |= dict(zip(names.split(","), value, strict=True)) if "," in names else {names: value}
        found.append(
            SimpleNamespace(
                parent=parent,
                originalname=name,
                name=f"{name}{values}",
                nodeid=f"tests/test_one.py::{name}[{'-'.join(map(str, values))}]",
                callspec=SimpleNamespace(params=parameters),
                iter_markers=lambda _: [SimpleNamespace(args=mark) for mark in marks],
                get_closest_marker=lambda _: exhaustive or None,
            )
        )
    return [Item(each) for each in found]


class Item:
    """One of them, which is hashable as pytest's are."""

    def __init__(self, fields: SimpleNamespace) -> None:
        vars(self).update(vars(fields))


def chosen(*marks: tuple[str, list[Any]]) -> list[dict[str, Any]]:
    return [item.callspec.params for item in selection.covering(items("test", *marks))]


def test_each_value_is_chosen_once() -> None:
    """Those of the longest list as often as there are, beside those of the others in turn."""
    found = chosen(("name", list("abcdef")), ("size", [10, 20, 30]))
    assert sorted(p["name"] for p in found) == list("abcdef")
    assert sorted(p["size"] for p in found) == [10, 10, 20, 20, 30, 30]


def test_rows_of_one_list_are_all_chosen() -> None:
    """What is given together is one value."""
    rows = [("a", 1), ("a", 2), ("b", 1)]
    assert len(chosen(("name,size", rows))) == 3


@pytest.mark.parametrize("places", [["native", "python"], ["cpu", "sim"]])
def test_each_value_is_chosen_for_each_place(places: list[str]) -> None:
    """An executor's tests do not stand for another's."""
    found = chosen(("name", list("abc")), ("place", places), ("size", [10, 20]))
    assert {(p["name"], p["place"]) for p in found} == set(itertools.product("abc", places))
    assert {(p["size"], p["place"]) for p in found} == set(itertools.product([10, 20], places))
    assert len(found) == 6


def test_two_types_stand_for_the_others() -> None:
    """The first and the last, alone and beside other parameters."""
    types = ["f4", "f8", "i4", "?"]
    assert sorted(p["dtype"] for p in chosen(("dtype", types))) == ["?", "f4"]
    found = chosen(("name", list("abcdefgh")), ("dtype", types))
    assert sorted(p["dtype"] for p in found) == ["?"] * 4 + ["f4"] * 4


def test_what_is_marked_is_left_out() -> None:
    assert selection.covering(items("test", ("name", ["a"]), exhaustive=True)) == set()


def test_what_is_slow_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its parameters."""
    monkeypatch.setattr(selection, "SLOW", {"tests/test_one.py::test"})
    assert selection.covering(items("test", ("name", ["a", "b::c"]))) == set()
    assert len(selection.covering(items("other", ("name", ["a", "b::c"])))) == 2


def test_what_is_called_slow_is_there(request: pytest.FixtureRequest) -> None:
    """And every file that was collected has a test that runs by default, unless all of it is marked."""
    collected = request.config.stash[selection.COLLECTED]
    tests = {selection.without_parameters(item.nodeid) for item in collected}
    files = {name.partition("::")[0] for name in tests}
    gone = sorted(name for name in selection.SLOW if name.partition("::")[0] in files and name not in tests)
    gone += sorted(name for name in selection.SLOW if not (TESTS.parent / name.partition("::")[0]).exists())
    assert not gone, f"tests/slow.txt names {', '.join(gone)}, which there is not"
    unmarked = {item.path for item in collected if item.get_closest_marker("exhaustive") is None}
    empty = sorted(str(path) for path in unmarked - {item.path for item in selection.covering(collected)})
    assert not empty, f"nothing of {', '.join(empty)} runs by default"


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_each_test_is_in_one_share(parts: int) -> None:
    """And no share has far more than its part."""
    names = [f"tests/test_one.py::test[{number}]" for number in range(600)]
    shares = [[name for name in names if selection.in_share(name, (part, parts))] for part in range(1, parts + 1)]
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert all(len(share) > 500 / parts for share in shares)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        selection.share_of(text)


def test_lists_and_examples_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for ``--exhaustive``; of a share, to what runs by default and that share of the rest."""
    monkeypatch.setattr(selection, "exhaustive", False)
    assert selection.some("abc") == ["a"] and selection.some("abc", 2) == ["a", "b"]
    assert selection.examples(60) == 6 and selection.examples(20) == selection.FEWEST and selection.examples(3) == 3
    monkeypatch.setattr(selection, "exhaustive", True)
    monkeypatch.setattr(selection, "share", (1, 1))
    assert selection.some("abc") == ["a", "b", "c"] and selection.examples(20) == 20
    shares = []
    for part in (1, 2, 3):
        monkeypatch.setattr(selection, "share", (part, 3))
        assert selection.examples(60) == 6 + 18 and selection.examples(3) == 3
        first, *rest = selection.some(range(8))
        assert first == 0
        shares += rest
    assert sorted(shares) == list(range(1, 8))


def test_every_public_name_is_used_by_default(request: pytest.FixtureRequest) -> None:
    """By a test that runs by default, or by what it calls in its module; the library's by test_every_function.py."""
    collected = request.config.stash[selection.COLLECTED]
    missing_files = {path for path in TESTS.rglob("test_*.py") if "cuda" not in path.parts} - {item.path for item in collected}
    if missing_files:
        pytest.skip(f"{len(missing_files)} files of tests were not collected: run pytest for all of them")
    default = selection.covering(collected)
    names = {word for path, tests in by_file(default).items() for word in words(path, tests)}
    public = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    unused = sorted(name for name in public if name.rpartition(".")[2] not in names)
    assert not unused, f"no test that runs by default uses {', '.join(unused)}"


def by_file(chosen: set[pytest.Item]) -> dict[Path, set[str]]:
    found: dict[Path, set[str]] = {}
    for item in chosen:
        found.setdefault(item.path, set()).add(item.originalname if isinstance(item, pytest.Function) else item.name)
    return found


def words(path: Path, tests: set[str]) -> Iterator[str]:
    """Names, attributes, and what programs in strings are made of, but for other tests and for docstrings."""
    tree = ast.parse(path.read_text())
    for node in outside(tree, tests):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)


def outside(node: ast.AST, tests: set[str]) -> Iterator[ast.AST]:
    """All of a tree but docstrings and tests that are not among those."""
    body = getattr(node, "body", None)
    documented = isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    for child in ast.iter_child_nodes(node):
        other = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test")
        if (other and child.name not in tests) or (documented and child is body[0]):
            continue
        yield child
        yield from outside(child, tests)
