"""Call everything that is public with wrong and extreme arguments: a program, whose process may end as it likes.

Every call ends with a result, or with an exception that is documented for it, and whose message names the function or one of
its parameters. It neither hangs nor crashes, and leaves the devices usable and no memory behind.

``--seed`` decides all of it. What was called last stands in the file ``--last``, should the process die of it.
"""

from __future__ import annotations

import argparse
import asyncio
import builtins
import collections
import contextlib
import contextvars
import faulthandler
import functools
import gc
import importlib
import inspect
import logging
import os
import pkgutil
import re
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tables of other tests
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import test_object_protocols
from values import Elsewhere, HostileError, Unfinished, Values

import aiodev
from aiodev import testing
from aiodev._core.backend.registry import registry
from aiodev._kernel.compile.service import service

#: Seconds after which a call counts as hanging.
PATIENCE = 180.0
#: Bytes that functions of the library may keep for the next call, such as tables.
KEPT = 64 << 10
#: What is not called, and why.
LEFT_OUT = {
    "aiodev.Backend": "trusts its callers with addresses; the conformance suite is about it",
    "aiodev.Executor": "trusts its callers with addresses; the conformance suite is about it",
    "aiodev.BoundLaunch.__init__": "is what Kernel.bind makes",
    "aiodev.Completion.__init__": "is what submissions make",
    "aiodev.Kernel.__init__": "is what aiodev.kernel makes",
    "aiodev.Stream.copy_arrays": "is how the array layer tells streams to copy",
    "aiodev.Event.current_stream": "is aiodev.current_stream",
    "aiodev.Call": "is what bodies of operations are given",
    "aiodev.Number": "is what bodies of operations are given",
    "aiodev.Operation": "is what aiodev.operation makes",
    "aiodev.TraceLog": "is written to by executors, who know what they do",
    "aiodev.autograd.Context.apply": "is how the backward pass runs nodes, with gradients that it has checked",
    "aiodev.autograd.Node.apply": "is how the backward pass runs nodes, with gradients that it has checked",
    "aiodev.dask.DevicePlugin": "is called by Dask's workers",
    "aiodev.dask.Service": "has a cluster",
    "aiodev.profiler.BlockingCall.__init__": "is what detectors make",
    "aiodev.profiler.BlockingDetector.__init__": "is what aiodev.profiler.detect_blocking makes",
    "aiodev.profiler.LoopLag.__init__": "is what aiodev.profiler.loop_lag makes",
    "aiodev.profiler.Profile.__init__": "is what aiodev.profiler.profile makes",
    "aiodev.Graph.save": "writes a file, wherever it is told to",
    "aiodev.profiler.Profile.export_chrome_trace": "writes a file, wherever it is told to",
    "aiodev.profiler.Profile.timeline": "writes a file, wherever it is told to",
    "aiodev.lang.call_native": "calls any address that it is given",
    "aiodev.testing.Rule": "is what rules are made of",
    "aiodev.testing.SimulatedBackend": "is a backend",
    "aiodev.testing.check_backend": "runs a suite, for as long as it takes",
    "aiodev.testing.check_rule": "runs a part of that",
    "aiodev.testing.QueueLatch": "is told addresses of a backend",
    "aiodev.kernels.warm_up": "compiles, for as long as it takes",
}
#: Bodies of kernels, read as plain Python: what they are given is the program's own affair, and they need not name it.
BODIES = ("aiodev.lang.", "aiodev.kernels.random.block")
#: Parameters for which a number that makes no sense takes as long as it says.
BOUNDED = {"aiodev.Generator.spawn": ("n",)}
#: What programs reach by operators, ``with``, indexing and calls.
OPERATORS = {
    "getitem", "setitem", "delitem", "call", "len", "iter", "contains", "bool", "int", "float", "complex", "index",
    "round", "trunc", "floor", "ceil", "divmod", "rdivmod", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul",
    "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor", "radd", "rsub", "rmul",
    "rmatmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rlshift", "rrshift", "rand", "ror", "rxor", "iadd", "isub",
    "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow", "ilshift", "irshift", "iand", "ior", "ixor", "neg", "pos",
    "invert", "abs", "enter", "exit", "aenter", "aexit", "copy", "deepcopy", "reduce", "array", "dlpack", "dlpack_device",
}  # fmt: skip
#: The functions of aiodev.kernels that arrays' operators stand for, and name in what they refuse.
STAND_FOR = {
    "add": "add", "sub": "subtract", "mul": "multiply", "matmul": "matmul", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "divmod": "floor_divide remainder", "pow": "pow", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "neg": "negative",
    "pos": "positive", "invert": "bitwise_invert", "abs": "abs", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "contains": "equal", "bool": "truth",
    "getitem": "index indices mask", "setitem": "index indices mask assigned elements read",
}  # fmt: skip
#: Python's own words for what it was not told how to do: they name neither the function nor the argument.
LEAKS = re.compile(
    r"unhashable type|has no attribute|not supported between|not subscriptable|not iterable|is not callable|unsupported operand"
    r"|can't be used in 'await'|cannot unpack|cannot be interpreted as an integer|must be real number|an integer is required"
    r"|too large to convert|cannot convert float|not enough values to unpack|too many values to unpack|ambiguous"
    r"|has no len\(\)|object does not support|must be str|must be an iterable|expected str, bytes"
    r"|Python int(?:eger)? .* out of bounds"
    r"|must be (a )?(string|tuple|list|type|integer)|descriptor|struct\.error|NoneType",
    re.IGNORECASE,
)
NEVER = (AttributeError, KeyError, RecursionError, SystemError, AssertionError, NameError, UnicodeError)


class Target(NamedTuple):
    """Something that can be called.

    Attributes:
        name: by which it is public.
        kind: the class whose instances it is a method of, or None.
        member: its name there.
        function: what is called, where it is no method.
    """

    name: str
    kind: type | None
    member: str
    function: Any


def public_modules() -> Iterator[types.ModuleType]:
    """``aiodev`` and all public modules in it."""
    names = ["aiodev"]
    names += [f"aiodev.{own.name}" for own in pkgutil.iter_modules(aiodev.__path__) if not own.name.startswith("_")]
    for name in names:
        module = importlib.import_module(name)
        yield module
        values = (getattr(module, own) for own in module.__all__)
        names += [own.__name__ for own in values if inspect.ismodule(own) and own.__name__ not in names]


def targets() -> list[Target]:
    """Every public function, class, method and property, by name."""
    found: dict[int, Target] = {}
    made: list[Target] = []
    for module in public_modules():
        for name in module.__all__:
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if not callable(value) or inspect.ismodule(value) or id(value) in found:
                continue
            if isinstance(value, types.UnionType) or full in LEFT_OUT or is_error(value):
                continue
            found[id(value)] = Target(full, None, name, value)
            if inspect.isclass(value):
                made += members(value, full)
    functions = [t for t in found.values() if f"{t.name}.__init__" not in LEFT_OUT]
    return sorted([*functions, *made])


def is_error(value: object) -> bool:
    """Exceptions hold what they are given."""
    return inspect.isclass(value) and issubclass(value, BaseException)


def members(kind: type, full: str) -> Iterator[Target]:
    """The methods, properties and operators of a class."""
    for name in sorted(dir(kind)):
        value = inspect.getattr_static(kind, name)
        is_operator = name.startswith("__") and name.strip("_") in OPERATORS and name not in vars(object)
        if f"{full}.{name}" in LEFT_OUT or not (is_operator or not name.startswith("_")):
            continue
        if value is None or getattr(tuple, name, None) is value:
            continue
        if isinstance(value, classmethod | staticmethod):
            yield Target(f"{full}.{name}", None, name, getattr(kind, name))
        elif callable(value) or isinstance(value, property):
            yield Target(f"{full}.{name}", kind, name, value)


def documented(target: Target) -> tuple[type[BaseException], ...]:
    """What its docstring says that it raises, besides the library's own errors and those of a wrong type or value."""
    texts = [inspect.getdoc(target.function) or ""]
    if target.kind is not None:
        texts += [inspect.cleandoc(kind.__doc__ or "") for kind in target.kind.__mro__]
    names = set()
    for text in texts:
        for section in re.findall(r"Raises:\n((?:    .*\n?|\n)+)", text):
            names |= set(re.findall(r"^    ([\w.]+):", section, re.MULTILINE))
    found = [resolve(name) for name in names]
    return (TypeError, ValueError, aiodev.AiodevError, HostileError, *filter(None, found))


def resolve(name: str) -> type[BaseException] | None:
    for place in (builtins, aiodev, asyncio, np.exceptions):
        found = getattr(place, name.rpartition(".")[2], None)
        if inspect.isclass(found) and issubclass(found, BaseException) and found is not BaseException:
            return found
    return None


def names_of(target: Target) -> set[str]:
    """The words of which a message must have one."""
    found = {target.member, target.member.strip("_"), target.name.rpartition(".")[2]}
    if target.kind is not None:
        for kind in target.kind.__mro__[:-1]:  # a variable is an array, and may be called so
            found |= {kind.__name__, kind.__name__.lower(), f"{kind.__name__.lower()}s"}
    with contextlib.suppress(ValueError, TypeError):
        found |= set(inspect.signature(target.function).parameters)
    if inspect.isclass(target.function):
        found |= {target.member.lower(), f"{target.member.lower()}s"}
    if target.kind is not None:
        found |= {word.lower() for word in re.findall("[A-Z][a-z]*", target.kind.__name__)}
    operator = target.name.rpartition(".")[2].strip("_")
    for form in (operator, operator[1:] if operator[:1] in ("r", "i") else ""):
        found |= set(STAND_FOR.get(form, "").split())
    return found - {"self", ""}


def _is_anothers(error: BaseException) -> bool:
    """Whether the function that is captured has raised it, or was called with what it does not take."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return not last.filename.endswith("graphed.py") or last.name in ("_capture", "_call_later")


def _called_in(error: BaseException, file: str, function: str) -> bool:
    """Whether it was raised there, or by what is called there."""
    return any(frame.filename.endswith(file) and frame.name == function for frame in traceback.extract_tb(error.__traceback__))


def fault_of(target: Target, own: Any, given: Sequence[Any], error: BaseException) -> str | None:
    """What is wrong with the way in which a call with ``given`` arguments was refused, or None."""
    if isinstance(error, HostileError) or is_bystander(error):
        return None
    if target.name.startswith(BODIES):
        return "crash" if isinstance(error, SystemError | RecursionError) else None
    if target.name in {f"aiodev.Completion.{way}" for way in ("result", "synchronize", "synchronize_blocking")}:
        return None  # what the operation has raised
    if target.name in {"aiodev.Graphed.__call__", "aiodev.make_graphed"} and _is_anothers(error):
        return None  # what the function has raised that is captured
    if target.name == "aiodev.autograd.checkpoint" and _called_in(error, "checkpoint.py", "_called"):
        return None  # what the function has raised that is called
    if _called_in(error, "functional.py", "_called") and re.match(r"(fuzzed|<lambda>|.*<lambda>)\(\) ", str(error)):
        return None  # what Python says of a function that is called with other arguments than it takes
    allowed = documented(target)
    if isinstance(error, NEVER) and not isinstance(error, aiodev.AiodevError):
        return f"{type(error).__name__} is no refusal"
    if not isinstance(error, allowed):
        return f"{type(error).__name__} is not documented"
    text = str(error).partition(", since the function fails for ones: ")[0]  # a user's function
    at_call = len(traceback.extract_tb(error.__traceback__)) <= 2
    if not re.search(r"argument \w+: ", text) and LEAKS.search(text.partition(" got ")[0].partition("=")[0]) and not at_call:
        return "Python's own words"
    if isinstance(error, aiodev.AiodevError | TimeoutError | MemoryError | BufferError | asyncio.InvalidStateError):
        return None  # they say what happened to what
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    functions = [getattr(value, "__name__", None) for value in given if callable(value)]  # what is made of one has its name
    if not words & {*names_of(target), getattr(own, "name", None), *functions}:
        return "names neither the function nor a parameter"
    return None


def is_bystander(error: BaseException) -> bool:
    """Whether it came out of a function that the call was given to run, not out of the library."""
    frames = traceback.extract_tb(error.__traceback__)
    own = {str(Path(__file__).parent / "values.py"), test_object_protocols.__file__}
    called = any(frame.filename.endswith("hostcalls.py") and frame.name == "_call" for frame in frames)
    return called or any(frame.filename in own for frame in frames[2:])


class Fuzzer:
    """Calls, one after the other, in a loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.faults: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        every = [target for target in targets() if re.search(arguments.only, target.name)]
        self.targets = [target for target in every if not any(target.name.startswith(f"{out}.") for out in LEFT_OUT)]
        self.values = Values(arguments.seed, Elsewhere())
        self.random = self.values.random
        self.nbytes = bytes_in_use()
        self.last = os.open(arguments.last, os.O_RDWR | os.O_CREAT)

    # One call

    def arguments_of(self, target: Target) -> tuple[list[Any], dict[str, Any]]:
        """Some right, some wrong; now and then too few, too many, or of a name that there is not."""
        try:
            parameters = list(inspect.signature(target.function).parameters.values())
        except (ValueError, TypeError):
            parameters = []
        if target.kind is not None and parameters:
            parameters = parameters[1:]
        roll = self.random.random
        wrong = self.random.choice([0.0, 0.25, 0.5, 1.0])
        positional: list[Any] = []
        named: dict[str, Any] = {}
        by_name = False
        for parameter in parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += [] if by_name else [self.values.any() for _ in range(self.random.randrange(4))]
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            optional = parameter.default is not parameter.empty
            by_name = by_name or parameter.kind is parameter.KEYWORD_ONLY or (optional and roll() < 0.5)
            if optional and by_name and roll() < 0.5:
                continue
            value = self.values.any() if roll() < wrong else self.values.fit(parameter.name)
            if parameter.name in BOUNDED.get(target.name, ()) and isinstance(value, int | np.integer):
                value = min(int(value), 100)
            if by_name and parameter.kind is not parameter.POSITIONAL_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        if roll() < 0.02:
            positional = positional[:-1]
        if roll() < 0.02:
            positional.append(self.values.any())
        if roll() < 0.02:
            named["nothing_like_it"] = 1
        return positional, named

    def prepare(self, target: Target) -> tuple[Callable[..., Any], Any]:
        """What to call, and the object that it is a method of."""
        if target.kind is None:
            return target.function, None
        if target.kind is aiodev.Array:
            pool = self.values.arrays if self.random.random() < 0.7 else self.values.odd_arrays
            own = self.random.choice(pool)()
        elif target.kind is aiodev.Stream:
            own = self.random.choice(self.values.runtime[:4])()
        elif target.kind is aiodev.Event:
            own = self.random.choice(self.values.runtime[4:7])()
        elif target.kind is aiodev.Completion:
            own = self.random.choice([*self.values.runtime[7:9], self.values.runtime[10]])()
        else:
            own = test_object_protocols.TABLE[target.kind].make()
        if isinstance(target.function, property):
            return lambda *_, **__: getattr(own, target.member), own
        return functools.partial(getattr(type(own), target.member), own), own

    async def one(self, number: int) -> None:
        target = self.random.choice(self.targets)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)  # until the next call: whatever hangs shows where
        function, own = self.prepare(target)
        positional, named = self.arguments_of(target)
        shown = f"seed {self.arguments.seed}, call {number}: {target.name}({kinds(positional)}; {kinds(named)})"
        os.pwrite(self.last, shown.encode(errors="replace")[:900].ljust(900), 0)
        context = contextvars.copy_context()
        handles = dict(registry._handles)
        self.counts[target.name] += 1
        try:
            result = context.run(function, *positional, **named)
            await self.finish(result, context, target, [*positional, *named.values()])
            outcome = None
        except (Exception, asyncio.CancelledError) as error:
            outcome = fault_of(target, own, positional, error)
            if outcome is not None:
                self.complain(target, outcome, error, shown)
            del error
        finally:
            if registry._handles != handles:
                registry._handles = handles
                registry._forget_answers()
        for value in (*positional, *named.values()):
            if inspect.iscoroutine(value):
                value.close()

    async def finish(self, result: Any, context: contextvars.Context, target: Target, given: Iterable[Any]) -> None:
        """Run what the call has made to its end."""
        for future in given:
            if isinstance(future, Unfinished):
                future.cancel()
        if inspect.iscoroutine(result):
            task = asyncio.create_task(result, context=context)
            result = await asyncio.wait_for(task, PATIENCE)
        elif inspect.isasyncgen(result):
            async with contextlib.aclosing(result):
                async for _ in result:
                    pass
        if isinstance(result, aiodev.Completion):
            with contextlib.suppress(Exception, asyncio.CancelledError):  # which is the operation's own
                await asyncio.wait_for(result, PATIENCE)
        if isinstance(result, testing.Latch):
            result.release()
        if target.function is aiodev.memory.on_out_of_memory:
            result()
        if target.function is aiodev.memory.allocate:
            aiodev.memory.free(result)

    def complain(self, target: Target, fault: str, error: BaseException, shown: str) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        try:
            text = str(error)[:300]
        except HostileError:
            text = "<hostile>"
        key = (target.name, type(error).__name__, re.sub(r"\d+|'[^']*'|0x\w+", "#", text)[:60])
        if key not in self.faults:
            self.faults[key] = f"{target.name}: {fault}", f"{type(error).__name__}: {text}", f"raised at {where}", shown

    # All of them

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)  # tasks that nobody waits for are some of the values
        for number in range(self.arguments.calls):
            await self.one(number)
            if number % 250 == 249:
                self.probe(number)
        await asyncio.sleep(0.05)

    def probe(self, number: int) -> None:
        """The devices still work."""
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        for _ in range(2):  # failures that nobody was told of are told the first time
            for device in ("cpu:0", "cpu:1", "sim:0"):
                with contextlib.suppress(BaseException):
                    aiodev.synchronize_blocking(device, PATIENCE)
        aiodev.memory.set_per_process_memory_fraction(1.0, "cpu")
        for device in ("cpu:0", "cpu:1", "sim:0"):
            with aiodev.Stream(device):
                found = aiodev.full(5, number, "int64").numpy_blocking(PATIENCE)
            assert (found == number).all(), (device, found)
        faulthandler.cancel_dump_traceback_later()


def kinds(values: Any) -> str:
    items = values.items() if isinstance(values, dict) else enumerate(values)
    return ", ".join(f"{name}={_shown(value)}" for name, value in items)


def _shown(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r}"[:60]
    except Exception:
        return type(value).__name__


def bytes_in_use() -> int:
    """Bytes that arrays use, when what has been dropped is gone."""
    for _ in range(3):
        gc.collect()
        for device in ("cpu:0", "cpu:1", "sim:0"):
            with contextlib.suppress(BaseException):
                aiodev.synchronize_blocking(device, PATIENCE)
    return sum(aiodev.memory.memory_allocated(device) for device in ("cpu:0", "cpu:1", "sim:0"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--last", default=os.devnull, help="a file that says what was called last")
    parser.add_argument("--compile", action="store_true", help="run the library's kernels, which compiles them")
    arguments = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    aiodev.register_backend("sim", testing.SimulatedBackend)
    aiodev.init_blocking("cpu")
    aiodev.init_blocking("sim")
    if not arguments.compile:
        service.load = lambda loading: loading.finish(aiodev.CompileError(loading.spec.name, "not compiled here"))
    fuzzer = Fuzzer(arguments)
    asyncio.run(fuzzer.run())
    calls, names = sum(fuzzer.counts.values()), len(fuzzer.counts)
    before, after = fuzzer.nbytes, bytes_in_use()
    print(f"{calls} calls of {names} of {len(fuzzer.targets)} functions, {len(fuzzer.faults)} faults; {after} bytes in use")
    for fault in fuzzer.faults.values():
        print("\n  ".join(("", *fault)))
    if after - before > KEPT:
        print(f"{after - before} bytes were left behind")
    return 1 if fuzzer.faults or after - before > KEPT else 0


if __name__ == "__main__":
    raise SystemExit(main())
