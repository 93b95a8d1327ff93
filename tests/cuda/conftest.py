"""The CUDA backend on a stand-in for the driver, which is built from C; where there is no compiler for C the tests skip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import standin
from programs import search_path

from aiodev._backends.cuda import CUDABackend
from aiodev._backends.cuda.code_cache import EXECUTOR

HERE = Path(__file__).parent

Run = Callable[..., str]

_PREAMBLE = """
import asyncio, dataclasses, sys, faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import standin, aiodev
from aiodev._backends.cuda import CUDABackend
library = standin.build()
driver = standin.StandIn(library)
backend = CUDABackend(library=library, compiler=standin.StandInCompiler())
aiodev.register_backend("cuda", lambda: backend)
"""


@pytest.fixture(scope="session")
def library() -> str:
    """File name of the stand-in."""
    found = standin.build()
    if found is None:
        pytest.skip("no compiler for C is installed, to build the stand-in for the CUDA driver")
    return found


@pytest.fixture(scope="session")
def driver(library: str) -> standin.StandIn:
    """The stand-in's controls."""
    return standin.StandIn(library)


@pytest.fixture(scope="session")
def backend(library: str) -> Iterator[CUDABackend]:
    """A started backend with two devices."""
    made = CUDABackend(library=library, compiler=standin.StandInCompiler())
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def compiled(library: str) -> None:
    """The executor's code is in the cache, so that the time of no program below goes into compiling it."""
    EXECUTOR.load()


@pytest.fixture
def run(library: str, compiled: None) -> Run:
    """Run a program in a process of its own, in which ``cuda`` is the stand-in; gives what it prints."""

    def run_program(code: str, **environment: str) -> str:
        path = search_path(HERE, os.environ.get("PYTHONPATH", ""))
        done = subprocess.run(
            [sys.executable, "-c", _PREAMBLE + code],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run_program
