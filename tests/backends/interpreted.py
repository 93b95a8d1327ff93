"""The native executor's functions as Python runs them, over a memory and a clock of the test's own."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import FunctionType, ModuleType
from typing import Any

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.executor import ready_queue

DEVICE, QUEUE, WORKER, STACK, HEAP = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
#: What a look at the clock takes (ns).
TICK = 1000


class World:
    """Words at addresses, all of them 0 at first, and a clock that goes on when it is read.

    Attributes:
        offered: when the thread offered its core to others.
    """

    def __init__(self) -> None:
        self.words: defaultdict[int, int] = defaultdict(int)
        self.time = 0
        self.offered: list[int] = []

    def open_range(self, left: int) -> None:
        """The queue has one, with a member, and ``left`` shares that nobody has begun; nothing else waits."""
        self.words |= {DEVICE + layout.D_WORKERS: 3, DEVICE + layout.D_HEAP: HEAP, QUEUE + layout.Q_DEVICE: DEVICE}
        self.words |= {QUEUE + layout.Q_RANGE_LEFT: left, QUEUE + layout.Q_RANGE_MEMBERS: 1}
        self.run(ready_queue, "link_range", DEVICE, QUEUE)

    def get(self, address: int) -> int:
        return self.words[address]

    def put(self, address: int, value: int) -> None:
        self.words[address] = value

    def fetch_add(self, address: int, value: int) -> int:
        before = self.words[address]
        self.words[address] += value
        return before

    def exchange(self, address: int, value: int) -> int:
        before, self.words[address] = self.words[address], value
        return before

    def now(self) -> int:
        self.time += TICK
        return self.time

    def offer(self) -> int:
        self.offered.append(self.time)
        return 0

    def run(self, module: ModuleType, name: str, *arguments: int, **replaced: Any) -> Any:
        """Call a function of a native module; what it calls is interpreted as well, unless ``replaced``."""
        return self.functions(module, **replaced)[name](*arguments)

    def functions(self, module: ModuleType, **replaced: Any) -> dict[str, Any]:
        """The functions of a native module, to be called."""
        known = {"get": self.get, "load": self.get, "load_fence": self.get, "now": self.now, "thread_time": self.now}
        known |= {"put": self.put, "store": self.put, "store_fence": self.put, "pause": lambda: None}
        known |= {"on_stack": lambda nbytes: STACK, "sem_post": lambda address: 0}
        known |= {"fetch_add": self.fetch_add, "exchange": self.exchange, "sched_yield": self.offer, **replaced}
        return self._interpreted(module, known, {})

    def _interpreted(self, module: ModuleType, known: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
        """The names of a native module, with functions of Python in place of compiled ones."""
        names = done[module.__name__] = {**vars(module), **known}
        for own, function in vars(module).items():
            body = getattr(function, "py_func", None)
            if body is None or own in known:
                continue
            home = body.__module__
            if home != module.__name__:
                names[own] = (done.get(home) or self._interpreted(sys.modules[home], known, done))[body.__name__]
            else:
                names[own] = FunctionType(body.__code__, names)
        return names
