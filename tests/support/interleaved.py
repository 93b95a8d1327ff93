"""Threads of the native executor as Python runs them, one at a time, in an order that chance decides at each access.

**Problem.** A thread of ours may lose its core between any two instructions, for milliseconds, and others go on. On an idle
machine that hardly ever comes where it matters; and what it does there is seen later, elsewhere, or not at all.

**Solution.** Each thread of a test is one of Python's, of which one runs at a time. Before each access to memory it may have to
give way. Threads have priorities by chance, and the first one that can run does, except that at a few accesses, also by chance,
the one that runs becomes the last [1]_, until nobody else gets anywhere. That finds what takes few switches at right places,
however long others run between them. Memory that was freed is not handed out again, and no access to it is allowed. A thread
that spins comes behind those that do not; where all do that for long nobody will ever make progress, which is a failure, too.

All accesses have one order here. On a processor where they have not, that is for the memory orders that are asked for.

.. [1] S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte: A randomized scheduler with probabilistic guarantees of finding
   bugs. ASPLOS 2010.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from interpreted import TICK, World

#: How often threads may spin, or how many accesses they may make, until nobody is thought to make progress any more.
MOST_SPINS, MOST_ACCESSES = 20_000, 1_000_000
#: How often others spin until a thread that gave way has a core again; and how far behind others it is until then.
PATIENCE, AWAY = 100, -1e9


class _Ended(BaseException):
    """The program is over, since a thread has failed."""


class Thread:
    """One of the threads of a program."""

    def __init__(self, name: str, body: Callable[[], object], priority: float) -> None:
        self.name, self.body, self.priority = name, body, priority
        self.turn = threading.Semaphore(0)
        self.waits_for = 0  #: address of the semaphore that it sleeps on, or 0
        self.until: int | None = None  #: when it wakes up in any case
        self.is_over = False


class Interleaved(World):
    """A memory, and threads that take turns on it.

    Attributes:
        running: the thread whose turn it is.
        places: how many there were at which it might have given way.
    """

    def __init__(self, seed: int, switches: Collection[int] = (), only_atomic: bool = False) -> None:
        """At ``switches`` the thread that runs becomes the last: numbers of places, from 1.

        Places are before an access and behind an atomic one that reads and writes, with ``only_atomic`` around those alone.
        """
        self.chance = random.Random(seed)
        self._switches, self._only_atomic = frozenset(switches), only_atomic
        self.places = self._accesses = self._progressed = self._spun = 0
        self._lowest = itertools.count(-1, -1)
        self._threads: list[Thread] = []
        self.running: Thread | None = None
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._free, self._sizes, self._freed = 0x10_0000_0000, dict[int, int](), set[int]()
        super().__init__()

    # Threads

    def add(self, name: str, body: Callable[[], object]) -> None:
        """A thread, which begins once the program runs."""
        self._threads.append(Thread(name, body, self.chance.random()))

    def start(self) -> None:
        """Run all threads until each has returned, or one has failed: that is raised."""
        hosts = [threading.Thread(target=self._host, args=(thread,), daemon=True) for thread in self._threads]
        for host in hosts:
            host.start()
        self._hand_on()
        self._over.wait()
        for thread in self._threads:
            thread.turn.release()
        for host in hosts:
            host.join()
        self.running = None
        if self._failure is not None:
            raise self._failure

    def _host(self, thread: Thread) -> None:
        thread.turn.acquire()
        try:
            if not self._over.is_set():
                thread.body()
        except _Ended:
            return
        except BaseException as error:
            error.add_note(f"in {thread.name}, at access {self._accesses}")
            self._fail(error)
            return
        thread.is_over = True
        self.progress()
        self._hand_on()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._over.set()

    def _hand_on(self) -> None:
        """Let the first thread that can run do so, or end the program."""
        able = [thread for thread in self._threads if not thread.is_over and self._can_run(thread)]
        if not able:
            timed = [thread.until for thread in self._threads if not thread.is_over and thread.until is not None]
            if timed:
                self.time = max(self.time, min(timed))
                return self._hand_on()
            asleep = [thread.name for thread in self._threads if not thread.is_over]
            if asleep:
                self._fail(AssertionError(f"{', '.join(asleep)} sleep for ever"))
            self._over.set()
            return None
        self.running = max(able, key=lambda thread: thread.priority)
        self.running.turn.release()
        return None

    def _can_run(self, thread: Thread) -> bool:
        if thread.waits_for == 0 or self.words[thread.waits_for] > 0:
            return True
        return thread.until is not None and thread.until <= self.time

    def _give_way(self, thread: Thread) -> None:
        """Let another thread run that comes before this one, if there is any."""
        self._hand_on()
        thread.turn.acquire()
        if self._over.is_set():
            raise _Ended

    def _demote(self, level: float) -> None:
        if self.running is not None:
            self.running.priority = level + next(self._lowest)
            self._give_way(self.running)

    def spin(self) -> int:
        """Become the last but for those without a core: this thread waits for what another one does, one of them perhaps."""
        self.time += TICK
        self._spun += 1
        assert self._spun <= MOST_SPINS, "threads spin for ever"
        if self._spun % PATIENCE == 0:
            for thread in self._threads:
                thread.priority -= AWAY if thread.priority < AWAY else 0
        self._demote(0)
        return 0

    def sleep(self, semaphore: Any, until: int | None = None) -> int:
        """Wait for a semaphore, perhaps until some time; 0, or -1 when that has come."""
        thread = self.running
        assert thread is not None
        thread.waits_for, thread.until = semaphore.address, until
        self._give_way(thread)
        thread.waits_for, thread.until = 0, None
        if self.words[semaphore.address] == 0:
            return -1
        self.words[semaphore.address] -= 1
        return 0

    def wake(self, semaphore: Any) -> int:
        """Post a semaphore."""
        return self.fetch_add(semaphore.address, 1) * 0

    def write(self, descriptor: int, word: Any, nbytes: int) -> None:
        """Make a descriptor readable, for which there is a semaphore here."""
        self.put(descriptor, 1)

    # Memory

    def allocate(self, nbytes: int) -> int:
        """Fresh memory."""
        address = self._free
        self._free += (nbytes + 63) // 64 * 64 + 64
        self._sizes[address] = nbytes
        return address

    def free(self, address: Any) -> None:
        """Memory that nobody touches from now on."""
        address = getattr(address, "address", address)
        assert address not in self._freed, f"{address:#x} is freed twice"
        self._freed.update(range(address, address + self._sizes[address], 8))

    def touch(self, address: int, atomic: bool = False) -> None:
        """Be about to make an access."""
        self._accesses += 1
        assert self._accesses - self._progressed <= MOST_ACCESSES, "threads run for ever"
        if atomic or not self._only_atomic:
            self._place()
        assert address not in self._freed, f"{address:#x} is used after it was freed"

    def _place(self) -> None:
        self.places += 1
        if self.places in self._switches:
            self._demote(AWAY)

    def progress(self) -> None:
        """A thread has done more than spin."""
        self._spun, self._progressed = 0, self._accesses

    def get(self, address: int) -> int:
        self.touch(address)
        return super().get(address)

    def put(self, address: int, value: int) -> None:
        self.touch(address)
        super().put(address, value)

    def fetch_add(self, address: int, value: int) -> int:
        self.touch(address, True)
        before = super().fetch_add(address, value)
        self._place()
        return before

    def fetch_min(self, address: int, value: int) -> int:
        return self.exchange(address, lambda before: min(before, value))

    def exchange(self, address: int, value: int | Callable[[int], int]) -> int:
        self.touch(address, True)
        before = self.words[address]
        self.words[address] = value(before) if callable(value) else value
        self._place()
        return before

    def compare_exchange(self, address: int, expected: int, value: int) -> bool:
        self.touch(address, True)
        found = super().compare_exchange(address, expected, value)
        self._place()
        return found

    # Native code

    def functions(self, module: ModuleType, **replaced: Any) -> dict[str, Any]:
        """The functions of a native module, with this memory and these threads in place of the machine's."""
        ours: dict[str, Any] = {
            "pause": self.spin, "sched_yield": self.spin, "sem_wait": self.sleep, "sem_post": self.wake,
            "clock_wait": lambda function, semaphore, timespec: self.sleep(semaphore, self._until(timespec)),
            "malloc": self.allocate, "aligned_alloc": lambda alignment, nbytes: self.allocate(nbytes), "free": self.free,
            "on_stack": self.allocate, "get": self.get, "put": self.put,
            "c_poll": lambda polled, count, timeout: 0, "c_write": self.write,
            "bytes_length": len, "bytes_address": lambda text: 0, "copy_memory": lambda target, source, nbytes: None,
        }  # fmt: skip
        return super().functions(module, **ours | replaced)

    def _until(self, timespec: Any) -> int:
        return int(timespec.seconds * 1_000_000_000 + timespec.nanoseconds)
