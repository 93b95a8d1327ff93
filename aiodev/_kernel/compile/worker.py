"""A compile worker: a process that runs :func:`main`, which reads jobs until its input ends.

It is a process of its own, started afresh: nothing of the program that launches kernels runs here, not even an import of
its modules, unless a body uses an object of a class of theirs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import traceback
from typing import Any

from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.registry import registry
from aiodev._core.cache_directory import cache
from aiodev._core.errors import AiodevError, CompileError
from aiodev._kernel.compile.snapshot import Snapshot
from aiodev._kernel.dispatch.wire import receive, send

__all__ = ["Job", "main"]

#: Thresholds of the collector. Compilers make many objects, few of them garbage in cycles; with the interpreter's own
#: thresholds a tenth of the time of compiling goes into looking for those.
_YOUNG, _OLDER = 50_000, (20, 100)

#: (backend's name, spec with no function, the snapshot of its function, cache directory)
Job = tuple[str, KernelSpec, bytes, str]


def main() -> None:
    """Compile jobs from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where whoever started this could not block it: Ctrl-C is for the program
    cache.adopt("")  # each job says where, and who gave it warns if that cannot be written to
    _yield_to_others()
    jobs = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a module prints while it is imported must not end up among the replies
    gc.set_threshold(_YOUNG, *_OLDER)
    try:
        while True:
            send(replies, _serve(receive(jobs)))
            if gc.get_freeze_count() == 0:
                gc.freeze()  # the compiler has been imported, and lives as long as this process
    except (EOFError, BrokenPipeError):
        return


def _yield_to_others() -> None:
    """Lower this process's priority: a compiler that keeps a core makes the program's loop late."""
    if hasattr(os, "nice"):
        os.nice(10)
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _serve(job: Job) -> BaseException | None:
    """Compile one job into the cache; returns the error, or None."""
    name, spec, data, directory = job
    _have_a_directory()
    try:
        function = Snapshot.rebuild(data)
        registry.handle(name).backend.compile(spec._replace(function=function), directory)
    except AiodevError as error:
        error.__cause__ = error.__context__ = None
        return error
    except Exception:  # whatever it is, the parent must hear of it
        return CompileError(spec.name, traceback.format_exc())
    return None


def _have_a_directory() -> None:
    """Move to a directory that exists: the program's may be gone by now, and numba names files from it."""
    try:
        os.getcwd()
    except OSError:
        os.chdir(os.sep)


def placeholder(*args: Any) -> None:
    """Stands in for a spec's function on its way here."""
