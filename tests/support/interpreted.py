"""The native executor's functions as Python runs them, over a memory and a clock of the test's own."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import FunctionType, ModuleType
from typing import Any

from aiodev._backends.cpu.executor import ready_queue
from aiodev._backends.cpu.structs import Crowd, Device, Place, Queue, Worker
from aiodev._native.fields import Cell, Struct

STACK = 0x40000
#: What a look at the clock takes (ns).
TICK = 1000


class World:
    """Words at addresses, all of them 0 at first, and a clock that goes on when it is read.

    Attributes:
        device: a device; ``queue``, ``worker`` and ``crowd`` are what they are called, ``heap`` is room for those that wait.
        offered: when the thread offered its core to others.
    """

    def __init__(self) -> None:
        self.words: defaultdict[int, int] = defaultdict(int)
        self.time = 0
        self.offered: list[int] = []
        self._kinds: dict[Any, type[Any]] = {}
        self.device, self.queue, self.worker = Device(0x10000, self), Queue(0x20000, self), Worker(0x30000, self)
        self.heap, self.crowd = Place(0x50000, self), Crowd(0x60000, self)
        self.device.crowd, self.queue.device, self.queue.range_device = self.crowd, self.device, self.device

    def open_range(self, left: int) -> None:
        """The queue has one, with a member, and ``left`` shares that nobody has begun; nothing else waits."""
        device, queue = self.device, self.queue
        device.workers, device.heap.value = 3, self.heap
        queue.device, queue.range_left.value, queue.range_members.value = device, left, 1
        self.run(ready_queue, "link_range", device, queue)

    def get(self, address: int) -> int:
        return self.words[address]

    def put(self, address: int, value: int) -> None:
        self.words[address] = value

    def fetch_add(self, address: int, value: int) -> int:
        before = self.words[address]
        self.words[address] += value
        return before

    def fetch_min(self, address: int, value: int) -> int:
        return self.exchange(address, min(value, self.words[address]))

    def exchange(self, address: int, value: int) -> int:
        before, self.words[address] = self.words[address], value
        return before

    def compare_exchange(self, address: int, expected: int, value: int) -> bool:
        found = self.words[address] == expected
        if found:
            self.words[address] = value
        return found

    def now(self) -> int:
        self.time += TICK
        return self.time

    def offer(self) -> int:
        self.offered.append(self.time)
        return 0

    def run(self, module: ModuleType, name: str, *arguments: object, **replaced: Any) -> Any:
        """Call a function of a native module; what it calls is interpreted as well, unless ``replaced``."""
        return self.functions(module, **replaced)[name](*arguments)

    def functions(self, module: ModuleType, **replaced: Any) -> dict[str, Any]:
        """The functions of a native module, to be called."""
        known = {"now": self.now, "thread_time": self.now, "pause": lambda: None, "sched_yield": self.offer}
        known |= {"on_stack": lambda nbytes: STACK, "sem_post": lambda semaphore: 0, **replaced}
        return self._interpreted(module, known, {})

    def _interpreted(self, module: ModuleType, known: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
        """The names of a native module, with functions of Python in place of compiled ones."""
        names = done[module.__name__] = {**vars(module), **known}
        for own, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Struct | Cell):
                names[own] = self._here(value)
            body = getattr(value, "py_func", None)
            if body is None or own in known:
                continue
            home = body.__module__
            if home != module.__name__:
                names[own] = (done.get(home) or self._interpreted(sys.modules[home], known, done))[body.__name__]
            else:
                names[own] = FunctionType(body.__code__, names)
        return names

    def _here(self, kind: Any) -> type[Any]:
        """A kind of struct as native code casts to it, in this memory."""
        if kind not in self._kinds:
            cast = {"__init__": lambda made, address: kind.__init__(made, address, self)}
            self._kinds[kind] = type(kind)(kind.__name__, (kind,), cast)
        return self._kinds[kind]
