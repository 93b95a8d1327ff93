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
