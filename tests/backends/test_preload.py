"""The collector around the import of a compiler."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from aiodev._native import preload
from aiodev._native.preload import quiet_import


class Node:
    """Something that can be a part of a cycle."""

    def __init__(self) -> None:
        self.other = self


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a program that never froze its heap; and no library is loaded."""
    monkeypatch.setattr(preload, "load_llvm", lambda: None)
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


def test_what_the_program_had_is_collected_when_it_becomes_garbage() -> None:
    """Nothing that is alive at the import is kept from the collector."""
    node = Node()
    gone = weakref.ref(node)
    with quiet_import():
        pass
    assert gc.get_freeze_count() == 0
    del node
    gc.collect()
    assert gone() is None


def test_what_the_import_makes_is_old_without_a_collection() -> None:
    """The next collection of young objects does not walk it."""
    collections = [generation["collections"] for generation in gc.get_stats()]
    with quiet_import():
        assert not gc.isenabled()
        made = Node()
        assert not any(found is made for found in gc.get_objects(generation=2))
    assert any(found is made for found in gc.get_objects(generation=2))
    assert gc.get_stats()[2]["collections"] == collections[2]
    assert gc.isenabled()


def test_what_the_program_froze_stays_frozen() -> None:
    """It has said that this lives for ever; other threads may drop some of it meanwhile, so it gets fewer."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    with quiet_import():
        made = Node()
    assert 0.9 * frozen < gc.get_freeze_count() <= frozen
    del made


@pytest.mark.parametrize("enabled", [False, True])
def test_a_collector_that_rested_rests_on(enabled: bool) -> None:
    """Whether it is enabled is the program's business."""
    (gc.enable if enabled else gc.disable)()
    with quiet_import():
        assert not gc.isenabled()
    assert gc.isenabled() is enabled
