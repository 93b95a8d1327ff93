"""Places of submission: whose they are, and how they read."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from aiodev._core import callsites

HERE = __file__


def module(name: str, source: str, **values: Any) -> types.ModuleType:
    """A module of that name."""
    made = types.ModuleType(name)
    vars(made).update(values)
    exec(compile(source, f"{name}.py", "exec"), vars(made))
    return made


def submit() -> int:
    """Stands for a launch: the site of who calls it."""
    return callsites.here(1)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function of a library's submodule that submits, by way of another module of it."""
    monkeypatch.setattr(callsites, "_libraries", {"shelf.of.kernels"})
    inner = module("shelf.of.kernels.inner", "def run():\n    return submit()", submit=submit)
    outer = module("shelf.of.kernels", "def run():\n    return inner.run()", inner=inner)
    return outer.run


def test_a_site_is_the_callers_line() -> None:
    """It reads as file and line; no site reads as None."""
    line = test_a_site_is_the_callers_line.__code__.co_firstlineno
    assert callsites.describe_site(submit()) == f"{HERE}:{line + 3}"
    assert callsites.describe_site(0) is None


LINES = """
def run(here, add, file):
    for k in range(2): add(here(0))

    add(here(0)); add([here(0)
         for _ in range(2)
        ][0] if k else
            here(0))
    try:
        raise KeyError(
            add(here(0)))
    except KeyError:
        with open(file): add(here(
            0))
    return {
        "first": add(here(0)),
        **{"second": add(here(0))}
    }
"""


def test_each_instruction_has_its_line() -> None:
    """Those without one have the function's, and what is no instruction is refused."""
    code = module("elsewhere", LINES).run.__code__
    for bare in (code, code.replace(co_linetable=b"")):
        at = callsites._enter(bare, False)
        for k, (line, *_) in enumerate(bare.co_positions()):
            assert callsites.describe_site(at + 2 * k) == f"elsewhere.py:{line or code.co_firstlineno}"
        for site in (at + len(bare.co_code), at + 0xFFFFFFFF, 5, len(callsites._codes) + 1 << 32):
            with pytest.raises(ValueError, match=f"site {site}: expected what a launch was given"):
                callsites.describe_site(site)


def test_many_places_of_a_function_are_found_in_one_look_at_its_lines() -> None:
    """Graphs of thousands of operations are shown, and saved, with the place of each."""
    other = module("unrolled", "def run(here):\n    return [\n" + "        here(0),\n" * 1000 + "    ]")
    found = other.run(callsites.here)
    callsites._lines_of.cache_clear()
    assert [callsites.describe_site(site) for site in found] == [f"unrolled.py:{line}" for line in range(3, 1003)]
    assert callsites._lines_of.cache_info().misses == 1


def test_what_a_library_submits_is_its_callers_doing(library: Callable[..., int]) -> None:
    """The first time, and once its code is known."""
    line = test_what_a_library_submits_is_its_callers_doing.__code__.co_firstlineno
    assert [callsites.describe_site(library()) for _ in range(2)] == [f"{HERE}:{line + 3}"] * 2


def test_names_are_compared_by_whole_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """``shelves`` is not in ``shelf``."""
    monkeypatch.setattr(callsites, "_libraries", {"shelf"})
    other = module("shelves.kernels", "def run():\n    return submit()", submit=submit)
    assert callsites.describe_site(other.run()) == "shelves.kernels.py:2"


def test_what_the_streams_methods_submit_is_their_callers_doing() -> None:
    """``stream.launch(kernel, ...)`` names the same place as ``kernel[...](...)``."""
    import aiodev

    @aiodev.kernel
    def refuse(i, x):  # type: ignore[no-untyped-def]
        if x[i] == 0:
            raise ValueError("zero")

    stream, x = aiodev.Stream("cpu"), aiodev.zeros(1, device="cpu")
    stream.wait_stream(aiodev.current_stream("cpu"))
    with pytest.raises(aiodev.KernelError, match=HERE):
        stream.launch(refuse, 1, x).synchronize_blocking(60)
