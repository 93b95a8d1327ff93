"""What is loaded behind the first start."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from aiodev._core.backend import background
from aiodev._core.finalizing import program
from aiodev._kernel.dispatch import native_functions

#: A group waits, when all is loaded that is loaded behind the start of a service.
GROUP = """
import asyncio, sys, threading, time
import aiodev

async def main():
    await aiodev.init("cpu")
    while any(thread.name in ("aiodev-start-cpu", "aiodev-background") for thread in threading.enumerate()):
        await asyncio.sleep(0.01)
    before = set(sys.modules)
    async with aiodev.StreamGroup("cpu", cancel=True) as group:
        group.stream().call(time.sleep, 0.05)
    print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As in a process where no backend has started; the names of the threads that load."""
    seen: list[str] = []
    monkeypatch.setattr(background, "_loads", [lambda: seen.append(threading.current_thread().name)] * 2)
    monkeypatch.setattr(background, "_progress", background._Progress())
    return seen


def thread_that_loads() -> threading.Thread:
    """It has been started, and may be over soon."""
    (found,) = (thread for thread in threading.enumerate() if thread.name == "aiodev-background")
    return found


def test_one_thread_loads_all_of_it_once(loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a start, and not before; however often it is asked for."""
    go_on = threading.Event()
    background._loads.insert(0, lambda: go_on.wait(20))
    background.load_in_background()
    assert not background._progress.has_begun
    background._progress.may_begin = True
    background.load_in_background()
    background.load_in_background()
    thread = thread_that_loads()
    go_on.set()
    thread.join(20)
    assert loads == [thread.name] * 2


def test_it_is_tried_again_where_there_was_no_thread(loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As there are too many."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background._progress.may_begin = True
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        background.load_in_background()
    assert not loads and not background._progress.has_begun
    background.load_in_background()
    assert background._progress.has_begun


def test_a_group_that_waits_imports_nothing_in_its_loop() -> None:
    """anyio's code for the loop is there by then."""
    found = subprocess.run([sys.executable, "-c", GROUP], capture_output=True, text=True, timeout=120, check=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_native_code_that_the_end_of_the_program_overtakes_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Classes have no finalizers any more then, which it would look at."""

    def fail() -> None:
        raise KeyError("__del__")

    monkeypatch.setattr(native_functions, "check_layouts", fail)
    monkeypatch.setattr(program, "ends", True)
    code = native_functions._Code()
    with caplog.at_level(logging.WARNING, "aiodev"):
        code.load()
    assert not code.functions and not caplog.text
