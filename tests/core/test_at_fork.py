"""What is done in a forked child: all of it, in order."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import aiodev
from aiodev._core import at_fork
from aiodev._core.backend.registry import registry
from aiodev._core.waiting import waitset, watcher as watcher_module
from aiodev._core.waiting.waitset import Descriptor, WaitSet

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def test_callbacks_run_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails is logged, and those after it run."""
    done: list[str] = []
    monkeypatch.setattr(at_fork, "_in_child", [])
    at_fork.in_child(lambda: done.append("first"))
    at_fork.in_child(lambda: done.remove("absent"))
    at_fork.in_child(lambda: done.append("last"))
    monkeypatch.setattr(logging.getLogger("aiodev"), "disabled", True)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, " ".join(done).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"first last"
    assert not done, "the parent has called them"
    os.close(reading)
    os.close(writing)


def test_what_drops_things_finds_all_of_it_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks of the first round are called ahead of the others, wherever they were registered (invariants 1 and 2)."""
    seen: list[object] = []
    monkeypatch.setattr(at_fork, "_first", [])
    monkeypatch.setattr(at_fork, "_in_child", [])
    at_fork.in_child(lambda: seen.append(at_fork.forking))
    at_fork.first_in_child(lambda: seen.append("first"))
    at_fork.first_in_child(lambda: seen.append(at_fork.forking))
    assert check_in_child(lambda: seen == ["first", True, False])
    assert not at_fork.forking


def test_a_descriptor_of_its_own_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child closes what it has inherited, and never what was made there: another thread may be reading it."""
    monkeypatch.setattr(waitset, "_descriptors", [])
    mine, inherited, own = watcher_module.Watcher(), Descriptor(), Descriptor()
    inherited.process = 0
    waits = mine._waits = WaitSet()
    waitset._descriptors.extend([own, inherited])
    mine.forget_after_fork()
    waitset.forget_after_fork()
    assert mine._waits is waits and waitset._descriptors == [own]
    for descriptor in (waits.descriptor, own):
        descriptor.wake()
        descriptor.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        inherited.wake()
    monkeypatch.setattr(waits, "_recycled", True)


def test_what_is_called_is_a_function() -> None:
    """Refused where it is given, not in the child."""
    with pytest.raises(TypeError, match="in_child: argument callback: expected a function"):
        aiodev.in_child("forget")  # type: ignore[arg-type]


def check_in_child(check: Callable[[], bool]) -> bool:
    """What a child says, which this process forks."""
    child = os.fork()
    if not child:
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> at_fork.Whole:
    """The only one there is."""
    monkeypatch.setattr(at_fork.Whole, "_all", [])
    return at_fork.Whole()


def free(whole: at_fork.Whole) -> bool:
    """Whether another thread could have it."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(whole._lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found == [True]


def test_a_fork_waits_until_it_is_done(whole: at_fork.Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread does as a whole is done in the child, where nobody holds it, and goes on in neither process."""
    begun, waited, done = threading.Event(), threading.Event(), list[int]()

    def hold() -> None:
        with whole:
            begun.set()
            assert waited.wait(30)
            done.append(1)

    monkeypatch.setattr(at_fork.time, "sleep", lambda seconds: waited.set())
    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(30)
    assert check_in_child(lambda: done == [1] and free(whole))
    thread.join()
    assert free(whole)


@pytest.mark.parametrize("case", ["waits", "begins anew", "of the program"])
def test_imports_by_other_threads(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that a thread of aiodev imports is whole in the child, or can be imported there; others are not waited for."""
    source = "import its_stage\nits_stage.begun.set()\nassert its_stage.go_on.wait(30)\ndone = 1\n"
    (tmp_path / "slow_module.py").write_text(source)
    stage = SimpleNamespace(begun=threading.Event(), go_on=threading.Event())
    monkeypatch.setitem(sys.modules, "its_stage", stage)
    monkeypatch.syspath_prepend(tmp_path)
    if case == "waits":
        monkeypatch.setattr(at_fork.time, "sleep", lambda seconds: stage.go_on.set())
    else:
        monkeypatch.setattr(at_fork, "FORK_PATIENCE", 0.0)
    name = "program" if case == "of the program" else "aiodev-load"
    thread = threading.Thread(target=importlib.import_module, args=("slow_module",), name=name)
    thread.start()
    assert stage.begun.wait(30)

    def check() -> bool:
        module = sys.modules.get("slow_module")
        if case == "of the program":
            return module is not None and not hasattr(module, "done")
        stage.go_on.set()
        return (module is not None) is (case == "waits") and hasattr(importlib.import_module("slow_module"), "done")

    try:
        assert check_in_child(check)
    finally:
        stage.go_on.set()
        thread.join()
        del sys.modules["slow_module"]


def test_who_never_ends_does_not_keep_others_from_forking(whole: at_fork.Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the patience is over, the child gets it anew."""
    monkeypatch.setattr(at_fork, "FORK_PATIENCE", 0.0)
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with whole:
            begun.set()
            assert over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(30)
    assert check_in_child(lambda: free(whole))
    over.set()
    thread.join()
    assert free(whole)


def test_who_forks_may_hold_it(whole: at_fork.Whole) -> None:
    """The thread that forks goes on with it in both processes."""

    def leave() -> bool:
        whole.__exit__()
        return free(whole)

    whole.__enter__()
    assert check_in_child(leave)
    assert leave()


def test_the_collector_waits_for_the_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finalizers run before the first callback or behind the last, and the collector is as it was."""
    seen: list[bool] = []
    monkeypatch.setattr(at_fork, "_first", [])
    monkeypatch.setattr(at_fork, "_in_child", [lambda: seen.append(gc.isenabled())])
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            at_fork._run()
            seen.append(gc.isenabled())
        finally:
            gc.enable()
    assert seen == [False, True, False, False]


def test_nobody_finds_a_closed_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a child forgets the watcher's descriptor and those in the pool, what a finalizer would take is open."""
    mine, pool, taken = watcher_module.Watcher(), [Descriptor(), Descriptor()], list[bool]()
    waits = mine._waits = WaitSet()
    for descriptor in (*pool, waits.descriptor):
        descriptor.process = 0  # another one, as its child sees it
    monkeypatch.setattr(waitset, "_descriptors", pool)

    def close(descriptor: Descriptor) -> None:
        left = [*pool] if mine._waits is None else [*pool, mine._waits.descriptor]
        taken.append(all(other is not descriptor for other in left))

    monkeypatch.setattr(Descriptor, "close", close)
    mine.forget_after_fork()
    waitset.forget_after_fork()
    assert taken == [True, True, True]
    assert waits.descriptor not in pool


def test_backends_are_forgotten_before_what_stands_on_them() -> None:
    """Memory and streams look at the registry of the child."""
    names = [getattr(callback, "__qualname__", "") for callback in at_fork._first]
    places = [place for place, name in enumerate(names) if name in (registry.forget_after_fork.__qualname__, "_lose")]
    assert names[places[0]] == registry.forget_after_fork.__qualname__
    assert all(place > places[0] for place, name in enumerate(names) if name == "dict.clear")
