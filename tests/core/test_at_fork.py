"""What is done in a forked child: all of it, in order."""

from __future__ import annotations

import logging
import os

import pytest

from aiodev._core import at_fork
from aiodev._core.backend.registry import registry

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


def test_backends_are_forgotten_before_what_stands_on_them() -> None:
    """Memory and streams look at the registry of the child."""
    names = [getattr(callback, "__qualname__", "") for callback in at_fork._in_child]
    places = [place for place, name in enumerate(names) if name in (registry.forget_after_fork.__qualname__, "_forget")]
    assert names[places[0]] == registry.forget_after_fork.__qualname__
    assert all(place > places[0] for place, name in enumerate(names) if name == "dict.clear")
