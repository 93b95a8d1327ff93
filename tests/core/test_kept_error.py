"""What is kept of a failure once somebody was told: enough for later waiters, and nothing of its frames."""

from __future__ import annotations

import gc
import logging
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiodev
from aiodev import DependencyError, Stream
from aiodev._core.timeline.kept_error import KeptError
from aiodev.testing import Latch, SimulatedBackend

pytestmark = pytest.mark.anyio


class Request:
    """Something large."""


class Odd(Exception):
    """An exception whose constructor takes something else than its arguments."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def handle(request: Request, error: Callable[[], BaseException]) -> None:
    local = [request]
    raise error() from None if local else None


def chained() -> BaseException:
    """An exception with a cause, a note, and a context."""
    try:
        try:
            raise ZeroDivisionError("inner")
        except ZeroDivisionError as inner:
            raise Odd(7) from inner
    except Odd as odd:
        odd.add_note("a note")
        return odd


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad", 3),
    "KeyError": lambda: KeyError("k"),
    "OSError": lambda: OSError(2, "no such file", "name"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"abc", 0, 1, "why"),
    "ImportError": lambda: ImportError("m", name="n", path="p"),
    "SyntaxError": lambda: SyntaxError("bad", ("file", 1, 2, "text")),
    "StopIteration": lambda: StopIteration(4),
    "SystemExit": lambda: SystemExit(3),
    "of the program": lambda: Odd(3),
    "of ours": lambda: aiodev.LaunchError("saxpy", "y", "an array", "a list"),
    "group": lambda: ExceptionGroup("g", [Odd(1), ValueError("inner")]),
    "chained": chained,
}


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    """Memory comes back by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def shown(error: BaseException) -> list[str]:
    """The traceback as it is printed, without the marks under parts of lines."""
    return [line for line in traceback.format_exception(error) if set(line.strip(" |\n")) - set("^~")]


def lines(error: BaseException) -> list[str]:
    """The lines of ``shown``, marks removed, from the first that is the failure's own on."""
    text = "".join(shown(error)).splitlines()
    return [line for line in text if set(line.strip(" |")) - set("^~")]


@pytest.mark.parametrize("kind", ERRORS)
def test_copies_say_what_the_exception_said(kind: str) -> None:
    """Type, arguments, attributes, notes, causes, and the same lines of traceback, but for the marks."""
    request = Request()
    gone = weakref.ref(request)
    try:
        handle(request, ERRORS[kind])
    except BaseException as raised:
        kept = KeptError(raised, ours=True)
    first = kept.take()
    expected, attributes = lines(first), vars(first).copy()
    attributes.pop("__notes__", None)
    del request, first
    gc.collect()  # a group and its members, an exception and its context: they may refer to each other
    assert gone() is None
    for _ in range(2):
        found = kept.take()
        found_attributes = vars(found).copy()
        found_attributes.pop("__notes__", None)
        assert lines(found) == expected and found_attributes == attributes
        for name in ("errno", "filename", "start", "name", "path", "value", "code", "lineno", "argument"):
            assert getattr(found, name, None) == getattr(ERRORS[kind](), name, None)


def test_the_first_gets_the_exception_itself() -> None:
    """Others get one each, which they may change."""
    error = ValueError("bad")
    kept = KeptError(error, ours=True)
    assert kept.take() is error
    found = [kept.take() for _ in range(2)]
    found[0].add_note("mine")
    assert found[0] is not found[1] and not hasattr(kept.take(), "__notes__")


def test_what_a_backend_keeps_is_never_raised_itself() -> None:
    """It would gather the frames of who waits."""
    error = aiodev.KernelError("saxpy", "ValueError: bad")
    kept = KeptError(error, ours=False)
    assert all(kept.take() is not error and str(kept.take()) == str(error) for _ in range(2))


async def wait(how: str, stream: Stream, done: aiodev.Completion) -> None:
    """Be told, and handle that."""
    try:
        match how:
            case "await":
                await done
            case "synchronize":
                await stream.synchronize()
            case "blocking":
                done.synchronize_blocking(30)
            case "device":
                await aiodev.synchronize("cpu")
            case "event":
                await stream.record_event()
            case "skipped":
                await stream.call(int)
            case "dependent":
                other = Stream("cpu")
                other.wait(done)
                await other.call(int)
            case "another device":
                elsewhere = Stream("sim")
                elsewhere.wait(done)
                with pytest.raises(ValueError):
                    await elsewhere.synchronize()  # gets a copy: the failure is the other stream's to tell
                await done
            case "close":
                await stream.aclose()
    except (ValueError, DependencyError) as error:
        assert "handle" in "".join(traceback.format_exception(error))


WAYS = ["await", "synchronize", "blocking", "device", "event", "skipped", "dependent", "another device", "close"]


@pytest.mark.parametrize("how", WAYS)
async def test_a_failed_call_lets_go_of_its_arguments(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a waiter was told and has handled it, nothing holds what the function was given, nor what it had made."""
    if how == "another device" and "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    monkeypatch.setattr(logging.getLogger("aiodev"), "disabled", True)  # pytest keeps what is logged
    stream, request = Stream("cpu"), Request()
    gone = weakref.ref(request)
    done = stream.call(handle, request, lambda: ValueError("bad"))
    del request
    await wait(how, stream, done)
    stream.timeline.handle.backend.executor.spin(stream.timeline.queue, done.value, 0)
    await Stream("cpu").call(int)  # the thread that ran it has gone on
    assert gone() is None
    with pytest.raises(ValueError, match="bad") as caught:
        await done
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "handle"


async def test_a_failed_future_lets_go_of_its_frames() -> None:
    """What a coroutine given to ``wait_future`` had is gone once a waiter was told."""
    stream, request = Stream("cpu"), Request()
    gone = weakref.ref(request)

    async def serve(request: Request) -> None:
        handle(request, lambda: ValueError("bad"))

    done = stream.wait_future(serve(request))
    del request
    with pytest.raises(ValueError, match="bad"):
        await done
    gc.collect()  # the loop's task and its exception refer to each other
    assert gone() is None


async def test_a_future_that_fails_behind_a_failure_is_not_kept() -> None:
    """Nobody asks why an operation failed that did not run."""
    import concurrent.futures

    for ahead_first in (True, False):
        stream, future = Stream("cpu"), concurrent.futures.Future[None]()
        latch = Latch(stream)
        failed = stream.call(handle, None, lambda: ValueError("ahead"))
        stream.wait_future(future)
        if ahead_first:
            latch.release()
            while not failed.query():
                pass
        future.set_exception(ValueError("behind"))
        latch.release()
        with pytest.raises(ValueError, match="ahead"):
            await failed
        assert not stream.timeline.faults._gates


async def test_many_failures_hold_nothing() -> None:
    """The last 1,024 failures of a stream are kept, of their requests none."""
    stream, references = Stream("cpu"), []
    for _ in range(50):
        request = Request()
        references.append(weakref.ref(request))
        await wait("await", stream, stream.call(handle, request, lambda: ValueError("bad")))
        del request
    await Stream("cpu").call(int)
    assert [found for reference in references if (found := reference()) is not None] == []


async def test_told_failures_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there were, ``synchronize`` and ``await`` look at a few: those that nobody was told of, and one place."""
    stream, points = Stream("cpu"), []
    for number in range(200):
        points.append(stream.call(handle, None, lambda number=number: ValueError(number)))
        with pytest.raises(ValueError):
            await stream.synchronize()
    log = stream.timeline.faults
    assert log.untold == [] and len(log.known) == 200
    looked_at = []
    covers = type(log.known[0]).covers
    monkeypatch.setattr(type(log.known[0]), "covers", lambda fault, value: looked_at.append(value) or covers(fault, value))
    await stream.synchronize()
    assert not looked_at
    await stream.call(int)
    assert len(looked_at) <= 2
    looked_at.clear()
    for number in (3, 120, 199):
        with pytest.raises(ValueError, match=f"^{number}$"):
            await points[number]
    assert len(looked_at) <= 6


def test_a_copy_has_what_slots_hold() -> None:
    """Those of bases, and such as belong to a class alone; one without a value has none."""

    class Base(LookupError):
        __slots__ = ("code", "unset")

    class Failed(Base):
        __slots__ = ("__secret",)

        def __init__(self, secret: int) -> None:
            super().__init__("bad")
            self.__secret, self.code, self.other = secret, 7, "attribute"

        def secret(self) -> int:
            return self.__secret

    kept = KeptError(Failed(5), ours=True)
    first, second = kept.take(), kept.take()
    assert isinstance(second, Failed) and second is not first
    assert (second.args, second.code, second.secret(), second.other) == (("bad",), 7, 5, "attribute")
    assert not hasattr(second, "unset")


def test_a_copy_of_what_cannot_be_copied_is_itself() -> None:
    """A type whose constructor refuses: the same exception again, with its own places only."""

    class Refusing(Exception):
        def __new__(cls, *arguments: Any) -> Any:
            return super().__new__(cls, *arguments)

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    error = Refusing("bad")
    vars(error)["code"] = 3
    kept = KeptError(error, ours=True)
    assert kept.take() is error and kept.take() is error
