"""``python -m aiodev warm-up``: compile kernels before a program needs them, for this machine or for all of a kind."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio.to_thread

import aiodev
from aiodev import profiler
from aiodev._cli.refusals import refuse, unusable_device, unusable_directory
from aiodev._core.cache_directory import cache
from aiodev._kernel.compile.ahead import compile_ahead, recorded_kernels
from aiodev._kernel.compile.worker import Job
from aiodev.dtypes import parse_dtype

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
    reason = await anyio.to_thread.run_sync(_obstacle, options)
    if reason is not None:
        return refuse(reason)
    backend = aiodev.get_backend(aiodev.Device(options.device).type)
    known: list[str] = list(getattr(backend, "baselines", dict)()) if options.into else []
    targets: list[str] = (options.target or known) if options.into else []
    if options.into and (not known or not set(targets) <= set(known)):
        able = ", ".join(known) or "nothing"
        return refuse(f"{options.device} can be compiled ahead for {able}, not for {', '.join(targets) or 'others'}")
    began, before = time.perf_counter(), profiler.counters()
    remove = profiler.on_compilation(_say)
    try:
        with recorded_kernels() as jobs:
            for call in _calls(options):
                await call()
    except _RefusedError as error:
        return refuse(str(error))
    finally:
        remove()
    compiled, loaded = (profiler.counters()[name] - before[name] for name in ("kernels_compiled", "kernels_loaded"))
    took = time.perf_counter() - began
    place = await anyio.to_thread.run_sync(cache.directory)
    print(f"{compiled} kernels compiled, {loaded} were there, in {took:.1f} s; kept in {place or 'memory'}")
    try:
        for target in targets:
            count = await anyio.to_thread.run_sync(_compile_for, backend, target, jobs, options.into)
            print(f"{target}: {count} kernels in {options.into}")
    except OSError as error:
        return refuse(f"--into: {error}")
    return 0


class _RefusedError(Exception):
    """A name that cannot be compiled; what a module of the user's raises while its kernels are launched is none."""


def _obstacle(options: Namespace) -> str | None:
    """Why nothing is compiled at all, found before anything is. Blocks."""
    if not options.names and not options.all:
        return "say what to compile: names, or --all"
    if options.target and not options.into:
        return "--target says what is compiled for another machine: add --into, the directory for that"
    for name in options.dtype or ():
        try:
            parse_dtype(name)
        except (TypeError, ImportError) as error:
            return f"--dtype {name}: {error}"
    return unusable_device(options.device) or (unusable_directory(options.into) if options.into else None)


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
    modules = [_imported(name) for name in options.names if name not in known]
    return [*calls, *(functools.partial(_of_module, module, options.device) for module in modules)]


def _imported(name: str) -> Any:
    """A module of the user's.

    Raises:
        _RefusedError: it is not there; or it fails, and where.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:
        failed: list[tuple[str | None, int | None]] = [
            (place.filename, place.lineno)
            for place in traceback.extract_tb(error.__traceback__)
            if not place.filename.startswith("<frozen importlib") and place.filename not in (__file__, importlib.__file__)
        ]
        if isinstance(error, SyntaxError):
            failed.append((error.filename, error.lineno))
        if not failed:
            raise _RefusedError(f"{name} is no function of aiodev.kernels, and cannot be imported: {error}") from error
        file, line = failed[-1]
        raise _RefusedError(f"{name} cannot be imported: {file}:{line}: {type(error).__name__}: {error}") from error


async def _of_module(module: Any, device: str) -> None:
    """What a program's module does to launch its kernels.

    Raises:
        _RefusedError: it says nothing of that.
    """
    function = getattr(module, "warm_up", None)
    if not callable(function):
        raise _RefusedError(f"{module.__name__} has no function warm_up()")
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
