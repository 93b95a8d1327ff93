"""Programs that fork, each in a fresh interpreter, where nothing else has threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PRELUDE = """
import os, sys, threading, time
import aiodev
from aiodev._core.backend.interface import Capabilities
from aiodev.testing import SimulatedBackend


def in_child(run):
    "Fork, run there, and fail here when that failed."
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:  # the child must end here, in whatever way
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"


def use(device):
    assert aiodev.Stream(device).call(sum, [1, 2]).synchronize_blocking(30) == 3


def raises(kind, ask, *arguments):
    try:
        ask(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
"""


def run(program: str, *arguments: str, **environment: str) -> str:
    """Run a program after the prelude; what it, and the children that it forks, say on standard error."""
    code = PRELUDE + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
