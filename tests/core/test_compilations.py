"""What takes long to compile is told of."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from aiodev import profiler
from aiodev._core import compilations
from aiodev.profiler import Compilation


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Compilation], threading.Event, threading.Event]]:
    """What a hook was told, an event for the first time, and one for the last; everything counts as long."""
    monkeypatch.setattr(compilations, "LONG_COMPILATION", 0.0)
    found: list[Compilation] = []
    begun, ended = threading.Event(), threading.Event()

    def hook(compilation: Compilation) -> None:
        found.append(compilation)
        (ended if compilation.finished else begun).set()

    remove = profiler.on_compilation(hook)
    yield found, begun, ended
    remove()


def test_hooks_and_the_log_are_told(
    told: tuple[list[Compilation], threading.Event, threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    """While it goes on, and when it is done."""
    found, begun, ended = told
    with caplog.at_level(logging.INFO, "aiodev"):
        with compilations.reported("sort"):
            assert begun.wait(60)
        assert ended.wait(60)
    assert {compilation.name for compilation in found} == {"sort"}
    assert [compilation.finished for compilation in found] == [False] * (len(found) - 1) + [True]
    assert [seconds for _, seconds, _ in found] == sorted(seconds for _, seconds, _ in found)
    lines = [record.getMessage().partition(" for ")[0] for record in caplog.records]
    assert lines == ["sort is being compiled", "sort: compiled"]


def test_a_hook_may_be_there_twice(told: tuple[list[Compilation], threading.Event, threading.Event]) -> None:
    """Each registration of a function is taken away by itself, in any order, and once."""
    found: list[Compilation] = []
    first, second = (profiler.on_compilation(found.append) for _ in range(2))
    for remove, expected in ((second, 1), (second, 1), (first, 0)):
        remove()
        found.clear()
        compilations._tell(Compilation("sort", 1.0, True))
        assert len(found) == expected


def test_what_is_quick_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for that."""
    found: list[Compilation] = []
    remove = profiler.on_compilation(found.append)
    with caplog.at_level(logging.INFO, "aiodev"):
        with compilations.reported("add"):
            watchers = [thread for thread in threading.enumerate() if thread.name == "aiodev-compile-watch"]
        for watcher in watchers:
            watcher.join(60)
    remove()
    assert not found and not caplog.records


def test_a_hook_that_fails_keeps_nobody_from_being_told(
    told: tuple[list[Compilation], threading.Event, threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""

    def fail(compilation: Compilation) -> None:
        raise RuntimeError("not now")

    remove = profiler.on_compilation(fail)
    with compilations.reported("sort"):
        assert told[1].wait(60)
    assert told[2].wait(60)
    remove()
    remove()
    assert any("on_compilation" in record.getMessage() for record in caplog.records)


def test_a_hook_is_a_function() -> None:
    """Nothing else is taken."""
    with pytest.raises(TypeError, match="expected a function, got 3"):
        profiler.on_compilation(3)  # type: ignore[arg-type]
