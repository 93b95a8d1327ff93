"""What every public class promises of hash, ==, repr, weak references, copies and pickles: one table."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import importlib
import inspect
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from turns import run_at_once

import aiodev
from aiodev import autograd, dtypes, kernels, memory, optim, profiler, testing
from aiodev.kernels import linalg

MODULES = ("aiodev", "aiodev.dtypes", "aiodev.memory", "aiodev.testing", "aiodev.profiler", "aiodev.kernels")
MODULES += ("aiodev.kernels.random", "aiodev.kernels.linalg", "aiodev.kernels.fft", "aiodev.lang")
MODULES += ("aiodev.autograd", "aiodev.optim")

#: Another object, with the same contents; itself; equal to it; refused with a TypeError that says so.
OWN, SAME, EQUAL, REFUSED = "own", "same", "equal", "refused"


@dataclasses.dataclass
class Promise:
    make: Callable[[], Any]
    hash: bool = True
    repr: str = "<aiodev"  #: what it begins with
    weak: bool = True  #: tuples and small guards take no weak references
    copied: str = REFUSED
    pickled: str = REFUSED


@aiodev.kernel
def increment(i, x):
    x[i] += 1


@kernels.fused
def doubled(x):
    return 2 * x


def given_to_a_body() -> tuple[aiodev.Call, aiodev.Number]:
    @aiodev.operation(numbers=["number"])
    def give(call, number):
        return call, number

    return give(2)


def a_graph() -> aiodev.Graph:
    async def capture() -> aiodev.Graph:
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            pass
        return graph

    aiodev.init_blocking("cpu")  # so that the capture waits for nothing, and needs no loop
    return run_at_once(capture())


def an_array() -> aiodev.Array:
    return aiodev.arange(3, device="cpu")


def a_variable() -> autograd.Variable:
    return autograd.Variable(aiodev.ones(3, device="cpu"))


class Doubled(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x


def a_guard(make: Callable[[], Any]) -> Promise:
    return Promise(make, repr="aiodev.autograd.", weak=False, copied=OWN, pickled=OWN)


def a_value(make: Callable[[], Any], name: str, **others: Any) -> Promise:
    return Promise(make, **{"repr": f"{name}(", "weak": False, "copied": EQUAL, "pickled": EQUAL, **others})


TABLE: dict[type, Promise] = {
    autograd.Context: Promise(lambda: Doubled.apply(a_variable()).grad_fn),
    autograd.HookHandle: Promise(lambda: a_variable().register_hook(print)),
    autograd.Node: Promise(lambda: (2 * a_variable()).grad_fn),
    autograd.Variable: Promise(a_variable, copied=OWN, pickled=OWN),
    autograd.detect_anomaly: a_guard(autograd.detect_anomaly),
    autograd.enable_grad: a_guard(autograd.enable_grad),
    autograd.inference_mode: a_guard(autograd.inference_mode),
    autograd.no_grad: a_guard(autograd.no_grad),
    autograd.set_grad_enabled: a_guard(lambda: autograd.set_grad_enabled(False)),
    optim.Adam: Promise(lambda: optim.Adam([a_variable()])),
    optim.AdamW: Promise(lambda: optim.AdamW([a_variable()])),
    optim.Optimizer: Promise(lambda: optim.SGD([a_variable()])),
    optim.SGD: Promise(lambda: optim.SGD([a_variable()])),
    aiodev.Array: Promise(an_array, copied=OWN, pickled=OWN),
    aiodev.Backend: Promise(lambda: aiodev.get_backend("cpu")),
    aiodev.BoundLaunch: Promise(lambda: increment.bind(3, an_array())),
    aiodev.Call: Promise(lambda: given_to_a_body()[0]),
    aiodev.Capabilities: a_value(lambda: aiodev.get_backend("cpu").capabilities, "Capabilities"),
    aiodev.Completion: Promise(lambda: increment[3](an_array()), repr="<"),
    aiodev.Executor: Promise(lambda: an_executor()),
    aiodev.Command: a_value(lambda: aiodev.Command("copy", 0, 8, bytes(16)), "Command"),
    aiodev.Device: Promise(lambda: aiodev.Device("cpu"), repr="aiodev.Device(", copied=SAME, pickled=SAME),
    aiodev.DeviceProperties: a_value(lambda: aiodev.get_device_properties("cpu"), "DeviceProperties"),
    aiodev.Event: Promise(lambda: aiodev.default_stream("cpu").record_event()),
    aiodev.Fault: a_value(lambda: aiodev.Fault(1, None, None), "Fault"),
    aiodev.Generator: Promise(lambda: aiodev.Generator("cpu"), copied=OWN, pickled=OWN),
    aiodev.Graph: Promise(a_graph),
    aiodev.Graphed: Promise(lambda: aiodev.make_graphed(abs)),
    aiodev.Kernel: Promise(lambda: increment, copied=SAME, pickled=SAME),
    aiodev.KernelArgument: a_value(lambda: aiodev.KernelArgument("f4", 1, "C", False, 8), "KernelArgument"),
    aiodev.KernelSpec: a_value(lambda: aiodev.KernelSpec("sum", sum, 1, ("A1f4C",)), "KernelSpec"),
    aiodev.capture: Promise(aiodev.capture, repr="aiodev.capture("),
    aiodev.Number: Promise(lambda: given_to_a_body()[1]),
    aiodev.Operation: Promise(lambda: kernels.add.operation),
    aiodev.ScheduleStep: a_value(lambda: aiodev.ScheduleStep(1, 0), "ScheduleStep"),
    aiodev.Stream: Promise(lambda: aiodev.Stream("cpu")),
    aiodev.StreamGroup: Promise(lambda: aiodev.StreamGroup("cpu")),
    aiodev.TraceLog: Promise(lambda: aiodev.TraceLog(1)),
    aiodev.device: Promise(lambda: aiodev.device("cpu"), repr="aiodev.device(", weak=False, copied=OWN, pickled=OWN),
    aiodev.fork_rng: Promise(aiodev.fork_rng, repr="aiodev.fork_rng(", weak=False, copied=OWN, pickled=OWN),
    memory.Lease: Promise(lambda: memory.lease(100, "cpu"), copied=OWN, pickled=OWN),
    memory.MemoryPool: Promise(lambda: memory.MemoryPool("cpu")),
    profiler.Beat: a_value(lambda: profiler.Beat(1, 2), "Beat"),
    profiler.BlockingCall: Promise(lambda: a_blocking_call()),
    profiler.BlockingDetector: Promise(profiler.detect_blocking),
    profiler.LoopLag: Promise(profiler.loop_lag),
    profiler.MemoryEvent: a_value(lambda: profiler.MemoryEvent(1, aiodev.Device("cpu"), 2, 3, 4), "MemoryEvent"),
    profiler.Metric: a_value(lambda: profiler.metrics()[0], "Metric"),
    profiler.Operation: a_value(lambda: profiler.Operation("x", "copy", 1, aiodev.Device("cpu"), 1, "done", 2), "Operation"),
    profiler.Profile: Promise(profiler.profile),
    profiler.Sample: a_value(lambda: profiler.Sample((("device", "cpu:0"),), 1), "Sample"),
    profiler.TopServer: Promise(lambda: a_closed_server()),
    dtypes.ElementType: a_value(lambda: dtypes.DTYPES["f4"], "ElementType"),
    dtypes.FloatInfo: a_value(lambda: dtypes.finfo("f4"), "FloatInfo"),
    dtypes.IntegerInfo: a_value(lambda: dtypes.iinfo("i4"), "IntegerInfo"),
    profiler.Compilation: a_value(lambda: profiler.Compilation("sort", 2.5, False), "Compilation"),
    testing.Latch: Promise(lambda: opened(testing.Latch(aiodev.Stream("cpu")))),
    testing.QueueLatch: Promise(lambda: opened(a_queue_latch())),
    testing.SimulatedBackend: Promise(testing.SimulatedBackend),
    kernels.Fused: Promise(lambda: doubled, copied=SAME, pickled=SAME),
    kernels.UniqueAll: a_value(lambda: kernels.UniqueAll(*[an_array()] * 4), "UniqueAll", copied=OWN, pickled=OWN),
    kernels.UniqueCounts: a_value(lambda: kernels.UniqueCounts(*[an_array()] * 2), "UniqueCounts", copied=OWN, pickled=OWN),
    kernels.UniqueInverse: a_value(lambda: kernels.UniqueInverse(*[an_array()] * 2), "UniqueInverse", copied=OWN, pickled=OWN),
    linalg.EighResult: a_value(lambda: linalg.EighResult(*[an_array()] * 2), "EighResult", copied=OWN, pickled=OWN),
    linalg.QRResult: a_value(lambda: linalg.QRResult(*[an_array()] * 2), "QRResult", copied=OWN, pickled=OWN),
    linalg.SlogdetResult: a_value(lambda: linalg.SlogdetResult(*[an_array()] * 2), "SlogdetResult", copied=OWN, pickled=OWN),
    linalg.SVDResult: a_value(lambda: linalg.SVDResult(*[an_array()] * 3), "SVDResult", copied=OWN, pickled=OWN),
}
#: They hold the functions that they run, a test's, as a rule; there are no objects of the last one.
LEFT_OUT = {testing.Conformance, testing.Rule, autograd.Function}


def a_blocking_call() -> profiler.BlockingCall:
    async def main() -> profiler.BlockingCall:
        async with profiler.detect_blocking(0.01, lambda blocked: None) as detector:
            while not detector._seen or not detector._seen[-1].is_complete:
                pass
        return detector.calls[0]

    with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
        return thread.submit(asyncio.run, main()).result()


def a_closed_server() -> profiler.TopServer:
    with profiler.serve_top() as server:
        return server


def an_executor() -> aiodev.Executor:
    aiodev.init_blocking("cpu")
    return aiodev.get_backend("cpu").executor


def a_queue_latch() -> testing.QueueLatch:
    backend = testing.SimulatedBackend()
    backend.start()
    queue, _ = backend.executor.create_queue(0, 0, False)
    return testing.QueueLatch(backend.executor, queue)


def opened(latch: Any) -> Any:
    latch.release()
    return latch


def public_classes() -> set[type]:
    values = [getattr(module, name) for module in map(importlib.import_module, MODULES) for name in module.__all__]
    return {value for value in values if inspect.isclass(value) and not issubclass(value, BaseException)}


EVERY = pytest.mark.parametrize("promise", [pytest.param(own, id=kind.__name__) for kind, own in TABLE.items()])


def test_every_public_class_is_in_the_table() -> None:
    """A new one says what it promises."""
    assert public_classes() - LEFT_OUT == TABLE.keys()


@EVERY
def test_hash_and_equality(promise: Promise) -> None:
    """An object equals itself, hashes the same every time, and is a key."""
    one = promise.make()
    assert isinstance(one, aiodev.Array) or one == one  # arrays compare elements
    assert hash(one) == hash(one)
    assert {one: 1}[one] == 1


@EVERY
def test_repr(promise: Promise) -> None:
    """It says what it is by its public name, not where it is defined."""
    shown = repr(promise.make())
    assert shown.startswith(promise.repr)
    assert "aiodev._" not in shown and " object at 0x" not in shown


@EVERY
def test_weak_references(promise: Promise) -> None:
    """Taken of all but tuples and the smallest guards."""
    one = promise.make()
    if promise.weak:
        assert weakref.ref(one)() is one
        assert isinstance(one, aiodev.Array) or one in weakref.WeakSet([one])
    else:
        with pytest.raises(TypeError, match="weak reference"):
            weakref.ref(one)


def keeps(promised: str, make_another: Callable[[Any], Any], one: Any) -> None:
    if promised == REFUSED:
        with pytest.raises(TypeError, match="copied|belongs to its process"):
            make_another(one)
        return
    other = make_another(one)
    assert type(other) is type(one)
    if promised == SAME:
        assert other is one
    elif promised == EQUAL:
        assert other == one and hash(other) == hash(one)
    elif not isinstance(one, tuple):
        assert other is not one


@EVERY
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies(promise: Promise, copied: Callable[[Any], Any]) -> None:
    """Made, or refused by name: never one that shares half of what it is made of."""
    keeps(promise.copied, copied, promise.make())


@EVERY
def test_pickles(promise: Promise) -> None:
    """Made, or refused by name."""
    keeps(promise.pickled, lambda one: pickle.loads(pickle.dumps(one)), promise.make())


def test_a_guard_from_a_pickle_makes_the_same_device_current() -> None:
    """And so does a copy."""
    for found in (pickle.loads(pickle.dumps(aiodev.device("cpu"))), copy.copy(aiodev.device("cpu"))):
        with found as device:
            assert device is aiodev.Device("cpu")
    with pickle.loads(pickle.dumps(aiodev.device(None))) as device:
        assert device is None


def test_properties_that_differ_in_extras_are_not_equal() -> None:
    """What has no hash is compared all the same."""
    found = aiodev.get_device_properties("cpu")
    other = dataclasses.replace(found, extra={**found.extra, "new": 1})
    assert other != found and hash(other) == hash(found)


@pytest.mark.parametrize("name", MODULES)
def test_dir_lists_public_names(name: str) -> None:
    """What completion offers: what there is for programs, imported or not, no private modules and no imports."""
    module = importlib.import_module(name)
    modules = {"__version__", "array_api", "autograd", "kernels", "lang", "optim", "profiler", "testing"}
    submodules = modules if name == "aiodev" else set()
    assert set(dir(module)) == {*module.__all__, *submodules}
    assert all(hasattr(module, listed) for listed in dir(module))
