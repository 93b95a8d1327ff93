"""Every exception that aiodev raises on purpose.

::

    AiodevError
    ├─ BackendError
    │  ├─ BackendNotFoundError        (LookupError)   no such backend is registered
    │  ├─ BackendUnavailableError                     it cannot start here; ``.reason`` says why
    │  └─ BadForkError                                it was started before this process was forked
    ├─ DeviceError
    │  ├─ DeviceLostError                             the device is gone; sticky
    │  ├─ OutOfMemoryError            (MemoryError)
    │  ├─ CaptureError                               what was called cannot be captured into a graph
    │  └─ InvalidDeviceError          (ValueError)
    ├─ KernelError                                    a kernel raised; the cause is its own exception
    │  ├─ CompileError                                ``.log`` is the compiler's message
    │  ├─ LaunchError                 (TypeError)     ``.argument`` is the argument at fault
    │  └─ DependencyError                             an earlier operation failed; the cause is that failure
    ├─ GradientError               (RuntimeError)    a backward pass failed at a node; the cause is that failure
    ├─ GraphFileError                (ValueError)    a graph cannot be saved, or loaded from a file
    ├─ CallError                   (RuntimeError)    what a called function raised would end the waiting task
    ├─ ThreadLimitError            (RuntimeError)    no thread could be started to call a function
    ├─ WithdrawnError                                 the operation was withdrawn before it began
    ├─ StreamFullError                (asyncio.QueueFull)   in aiodev._core.streams.capacity
    ├─ SyncError                      (RuntimeError)  a thread whose loop runs was about to block
    └─ ClosedError

A warning stands beside them: SyncWarning (RuntimeWarning), for what SyncError forbids.

Messages are built here, from attributes, in one order: what was asked, what was found, what to do.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from aiodev._core import callsites

__all__ = [
    "AiodevError",
    "BackendError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "BadForkError",
    "CallError",
    "CaptureError",
    "ClosedError",
    "CompileError",
    "DependencyError",
    "DeviceError",
    "DeviceLostError",
    "GradientError",
    "GraphFileError",
    "InvalidDeviceError",
    "KernelError",
    "LaunchError",
    "OutOfMemoryError",
    "SyncError",
    "SyncWarning",
    "ThreadLimitError",
    "WithdrawnError",
]


class AiodevError(Exception):
    """Base of every error that aiodev raises on purpose.

    Example:
        >>> try:
        ...     aiodev.Device("cuda:-1")
        ... except aiodev.AiodevError as error:
        ...     type(error).__name__
        'InvalidDeviceError'
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__.copy())


def _rebuilt(kind: type[AiodevError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> AiodevError:
    error = Exception.__new__(kind, *arguments)  # the __new__ of their other bases, as MemoryError, refuses
    error.__dict__.update(attributes)
    return error


def fresh(error: BaseException) -> BaseException:
    """A copy of a stored error if it is one of ours, else the error itself.

    Raising adds the waiter's frames to the traceback, and these hold whatever is in their variables, such as arrays. That
    must not last as long as the stored error, nor grow with every waiter.
    """
    if not isinstance(error, AiodevError):
        return error
    copied = copy.copy(error).with_traceback(error.__traceback__)
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied


class BackendError(AiodevError):
    """Something about a backend as a whole.

    Example:
        >>> issubclass(aiodev.BackendUnavailableError, aiodev.BackendError)
        True
    """


class BackendNotFoundError(BackendError, LookupError):
    """No backend of that name is registered.

    Example:
        >>> try:
        ...     aiodev.Stream("abacus")
        ... except LookupError as error:
        ...     isinstance(error, aiodev.BackendNotFoundError)
        True
    """

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        self.name = name
        self.known = known
        super().__init__(name, known)

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return (
            f"no backend is called {self.name!r} (registered: {known}); install the package that "
            f"provides it, or register one with aiodev.register_backend({self.name!r}, factory)"
        )


class BackendUnavailableError(BackendError):
    """A backend is registered but cannot start here; ``reason`` says why.

    Example:
        >>> error = aiodev.BackendUnavailableError("cuda", "no driver is installed")
        >>> error.reason
        'no driver is installed'
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(name, reason)

    def __str__(self) -> str:
        return f"backend {self.name!r} cannot start: {self.reason}"


class BadForkError(BackendError):
    """Work or a backend that belongs to the parent of a forked process.

    Example:
        >>> issubclass(aiodev.BadForkError, aiodev.BackendError)
        True
    """

    def __init__(self, what: str, advice: str) -> None:
        self.what = what
        self.advice = advice
        super().__init__(what, advice)

    def __str__(self) -> str:
        return f"{self.what} belongs to the parent of this forked process; {self.advice}"


class DeviceError(AiodevError):
    """Something about one device.

    Example:
        >>> issubclass(aiodev.OutOfMemoryError, aiodev.DeviceError)
        True
    """


class DeviceLostError(DeviceError):
    """The device no longer answers; every wait on it, now and later, raises this.

    Example:
        >>> issubclass(aiodev.DeviceLostError, aiodev.DeviceError)
        True
    """

    def __init__(self, device: str, reason: str) -> None:
        self.device = device
        self.reason = reason
        super().__init__(device, reason)

    def __str__(self) -> str:
        return f"{self.device} was lost: {self.reason}; restart the process to use it again"


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has no room for an allocation, even after releasing every cached block.

    All attributes are bytes; ``free`` and ``total`` are of what this process may have, which is the device's memory or its own
    fraction of that.

    Example:
        >>> try:
        ...     aiodev.empty(2**60, device="cpu")
        ... except MemoryError as error:
        ...     isinstance(error, aiodev.OutOfMemoryError), error.requested >= 2**60
        (True, True)
    """

    def __init__(
        self, device: str, requested: int, *, allocated: int, reserved: int, free: int, total: int, in_flight: int = 0
    ) -> None:
        self.device = device
        self.requested = requested
        self.allocated = allocated
        self.reserved = reserved
        self.free = free
        self.total = total
        self.in_flight = in_flight  #: of what was freed, what queued work still uses
        super().__init__(device, requested)

    def __str__(self) -> str:
        remedy = "release arrays, or admit work with aiodev.memory.lease()"
        if self.in_flight:
            remedy = f"{self.in_flight:,} were freed, but queued work still uses them; await it, {remedy}"
        return (
            f"{self.requested:,} bytes asked for on {self.device}; {self.allocated:,} are allocated, "
            f"{self.reserved:,} reserved, {self.free:,} of {self.total:,} free; {remedy}"
        )


class CaptureError(DeviceError):
    """Something cannot be captured into a graph; or what waits for captured work, which runs when the graph is replayed.

    A call that is refused records nothing, and leaves streams, memory and generators as they were. The same goes for CUDA
    streams that another library is capturing.

    Attributes:
        reason: why.
        call: what the program called, such as ``Stream.synchronize``; None where it is not known.
        place: ``file:line`` of that call, or None.

    Example:
        >>> async def main():
        ...     async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        ...         done = aiodev.current_stream().call(print)
        ...         await done
        >>> asyncio.run(main())
        Traceback (most recent call last):
        ...
        aiodev.CaptureError: Completion.__await__ at <doctest ...>:4: the host cannot wait for captured work
    """

    def __init__(self, reason: str, *, call: str | None = None, place: str | None = None) -> None:
        self.reason = reason
        self.call = call
        self.place = place
        super().__init__(reason)

    def __str__(self) -> str:
        where = f" at {callsites.show(self.place)}" if self.place else ""
        return f"{self.call}{where}: {self.reason}" if self.call else self.reason


def refused(reason: str, call: str | None = None) -> CaptureError:
    """The error of what the program called, and where it did; ``call`` where that has another name than its function."""
    name, place = callsites.called(sys._getframe(1))
    return CaptureError(reason, call=call or name, place=place)


class InvalidDeviceError(DeviceError, ValueError):
    """A device that cannot exist, or one that this machine does not have.

    Example:
        >>> try:
        ...     aiodev.Stream("cpu:1000")
        ... except ValueError as error:
        ...     isinstance(error, aiodev.InvalidDeviceError)
        True
    """

    def __init__(self, asked: object, found: str) -> None:
        self.asked = asked
        self.found = found
        super().__init__(asked, found)

    def __str__(self) -> str:
        return f"{self.asked!r} is not a device here: {self.found}"


class KernelError(AiodevError):
    """A kernel raised; ``__cause__`` is its own exception.

    Attributes:
        kernel: the kernel's name.
        location: ``file:line`` in the kernel where it raised, or the kernel's first line.
        submitted_at: ``file:line`` of the launch, or ``None`` where it is not known. The message names a notebook's cell by its
            number, and shows the line.
        node: which operation of a graph it was, if of one, counted from 0; ``submitted_at`` is where it was captured then.

    Example:
        >>> @aiodev.kernel
        ... def positive(i, x):
        ...     if x[i] < 0:
        ...         raise ValueError("negative")
        >>> try:
        ...     positive[1](aiodev.full(1, -1.0, device="cpu")).synchronize_blocking()
        ... except aiodev.KernelError as error:
        ...     error.__cause__
        ValueError('negative')
    """

    def __init__(
        self, kernel: str, detail: str, *, location: str | None = None, submitted_at: str | None = None
    ) -> None:
        self.kernel = kernel
        self.detail = detail
        self.location = location
        self.submitted_at = submitted_at
        self.node: int | None = None
        super().__init__(kernel, detail)

    def __str__(self) -> str:
        text = f"{self.kernel}: {self.detail}"
        if self.location:
            text += f" (at {callsites.show(self.location)})"
        done = "launched" if self.node is None else f"node {self.node} of a graph, captured"
        if self.submitted_at:
            text += f"; {done} at {callsites.show(self.submitted_at)}"
        return text


class CompileError(KernelError):
    """A kernel does not compile; ``log`` is the compiler's message.

    Example:
        >>> @aiodev.kernel
        ... def wrong(i, x):
        ...     x[i] = "text"
        >>> try:
        ...     wrong[1](aiodev.zeros(1, device="cpu")).synchronize_blocking()
        ... except aiodev.CompileError as error:
        ...     error.kernel
        'wrong'
    """

    def __init__(self, kernel: str, log: str, *, location: str | None = None) -> None:
        super().__init__(kernel, f"does not compile: {log.strip()}", location=location)
        self.log = log

    def __str__(self) -> str:
        places = [f"at {callsites.show(self.location)}"] if self.location else []  # ahead of the log, which is long
        places += [f"launched at {callsites.show(self.submitted_at)}"] if self.submitted_at else []
        where = f" ({'; '.join(places)})" if places else ""
        return f"{self.kernel}: does not compile{where}: {self.log.strip()}"


class LaunchError(KernelError, TypeError):
    """A launch whose arguments do not fit the kernel; ``argument`` names the one at fault.

    Example:
        >>> @aiodev.kernel
        ... def clear(i, x):
        ...     x[i] = 0
        >>> try:
        ...     clear[1](np.zeros(1))
        ... except aiodev.LaunchError as error:
        ...     error.argument
        'x'
    """

    def __init__(self, kernel: str, argument: str | None, expected: str, found: str) -> None:
        where = f"argument {argument}: " if argument else ""
        super().__init__(kernel, f"{where}expected {expected}, got {found}")
        self.argument = argument
        self.expected = expected
        self.found = found


class DependencyError(KernelError):
    """An operation that did not run, since one that it is ordered after failed; that failure is the cause.

    Example:
        >>> async def main():
        ...     stream = aiodev.Stream("cpu")
        ...     stream.call(lambda: 1 / 0)
        ...     try:
        ...         await stream.call(print, "not printed")
        ...     except aiodev.DependencyError as error:
        ...         return error.__cause__
        >>> asyncio.run(main())
        ZeroDivisionError('division by zero')
    """

    def __init__(self, operation: str, *, submitted_at: str | None = None) -> None:
        super().__init__(
            operation,
            "did not run, because an operation that it is ordered after failed",
            submitted_at=submitted_at,
        )

    def __str__(self) -> str:
        cause = self.__cause__
        if cause is None:
            return super().__str__()
        first, _, more = str(cause).partition("\n")
        return f"{super().__str__()}: {type(cause).__name__}: {first}{' …' * bool(more)}"


class CallError(AiodevError, RuntimeError):
    """A called function, or a future, raised what would have another meaning in the task that waits; that is the cause.

    Such as ``StopIteration``, which a coroutine cannot raise, and ``CancelledError``, which would cancel the waiting task.

    Attributes:
        operation: ``"call"`` or ``"wait_future"``.

    Example:
        >>> async def main():
        ...     try:
        ...         await aiodev.Stream("cpu").call(next, iter(()))
        ...     except aiodev.CallError as error:
        ...         return error.__cause__
        >>> asyncio.run(main())
        StopIteration()
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(operation)

    def __str__(self) -> str:
        raised = f"{type(self.__cause__).__name__} was raised" if self.__cause__ is not None else "an exception was raised"
        return f"{self.operation}: {raised}, which would end the task that waits, and not for its own sake; see __cause__"


class GraphFileError(AiodevError, ValueError):
    """A graph cannot be saved, or a file holds none that can be loaded here.

    Attributes:
        path: the file.
        reason: what is in the way, and what to do about it.

    Example:
        >>> async def main():
        ...     async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        ...         aiodev.current_stream().call(print)
        ...     await graph.save("step.graph")
        >>> asyncio.run(main())
        Traceback (most recent call last):
        ...
        aiodev.GraphFileError: step.graph: the graph calls print, a function of the host (captured at <doctest ...>:3)...
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class GradientError(AiodevError, RuntimeError):
    """A backward pass failed at a node of its graph; ``__cause__`` is what was raised there.

    Attributes:
        node: the name of the node's operation.
        called_at: ``file:line`` of its forward call, or None where it is not known.
        stack: the stack of that call, under ``aiodev.autograd.detect_anomaly``; else None.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> async def main():
        ...     x = autograd.Variable(aiodev.ones(2, device="cpu"))
        ...     y = (x * x).sum()
        ...     x.detach().copy_from(aiodev.zeros(2, device="cpu"))
        ...     try:
        ...         await autograd.backward(y)
        ...     except aiodev.GradientError as error:
        ...         print(error.node)
        >>> asyncio.run(main())
        multiply
    """

    def __init__(self, node: str, called_at: str | None, stack: str | None = None) -> None:
        self.node = node
        self.called_at = called_at
        self.stack = stack
        super().__init__(node, called_at, stack)

    def __str__(self) -> str:
        text = f"the backward pass failed at {self.node}"
        if self.called_at:
            text += f", called at {callsites.show(self.called_at)}"
        if self.__cause__ is not None:
            text += f": {type(self.__cause__).__name__}: {self.__cause__}"
        if self.stack:
            text += f"\nthe forward call was:\n{self.stack}"
        return text


class ThreadLimitError(AiodevError, RuntimeError):
    """No thread could be started to call a function, and none is at work that could call it later.

    Or none that waits for its turn, or for another kind of device.

    Example:
        >>> issubclass(aiodev.ThreadLimitError, RuntimeError)
        True
    """

    def __str__(self) -> str:
        return (
            "the system refuses another thread, and no thread of aiodev is free to come; raise the limit of processes "
            "(ulimit -u, pids.max), or lower AIODEV_CALL_THREADS"
        )


class WithdrawnError(AiodevError):
    """An operation that did not run, since somebody withdrew it before it began.

    Not an ``asyncio.CancelledError``: that is for a waiter who was cancelled himself.

    Attributes:
        stream: the stream that it was submitted to.
        operation: its number there, from 1.
        withdrawn_at: ``file:line`` of who withdrew it, or ``None`` where that is not known.

    Example:
        >>> async def main():
        ...     stream = aiodev.Stream("cpu")
        ...     stream.wait_future(asyncio.sleep(60))
        ...     done = stream.call(print, "not printed")
        ...     print(done.cancel(), stream.cancel())
        ...     try:
        ...         await done
        ...     except aiodev.WithdrawnError as error:
        ...         return error.operation
        >>> asyncio.run(main())
        True 1
        2
    """

    def __init__(self, stream: str, operation: int, *, withdrawn_at: str | None = None) -> None:
        self.stream = stream
        self.operation = operation
        self.withdrawn_at = withdrawn_at
        super().__init__(stream, operation)

    def __str__(self) -> str:
        where = f" at {self.withdrawn_at}" if self.withdrawn_at else ""
        return f"operation {self.operation} of {self.stream} was withdrawn{where} before it began"


class ClosedError(AiodevError):
    """Something that was closed is used again.

    Example:
        >>> async def main():
        ...     stream = aiodev.Stream("cpu")
        ...     await stream.aclose()
        ...     try:
        ...         stream.call(int)
        ...     except aiodev.ClosedError:
        ...         return "closed"
        >>> asyncio.run(main())
        'closed'
    """

    def __init__(self, what: object) -> None:
        self.what = str(what)
        super().__init__(self.what)

    def __str__(self) -> str:
        return f"{self.what} is closed"


def _sync_message(call: str, place: str | None, instead: str) -> str:
    where = f" at {place}" if place else ""
    return f"{call}{where} blocks a thread whose event loop runs; `{instead}` instead, or before"


class SyncError(AiodevError, RuntimeError):
    """Something was about to block a thread whose event loop runs, which :func:`set_sync_debug_mode` forbids here.

    Attributes:
        call: what was called, such as ``"Array.__array__"``.
        place: where, ``file:line``, or None.
        instead: what to await in its stead, or before it.

    Example:
        >>> async def main():
        ...     aiodev.set_sync_debug_mode("error")
        ...     stream, gate = aiodev.Stream("cpu"), asyncio.get_running_loop().create_future()
        ...     stream.wait_future(gate)
        ...     try:
        ...         stream.synchronize_blocking()
        ...     except aiodev.SyncError as error:
        ...         gate.set_result(None)
        ...         return error.instead
        >>> asyncio.run(main())
        'await stream.synchronize()'
    """

    def __init__(self, call: str, place: str | None, instead: str) -> None:
        super().__init__(call, place, instead)
        self.call = call
        self.place = place
        self.instead = instead

    def __str__(self) -> str:
        return _sync_message(self.call, self.place, self.instead)


class SyncWarning(RuntimeWarning):
    """As :class:`SyncError`, where :func:`set_sync_debug_mode` asks for a warning; it has the same attributes.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("always", aiodev.SyncWarning)  # not only once for each place
    """

    def __init__(self, call: str, place: str | None, instead: str) -> None:
        super().__init__(call, place, instead)
        self.call = call
        self.place = place
        self.instead = instead

    def __str__(self) -> str:
        return _sync_message(self.call, self.place, self.instead)
