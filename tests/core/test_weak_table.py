"""What is known for as long as it lives."""

from __future__ import annotations

import gc
import random
import threading

from aiodev._core.finalizing import WeakTable


class Thing:
    """What may be known, and may be part of a cycle."""

    def __init__(self) -> None:
        self.other: Thing | None = None


def test_what_lives_is_known() -> None:
    """By its key, until it goes: at once, or when the collector finds the cycle that it is in."""
    table: WeakTable[int, Thing] = WeakTable()
    first, second = Thing(), Thing()
    table.enter(1, first)
    table.enter(2, second)
    second.other = second
    assert table.get(1) is first and table.get(2) is second and table.get(3) is None
    assert set(table.values()) == {first, second}
    del first
    assert table.get(1) is None and table.values() == [second]
    del second
    gc.collect()
    assert table.get(2) is None and table.values() == []
    assert not table._references


def test_threads_enter_look_and_let_go() -> None:
    """All at once: what a thread holds is found, and in the end nothing is left."""
    table: WeakTable[int, Thing] = WeakTable()
    failures: list[object] = []

    def work(number: int) -> None:
        chance, held = random.Random(number), dict[int, Thing]()
        for step in range(3000):
            key = number + 8 * step
            held[key] = thing = Thing()
            table.enter(key, thing)
            if chance.random() < 0.1:
                thing.other = thing
            del thing
            if len(held) > 20:
                del held[chance.choice(list(held))]
            if step % 100 == 0:
                living = set(table.values())
                failures.extend(key for key, thing in held.items() if table.get(key) is not thing or thing not in living)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not failures and not table._references
