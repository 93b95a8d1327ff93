"""The workbench of a rule of conformance: queues, cells of device memory, and waiting that cannot hang."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from aiodev._core.backend.interface import COMPLETED, FAULTS, SUBMITTED, Backend, Fault

__all__ = ["Cells", "Lane", "Workbench"]

WORD = 8
_MS = 1_000_000


class Cells:
    """Words of device memory; ``cells[i]`` is the address of the i-th."""

    def __init__(self, index: int, address: int, count: int) -> None:
        self.index, self.address, self.count = index, address, count

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.address + WORD * i

    def __len__(self) -> int:
        return self.count


class Lane:
    """A queue, with its number bound to the executor's methods."""

    def __init__(self, bench: Workbench, index: int, number: int, counters: memoryview[int]) -> None:
        self.index, self.number, self.counters = index, number, counters
        self._bench, self._executor = bench, bench.executor

    def __repr__(self) -> str:
        state = f"completed {self.completed} of {self.submitted}"
        return f"<queue {self.number:#x} of device {self.index}: {state}, faults {self.faults()}>"

    @property
    def completed(self) -> int:
        """Its COMPLETED counter."""
        return self.counters[COMPLETED]

    @property
    def submitted(self) -> int:
        """Its SUBMITTED counter."""
        return self.counters[SUBMITTED]

    @property
    def fault_count(self) -> int:
        """Its FAULTS counter."""
        return self.counters[FAULTS]

    def copy_word(self, dst: int, src: int) -> int:
        """Submit the copy of one word."""
        return self._executor.copy(self.number, dst, src, WORD)

    def copy_chain(self, cells: Cells) -> int:
        """Submit copies of each cell to the next: only in order do they bring the first cell's word to the last."""
        value = 0
        for i in range(len(cells) - 1):
            value = self.copy_word(cells[i + 1], cells[i])
        return value

    def wait(self, other: Lane, value: int) -> int:
        """Submit a wait for ``other``."""
        return self._executor.wait(self.number, other.number, value)

    def wait_over(self, other: Lane, value: int) -> int:
        """Submit a wait for ``other``, however that comes out."""
        return self._executor.wait_over(self.number, other.number, value)

    def gate(self) -> tuple[int, int]:
        """Submit a gate; the workbench opens it at the end if nobody did."""
        gate = self._executor.create_gate()
        self._bench.shut_gates.add(gate)
        return self._executor.gate(self.number, gate), gate

    def open_gate_first(self, failed: bool = False) -> int:
        """Submit a gate that is open already; returns its value."""
        gate = self._executor.create_gate()
        self._executor.open_gate(gate, failed)
        return self._executor.gate(self.number, gate)

    def fail(self) -> int:
        """Submit an operation that fails (a gate opened as failed); returns its value."""
        value, gate = self.gate()
        self._bench.open(gate, failed=True)
        return value

    def withdraw(self, first: int, last: int, partly: bool = False) -> int:
        """Withdraw operations; returns the first of them, or 0."""
        return self._executor.withdraw(self.number, first, last, partly)

    def faults(self) -> list[Fault]:
        """The queue's failures."""
        return self._executor.faults(self.number)

    def forgive(self) -> None:
        """End the open failure."""
        self._executor.forgive(self.number)

    def spin(self, value: int, duration: int) -> bool:
        """The executor's own bounded wait."""
        return self._executor.spin(self.number, value, duration)

    def help(self, value: int, duration: int) -> bool:
        """Do a part of what the value waits for, if the executor leaves any to us."""
        return self._executor.help(self.number, value, duration, -1)

    def reach(self, value: int) -> None:
        """Wait for ``value``, however long the workbench is patient."""
        self._bench.until(lambda: self.spin(value, _MS), f"value {value} is not reached: {self!r}")

    def finish(self) -> None:
        """Wait for everything submitted so far."""
        self.reach(self.submitted)


class Workbench:
    """Queues and memory of one backend for one rule; leaving the block gives everything back."""

    def __init__(self, backend: Backend, patience: float = 30.0) -> None:
        self.backend, self.executor = backend, backend.executor
        self.patience = patience
        self.shut_gates: set[int] = set()
        self._lanes: list[Lane] = []
        self._memory: list[tuple[int, int, int]] = []
        self._scratch: list[object] = []
        self._descriptors: list[int] = []

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for gate in tuple(self.shut_gates):
            self.open(gate)
        if error is None:
            for lane in self._lanes:
                lane.finish()
            for lane in self._lanes:
                self.executor.destroy_queue(lane.number)
            for index, address, nbytes in self._memory:
                self.backend.deallocate(index, address, nbytes)
            # Last: a worker may write to a waker's descriptor until its queue is destroyed.
            for descriptor in self._descriptors:
                os.close(descriptor)
        # After an error queues may still be at work on all of it: leaking is the lesser evil.

    def lane(self, index: int = 0, priority: int = 0, reserved: bool = False) -> Lane:
        """A new queue."""
        number, counters = self.executor.create_queue(index, priority, reserved)
        lane = Lane(self, index, number, counters)
        self._lanes.append(lane)
        return lane

    def lanes(self, count: int) -> list[Lane]:
        """Several queues of device 0."""
        return [self.lane() for _ in range(count)]

    def allocate(self, nbytes: int, index: int = 0) -> int:
        """Device memory for as long as the block lasts."""
        address = self.backend.allocate(index, nbytes)
        self._memory.append((index, address, nbytes))
        return address

    def cells(self, values: Sequence[int], index: int = 0) -> Cells:
        """Words of device memory that hold ``values``."""
        cells = Cells(index, self.allocate(WORD * max(1, len(values)), index), len(values))
        self.write(cells.address, (ctypes.c_int64 * len(values))(*values), index)
        return cells

    def chain(self, seed: int, length: int, index: int = 0) -> Cells:
        """Cells of which the first holds ``seed`` and the others 0; see ``Lane.copy_chain``."""
        return self.cells([seed] + [0] * (length - 1), index)

    def host(self, nbytes: int) -> ctypes.Array[ctypes.c_char]:
        """Zeroed host memory that outlives the rule's operations."""
        buffer = ctypes.create_string_buffer(nbytes)
        self._scratch.append(buffer)
        return buffer

    def write(self, address: int, data: bytes | ctypes.Array[ctypes.c_int64], index: int = 0) -> None:
        """Put host data into device memory, and wait for that."""
        raw = bytes(data)
        staging = self.host(max(1, len(raw)))
        ctypes.memmove(staging, raw, len(raw))
        lane = self.lane(index)
        lane.reach(self.executor.copy(lane.number, address, ctypes.addressof(staging), len(raw)))

    def read(self, address: int, nbytes: int, index: int = 0) -> bytes:
        """Bytes of device memory."""
        staging = self.host(max(1, nbytes))
        lane = self.lane(index)
        lane.reach(self.executor.copy(lane.number, ctypes.addressof(staging), address, nbytes))
        return staging.raw[:nbytes]

    def values(self, cells: Cells) -> list[int]:
        """What the cells hold."""
        raw = self.read(cells.address, WORD * len(cells), cells.index)
        return list((ctypes.c_int64 * len(cells)).from_buffer_copy(raw))

    def last(self, cells: Cells) -> int:
        """What the last cell holds."""
        raw = self.read(cells[len(cells) - 1], WORD, cells.index)
        return int.from_bytes(raw, "little", signed=True)

    def open(self, gate: int, failed: bool = False) -> None:
        """Open a gate that a lane gave."""
        self.shut_gates.remove(gate)
        self.executor.open_gate(gate, failed)

    def pipe(self) -> tuple[int, int]:
        """Reading and writing end of a non-blocking pipe."""
        ends = os.pipe()
        for descriptor in ends:
            os.set_blocking(descriptor, False)
        self._descriptors += ends
        return ends

    def until(self, happened: Callable[[], bool], complaint: str) -> None:
        """Call ``happened``, which must wait a little by itself, until it is true or patience is over."""
        deadline = time.monotonic() + self.patience
        while not happened():
            if time.monotonic() > deadline:
                raise AssertionError(f"after {self.patience} s {complaint}")

    def pass_time(self, lanes: Iterable[Lane] = ()) -> None:
        """Give what must not happen the chance to: run an operation on another queue, then wait 2 ms for each lane."""
        witness = self.lane()
        cells = self.cells([0])
        witness.reach(witness.copy_word(cells[0], cells[0]))
        for lane in lanes:
            lane.spin(lane.submitted, 2 * _MS)
