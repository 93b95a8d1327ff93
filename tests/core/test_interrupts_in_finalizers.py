"""Ctrl-C, and what else handlers of signals raise, where Python ignores it: in finalizers and callbacks of weak references."""

from __future__ import annotations

import _thread
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import pytest
from interrupts import Interrupted, interrupted_everywhere, sigint_raises
from selection import examples

import aiodev
from aiodev import Stream
from aiodev._core import sigint
from aiodev._core.timeline import timeline
from aiodev._core.timeline.timeline import living
from aiodev._core.waiting import watcher as watcher_module
from aiodev._memory import allocator

WAIT = 30  # seconds that no test takes

PROGRAM = """
import gc, os, random, signal, sys, threading, time
import aiodev

signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
times = int(sys.argv[1])
begun, arrived, over = threading.Event(), threading.Event(), threading.Event()


def interrupt():
    begun.wait()
    for _ in range(times):
        time.sleep(random.uniform(0.001, 0.01))
        arrived.clear()
        os.kill(os.getpid(), signal.SIGINT)
        if not arrived.wait(5):
            print("lost", flush=True)
            os._exit(1)
    over.wait()
    time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def submit():
    for n in range(10**9):
        y = x + 1
        z = y.sum()
        if n % 100 == 0:
            z.numpy_blocking()


with aiodev.Stream("cpu"):
    x = aiodev.zeros(8)
    (x + 1).sum().numpy_blocking()
    gc.collect()
    before = aiodev.memory.memory_allocated("cpu")
    threading.Thread(target=interrupt, daemon=True).start()
    for _ in range(times):
        try:
            begun.set()
            submit()
        except KeyboardInterrupt:
            arrived.set()
    aiodev.synchronize_blocking("cpu")
    aiodev.memory.empty_cache("cpu")
    print(aiodev.memory.memory_allocated("cpu") - before, flush=True)
    over.set()
    submit()
"""


def test_no_ctrl_c_is_lost_while_arrays_come_and_go() -> None:
    """Each of many reaches the program, in a finalizer or not; no memory is lost, and the last one ends the program."""
    command = [sys.executable, "-c", PROGRAM, str(examples(1000))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20 * WAIT)
    assert done.stdout.split() == ["0"], done.stderr
    assert "ignored" not in done.stderr and done.stderr.strip().endswith("KeyboardInterrupt")
    assert done.returncode


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[type[BaseException]]]:
    """What the hook is told of that was there before ours: pytest sets its own, later than ours."""
    kinds: list[type[BaseException]] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which who started the tests may ignore
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: kinds.append(unraisable.exc_type))
    sigint.chain_unraisable_hook()
    yield kinds
    signal.signal(signal.SIGINT, before)


def _wait_for_signal() -> None:
    """In the system, which a signal ends."""
    select.select([], [], [], WAIT)
    pytest.fail("no signal came")


def test_ctrl_c_at_any_moment_of_an_arrays_finalizer_arrives(told: list[type[BaseException]]) -> None:
    """A moment later, in the main thread; the blocks are found in the end (invariant 5 of the allocator)."""
    with Stream("cpu"), sigint_raises() as arrive:
        x, other = aiodev.zeros(8), Stream("cpu")
        other.call(int)
        x.numpy_blocking()
        before = aiodev.memory.memory_allocated("cpu")
        made: list[aiodev.Array] = []
        alive: list[weakref.ref[Any]] = []

        def prepare() -> None:
            made.append(x + 1)
            made[0].record_stream(other, writes=False)  # so that native code leaves it to Python's
            alive.append(weakref.ref(made[0]._buffer))

        for _ in interrupted_everywhere(made.pop, allocator, prepare=prepare, arrive=arrive, least=1):
            with pytest.raises(Interrupted):
                _wait_for_signal()
            assert alive.pop()() is None
        assert not told
        aiodev.synchronize_blocking("cpu", WAIT)
        aiodev.memory.empty_cache("cpu")
        assert aiodev.memory.memory_allocated("cpu") == before


@pytest.mark.parametrize("needed", [False, True])
def test_ctrl_c_at_any_moment_of_a_streams_finalizer_leaves_nothing(needed: bool, told: list[type[BaseException]]) -> None:
    """The signal arrives a moment later, and the watcher ends the stream's timeline."""
    aiodev.init_blocking("cpu")
    made, before = list[Stream](), living.dropped.copy()
    with sigint_raises() as arrive:

        def prepare() -> None:
            made.append(Stream("cpu"))
            if needed:  # else native code may end it without the watcher
                made[0].timeline.keep(0, object())

        for _ in interrupted_everywhere(made.pop, timeline, watcher_module, prepare=prepare, arrive=arrive, least=5):
            with pytest.raises(Interrupted):
                _wait_for_signal()
            until = time.monotonic() + WAIT
            while living.dropped - before:
                assert time.monotonic() < until, "it never ended"
                time.sleep(0.001)
    assert not told


def test_a_finalizer_that_ctrl_c_kept_from_beginning_runs_nevertheless(told: list[type[BaseException]]) -> None:
    """Nothing in it could catch what a handler raises at its first instruction."""
    with Stream("cpu"):
        x = aiodev.zeros(8)
        x.numpy_blocking()
        before = aiodev.memory.memory_allocated("cpu")
        made = x + 1
        alive = weakref.ref(made._buffer)
        assert aiodev.memory.memory_allocated("cpu") > before
        with pytest.raises(KeyboardInterrupt):
            (*map(_thread.interrupt_main, (signal.SIGINT,)),)  # the interpreter looks for signals when a function begins
            del made
            assert aiodev.memory.memory_allocated("cpu") == before and alive() is None
            _wait_for_signal()
    called: list[None] = []
    own = threading.Event()
    weakref.finalize(own, called.append, None)
    with pytest.raises(KeyboardInterrupt):
        (*map(_thread.interrupt_main, (signal.SIGINT,)),)
        del own
        assert called == [None]
        _wait_for_signal()
    assert not told


def _of_ours(function: FunctionType) -> FunctionType:
    """The function, as one of a module of ours."""
    return FunctionType(function.__code__, {"__name__": "aiodev._core.made"}, closure=function.__closure__)


def _drop(way: str, call: Callable[[], object], ours: bool = True) -> None:
    """Have ``call`` called since an object was dropped."""

    class Dropped:
        pass

    def finalize(own: object) -> None:
        call()

    finalizer = _of_ours(finalize) if ours else finalize
    if way == "__del__":
        Dropped.__del__ = finalizer  # type: ignore[attr-defined]
    made = Dropped()
    kept = weakref.ref(made, finalizer) if way == "ref" else None
    if way == "finalize":
        weakref.finalize(made, call)
    del made
    assert kept is None or kept() is None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise SystemExit(number)


@pytest.mark.parametrize("way", ["__del__", "ref", "finalize"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_handler_raises_where_python_ignores_it_is_raised_again(
    way: str, number: signal.Signals, told: list[type[BaseException]]
) -> None:
    """By the same handler: Python's own of SIGINT, or one that ends the program in another way."""
    handler = signal.default_int_handler if number == signal.SIGINT else _interrupt
    before = signal.signal(number, handler)
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)) as caught:
            _drop(way, lambda: signal.raise_signal(number))
            _wait_for_signal()
    finally:
        signal.signal(number, before)
    assert not told and (caught.type is KeyboardInterrupt or caught.value.args == (number,))


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "ours, error", [(False, KeyboardInterrupt()), (True, ValueError()), (True, SystemExit())], ids=["theirs", "error", "exit"]
)
def test_other_exceptions_of_finalizers_are_told_as_before(
    ours: bool, error: BaseException, told: list[type[BaseException]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of finalizers of other libraries, errors, and what no handler has raised."""
    monkeypatch.setattr(sigint, "_send_soon", pytest.fail)
    for way in ("__del__", "ref"):
        _drop(way, lambda: _raise(error), ours)
    assert told == [type(error)] * 2


def test_an_interrupt_that_cannot_be_sent_again_is_told(
    told: list[type[BaseException]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another thread than the main one; where there is no handler; where no thread can be started."""
    monkeypatch.setattr(sigint, "_send", pytest.fail)
    thread = threading.Thread(target=_drop, args=("__del__", lambda: _raise(KeyboardInterrupt())))
    thread.start()
    thread.join(WAIT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _drop("__del__", lambda: _raise(KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: _raise(RuntimeError("can't start new thread")))
    _drop("__del__", lambda: _raise(KeyboardInterrupt()))
    assert told == [KeyboardInterrupt] * 3
