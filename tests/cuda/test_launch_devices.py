"""The library's functions launch on the device of their arrays, whichever is current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import contextlib, inspect, logging, warnings
from unittest import mock

import aiodev, library
from aiodev._core.errors import CompileError
from aiodev._kernel.compile import service
from aiodev.testing import SimulatedBackend

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
aiodev.register_backend("sim", lambda: SimulatedBackend(2))

def arrays_in(found):
    if isinstance(found, aiodev.Array):
        return [found]
    return [x for one in found for x in arrays_in(one)] if isinstance(found, (tuple, list)) else []

def call(function, given):
    found = function(*given)
    if inspect.iscoroutine(found):
        found.close()
        return []
    return arrays_in(found)

taken, failures = set(), []
refuse = lambda loading: loading.finish(CompileError(loading.spec.name, "not compiled"))
with mock.patch.object(service.service, "load", refuse):
    for current in ("sim:1", "sim:0"):
        with aiodev.device("sim:1"):
            lists = {code: list(library.argument_lists(code, "sim:1")) for code in ("f4", "i8")}
        with aiodev.device(current):
            for name, function in library.functions():
                for code, number in ((code, number) for code in lists for number in range(len(lists[code]))):
                    given = lists[code][number]
                    if not arrays_in(given):
                        continue
                    key = name, code, number
                    try:
                        made = call(function, given)
                    except aiodev.LaunchError as error:
                        if key in taken:
                            failures.append(f"{key}: {error}")
                        continue
                    except Exception:  # it takes no such arguments, or asks for what was not computed
                        continue
                    if current == "sim:1":
                        taken.add(key)
                    failures += [f"{key}: a result is on {x.device}" for x in made if str(x.device) != "sim:1"]
print(len(taken))
print("\\n".join(failures))
"""


def test_functions_launch_where_their_arrays_are() -> None:
    """What a function takes on the current device it takes on another one, and its results are there."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + _PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    count, _, failures = done.stdout.partition("\n")
    assert int(count) > 500 and not failures.strip(), failures
