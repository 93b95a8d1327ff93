"""A device that is one Python thread: a whole backend, made of public names alone."""

import contextlib
import ctypes
import itertools
import math
import mmap
import os
import struct
import threading
import time
from collections import deque

import numpy as np

import aiodev
from aiodev import Backend, Capabilities, DeviceProperties, Executor, Fault, KernelError


class Waker:
    """A descriptor that a loop watches, and the queues that it is to look at."""

    def __init__(self, descriptor):
        self.descriptor, self.fired = descriptor, []

    def fire(self, queue):
        self.fired.append(queue)
        if len(self.fired) == 1:  # else it is readable, or was read and is about to be collected
            with contextlib.suppress(OSError):  # full, and so readable; or closed, and nobody waits
                os.write(self.descriptor, (1).to_bytes(8, "little"))


class Gate:
    """What holds a queue until the host opens it, which may be before it holds anything."""

    holds = opened = failed = False


class Queue:
    """Operations that have not completed, as (function, whether it may begin), and what is known of the others."""

    def __init__(self, number, priority):
        self.number, self.priority = number, priority
        self.counters = memoryview(bytearray(8 * Executor.COUNTER_WORDS)).cast("q")
        self.operations = deque()
        self.served = 0  # when it had its last turn
        self.begun = 0  # the operation that began last
        self.faults = deque(maxlen=1024)
        self.withdrawn = []  # (first, last) of what is not to run
        self.armed = {}  # waker: value

    @property
    def completed(self):
        return self.counters[Executor.COMPLETED]

    def fault_of(self, value):
        """The fault that covers an operation, or None."""
        covers = (f for f in self.faults if f.first <= value and (f.last is None or value <= f.last))
        return next(covers, None)

    def fail(self, fault):
        self.faults.append(fault)
        self.counters[Executor.FAULTS] += 1


class OneThread(Executor):
    """Runs all queues, in turns, on one thread. One lock guards everything; it is not held while an operation runs."""

    def __init__(self, kernels):
        self.kernels, self.queues, self.wakers, self.gates = kernels, {}, {}, {}
        self.numbers, self.turns = itertools.count(1), itertools.count(1)
        self.changed = threading.Condition(threading.RLock())
        self.stopped = False
        self.thread = threading.Thread(target=self.work, name="one-thread", daemon=True)
        self.thread.start()

    def stop(self):
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        self.thread.join(0.25)

    # The thread

    def work(self):
        with self.changed:
            while not self.stopped:
                ready = [queue for queue in self.queues.values() if queue.operations and self.may_begin(queue)]
                if ready:
                    self.run_next(min(ready, key=lambda queue: (queue.priority, queue.served)))
                else:
                    self.changed.wait()

    def may_begin(self, queue):
        return queue.operations[0][1](queue.fault_of(queue.completed + 1) is not None)

    def run_next(self, queue):
        value, (function, _) = queue.completed + 1, queue.operations[0]
        last = max((last for first, last in queue.withdrawn if first <= value <= last), default=0)
        queue.begun, queue.served = value, next(self.turns)
        if queue.fault_of(value) is None:
            if last:
                queue.fail(Fault(value, last, None, withdrawn=True))
            else:
                self.changed.release()
                try:
                    error, dependency = function(), None
                except Exception as raised:  # whatever it is, it belongs to the waiter
                    error, dependency = raised, None
                finally:
                    self.changed.acquire()
                if error is not None:
                    if not isinstance(error, Exception):  # of a gate, or of what is waited for
                        error, dependency = None, error[0]
                    queue.fail(Fault(value, None, error, dependency))
        queue.operations.popleft()
        queue.counters[Executor.COMPLETED] = value  # last: who sees the value sees the failure
        for waker in [waker for waker, target in queue.armed.items() if target <= value]:
            del queue.armed[waker]
            waker.fire(queue.number)
        self.changed.notify_all()

    # Queues and submission

    def create_queue(self, index, priority, reserved):
        with self.changed:
            queue = self.queues[number] = Queue(number := next(self.numbers), priority)
        return number, queue.counters.toreadonly()

    def destroy_queue(self, queue):
        with self.changed:
            del self.queues[queue]

    def submit(self, number, function, may_begin=lambda skipped: True):
        queue = self.queues[number]
        with self.changed:
            queue.operations.append((function, may_begin))
            queue.counters[Executor.SUBMITTED] += 1
            self.changed.notify_all()
            return queue.counters[Executor.SUBMITTED]

    def launch(self, queue, entry, size, arguments, site):
        return self.submit(queue, lambda: self.kernels[entry](size, arguments, site))

    def copy(self, queue, dst, src, nbytes):
        return self.submit(queue, lambda: ctypes.memmove(dst, src, nbytes) and None)

    def fill(self, queue, dst, count, pattern):
        return self.submit(queue, lambda: ctypes.memmove(dst, pattern * count, count * len(pattern)) and None)

    def stamp(self, queue, cell):
        def store():
            ctypes.c_int64.from_address(cell).value = time.perf_counter_ns()

        return self.submit(queue, store)

    def wait(self, queue, other, value):
        source = self.queues[other]

        def outcome():
            fault = source.fault_of(value)
            return None if fault is None else ((other, fault.first),)

        return self.submit(queue, outcome, lambda skipped: source.completed >= value)

    def wait_over(self, queue, other, value):
        source = self.queues[other]
        return self.submit(queue, lambda: None, lambda skipped: source.completed >= value)

    def create_gate(self):
        self.gates[number := next(self.numbers)] = Gate()
        return number

    def gate(self, queue, number):
        with self.changed:
            gate = self.gates[number]
            gate.holds = True
            if gate.opened:
                del self.gates[number]
        return self.submit(queue, lambda: (None,) if gate.failed else None, lambda skipped: gate.opened or skipped)

    def open_gate(self, number, failed):
        with self.changed:
            gate = self.gates[number]
            gate.opened, gate.failed = True, failed
            if gate.holds:
                del self.gates[number]
            self.changed.notify_all()

    def withdraw(self, queue, first, last, partly):
        with self.changed:
            line = self.queues[queue]
            start = max(first, line.begun + 1)
            if start > last or (start > first and not partly):
                return 0
            line.withdrawn = [span for span in line.withdrawn if span[1] > line.completed] + [(start, last)]
            return start

    # Waiting

    def spin(self, queue, value, duration):
        with self.changed:
            return self.changed.wait_for(lambda: self.queues[queue].completed >= value, duration / 1e9)

    def create_waker(self, descriptor):
        self.wakers[number := next(self.numbers)] = Waker(descriptor)
        return number

    def arm(self, queue, value, waker):
        with self.changed:
            line, firing = self.queues[queue], self.wakers[waker]
            if line.completed >= value:
                return False
            line.armed[firing] = min(value, line.armed.get(firing, value))
            return True

    def collect(self, waker):
        with self.changed:
            fired, self.wakers[waker].fired = self.wakers[waker].fired, []
            return fired

    # Failure

    def faults(self, queue):
        with self.changed:
            return list(self.queues[queue].faults)

    def forgive(self, queue):
        with self.changed:
            line = self.queues[queue]
            if line.faults and line.faults[-1].last is None:
                line.faults[-1] = line.faults[-1]._replace(last=line.counters[Executor.SUBMITTED])


class OneThreadBackend(Backend):
    """The device: memory of this process, kernels that Python itself runs."""

    name = "thread"
    capabilities = Capabilities(host_accessible=True)

    def __init__(self):
        self.memory, self.kernels, self.entries = {}, {}, itertools.count(1)

    def unavailable_reason(self):
        return None

    def device_count(self):
        return 1

    def device_properties(self, index):
        return DeviceProperties("A thread", self.name, index, 1 << 30, 1, (0, 0))

    def start(self):
        self.executor = OneThread(self.kernels)

    def stop(self):
        self.executor.stop()

    def allocate(self, index, nbytes):
        if nbytes > self.memory_info(index)[0]:
            raise MemoryError(f"{nbytes} bytes are more than the device has left")
        room = mmap.mmap(-1, nbytes)  # whole pages, which the system has when they are touched
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        self.memory[address] = room
        return address

    def deallocate(self, index, address, nbytes):
        del self.memory[address]

    def memory_info(self, index):
        return (1 << 30) - sum(map(len, list(self.memory.values()))), 1 << 30

    def compile(self, spec, directory):
        """Nothing is compiled."""

    def reserve_entry(self):
        return next(self.entries)

    def load_cached(self, entry, spec, directory):
        self.kernels[entry] = lambda size, block, site: run_kernel(spec, size, block, site)
        return True

    def load_into(self, entry, spec, directory):
        self.load_cached(entry, spec, directory)


def run_kernel(spec, size, block, site):
    """Run a body for every index. The block begins with the shape; the arguments say where in it they are."""
    shape = struct.unpack_from(f"<{spec.ndim}q", block)
    arguments = [read_argument(block, argument) for argument in spec.parse_arguments()]
    try:
        for index in np.ndindex(*shape) if size else ():
            spec.function(*index, *arguments)
    except Exception as error:
        raise KernelError(spec.name, f"{type(error).__name__}: {error}", submitted_at=aiodev.describe_site(site)) from error


def read_argument(block, argument):
    """A number of the block, or a view of the array that it describes by address, shape and strides."""
    dtype = np.dtype(argument.element.name)
    if not argument.is_array:
        return np.frombuffer(block, dtype, 1, argument.offset)[0]
    address, *lengths = struct.unpack_from(f"<{argument.words}q", block, argument.offset)
    shape, strides = lengths[: argument.ndim], lengths[argument.ndim :]
    if argument.layout == "C":
        strides = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(argument.ndim)]
    if 0 in shape:
        return np.empty(shape, dtype)
    below = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    above = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0)
    memory = (ctypes.c_char * (above - below + dtype.itemsize)).from_address(address + below)
    return np.ndarray(shape, dtype, memory, -below, strides)
