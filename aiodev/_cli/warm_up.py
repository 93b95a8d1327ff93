"""``python -m aiodev warm-up``: compile kernels before a program needs them, for this machine or for all of a kind."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio.to_thread

import aiodev
from aiodev import profiler
from aiodev._core.cache_directory import cache
from aiodev._kernel.compile.ahead import compile_ahead, recorded_kernels
from aiodev._kernel.compile.worker import Job

__all__ = ["add_arguments", "warm_up"]

NAMES = (
    "a function of aiodev.kernels, such as add or random.normal, "
    "or a module of yours with a function warm_up() that launches its kernels"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Tell the command's parser of its options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    parser.add_argument("--all", action="store_true", help="all functions of aiodev.kernels")
    parser.add_argument("--dtype", action="append", metavar="DTYPE", help="of arrays (default: float32, float64 and int64)")
    parser.add_argument("--device", default="cpu", help="where they will run (default: cpu)")
    parser.add_argument("--into", type=Path, metavar="DIRECTORY", help="for AIODEV_PREBUILT_DIR, on all processors of a kind")
    parser.add_argument("--target", action="append", metavar="BASELINE", help="with --into: which kinds (default: all)")


async def warm_up(options: Namespace) -> int:
    """Run the command; returns the exit status."""
    if not options.names and not options.all:
        return _refuse("say what to compile: names, or --all")
    backend = aiodev.get_backend(aiodev.Device(options.device).type)
    known: list[str] = list(getattr(backend, "baselines", dict)()) if options.into else []
    targets: list[str] = (options.target or known) if options.into else []
    if options.into and (not known or not set(targets) <= set(known)):
        able = ", ".join(known) or "nothing"
        return _refuse(f"{options.device} can be compiled ahead for {able}, not for {', '.join(targets) or 'others'}")
    began, before = time.perf_counter(), profiler.counters()
    remove = profiler.on_compilation(_say)
    try:
        with recorded_kernels() as jobs:
            for call in _calls(options):
                await call()
    except (ValueError, ImportError) as error:
        return _refuse(str(error))
    finally:
        remove()
    compiled, loaded = (profiler.counters()[name] - before[name] for name in ("kernels_compiled", "kernels_loaded"))
    took = time.perf_counter() - began
    place = await anyio.to_thread.run_sync(cache.directory)
    print(f"{compiled} kernels compiled, {loaded} were there, in {took:.1f} s; kept in {place or 'memory'}")
    for target in targets:
        count = await anyio.to_thread.run_sync(_compile_for, backend, target, jobs, options.into)
        print(f"{target}: {count} kernels in {options.into}")
    return 0


def _calls(options: Namespace) -> list[Callable[[], Any]]:
    """The calls to await, one after the other."""
    import aiodev.kernels as library  # imports all its modules
    from aiodev.kernels import warmup

    dtypes = {"dtypes": options.dtype} if options.dtype else {}
    known = {*library.__all__, *warmup.functions()}
    functions = None if options.all else [name for name in options.names if name in known]
    calls: list[Callable[[], Any]] = []
    if functions is None or functions:
        calls.append(lambda: library.warm_up(functions, **dtypes, device=options.device))
    modules = [importlib.import_module(name) for name in options.names if name not in known]
    return [*calls, *(functools.partial(_of_module, module, options.device) for module in modules)]


async def _of_module(module: Any, device: str) -> None:
    """What a program's module does to launch its kernels.

    Raises:
        ValueError: it says nothing of that.
    """
    function = getattr(module, "warm_up", None)
    if not callable(function):
        raise ValueError(f"{module.__name__} has no function warm_up()")
    async with aiodev.Stream(device) as stream:
        returned = function()
        if inspect.isawaitable(returned):
            await returned
        await stream.synchronize()


def _compile_for(backend: Any, target: str, jobs: list[Job], folder: Path) -> int:
    mine = [job for job in jobs if job[0] == backend.name]
    with _bar(target, len({spec.key for _, spec, _, _ in mine})) as update:
        return compile_ahead(backend, target, mine, folder, update)


def _bar(text: str, total: int) -> AbstractContextManager[Callable[[], object]]:
    if not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        return nullcontext(lambda: None)
    from tqdm import tqdm  # an extra

    class Bar(tqdm):  # type: ignore[type-arg]
        def __enter__(self) -> Callable[[], object]:  # type: ignore[override]
            super().__enter__()
            return self.update

    return Bar(total=total, unit="kernel", desc=text, file=sys.stderr)


def _say(compilation: profiler.Compilation) -> None:
    if compilation.finished and not sys.stderr.isatty():
        print(f"{compilation.name}: {compilation.seconds:.1f} s", file=sys.stderr)


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2
