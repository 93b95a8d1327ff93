"""A process that ends, or is interrupted, with work in flight ends cleanly and soon."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from selection import examples

#: Work of every kind that has no end of its own: a held stream, a function that sleeps, kernels that run for long. Where
#: whoever started it ignores Ctrl-C, as shells have commands behind ``&`` do, Python does too, unless it is told.
IN_FLIGHT = """
import asyncio, signal, sys, threading, time
import numpy as np
import aiodev

signal.signal(signal.SIGINT, signal.default_int_handler)

@aiodev.kernel
def busy(i, n, out):
    x = 0.0
    for k in range(n):
        x += (k * i) % 7
    out[i] = x

held, calling, computing = (aiodev.Stream("cpu") for _ in range(3))
out = aiodev.empty(4096, dtype=np.float64, device="cpu")
busy[1, computing](1, out).synchronize_blocking(60)
gate = held._gate()
behind = held.call(print, "never")
sleeping = threading.Event()
calling.call(lambda: (sleeping.set(), time.sleep(60)))
for _ in range(100):
    busy[4096, computing](1_000_000, out)
sleeping.wait(30)
"""

ENDINGS = {
    "the program ends": "print('ready', flush=True)",
    "SystemExit": "print('ready', flush=True); sys.exit(0)",
    "a loop ends": "asyncio.run(asyncio.sleep(0)); print('ready', flush=True)",
    "threads go on waiting": """
threading.Thread(target=held.synchronize_blocking, daemon=True).start()
threading.Thread(target=lambda: asyncio.run(held.synchronize()), daemon=True).start()
while held.timeline.parked < 3:  # theirs, and the watcher's for the call
    time.sleep(0)
print('ready', flush=True)
""",
    "a loop ends with a waiter": """
async def main():
    waiter = asyncio.ensure_future(held.synchronize())
    await asyncio.sleep(0)
    print('ready', flush=True)

asyncio.run(main())
""",
    "SystemExit in a task": """
async def main():
    waiter = asyncio.ensure_future(held.synchronize())
    await asyncio.sleep(0)
    print('ready', flush=True)
    sys.exit(0)

asyncio.run(main())
""",
    "a run of trio with a waiter": """
import trio

async def main():
    with trio.move_on_after(0.1):
        await held.synchronize()
    print('ready', flush=True)

trio.run(main)
""",
    "a guard is open": "held.__enter__(); print('ready', flush=True)",
    "all of it is dropped": "del held, calling, computing, behind, out; print('ready', flush=True)",
    "whoever was to open the gate is dropped": """
assert behind.cancel()  # nothing holds it any longer
held.call(str)
del held, calling, computing, behind, gate, out
print('ready', flush=True)
""",
    "a forked child ends": """
import os
import warnings

warnings.simplefilter('ignore')  # that there are threads
if not os.fork():
    sys.exit(0)
assert os.wait()[1] == 0
print('ready', flush=True)
""",
    "os._exit": "import os; print('ready', flush=True); os._exit(0)",
}

INTERRUPTED = {
    "a blocking wait": "print('ready', flush=True); held.synchronize_blocking()",
    "a loop": """
async def main():
    print('ready', flush=True)
    await held.synchronize()

asyncio.run(main())
""",
    "a loop of uvloop": """
import uvloop

async def main():
    print('ready', flush=True)
    await held.synchronize()

uvloop.run(main())
""",
    "a run of trio": """
import trio

async def main():
    print('ready', flush=True)
    await held.synchronize()

trio.run(main)
""",
    "a called function is awaited": """
async def main():
    print('ready', flush=True)
    await calling.synchronize()

asyncio.run(main())
""",
}

#: Seconds that the end may take. A second is what is aimed at; the rest is for machines that do other things, too.
PATIENCE = 8.0


def start(ending: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(IN_FLIGHT) + ending
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_ready(process: subprocess.Popen[str]) -> float:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != "ready":
        process.kill()
        pytest.fail(f"the program did not get ready: {line!r} {process.communicate()[1]}")
    return time.monotonic()


def wait_until_asleep(process: subprocess.Popen[str]) -> None:
    """Until the main thread sleeps: asyncio misses a signal that comes between its last look and its system call.

    Or until it has ended, or too much time has passed, which what follows tells.
    """
    state, until = Path(f"/proc/{process.pid}/stat"), time.monotonic() + PATIENCE
    asleep = 0
    while process.poll() is None and state.exists() and asleep < 5 and time.monotonic() < until:
        asleep = asleep + 1 if state.read_text().rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.002)


def end_of(process: subprocess.Popen[str], began: float) -> tuple[int, str]:
    """How it ended, and what it said of that; fails when that took too long."""
    try:
        out, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"still running after {time.monotonic() - began:.1f} s: {process.communicate()[1]}")
    assert "never" not in out
    return process.returncode, errors


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_with_work_in_flight(ending: str) -> None:
    """The interpreter ends soon, with status 0 and without a word from our threads."""
    process = start(ending)
    code, errors = end_of(process, wait_until_ready(process))
    assert code == 0, errors
    assert "Traceback" not in errors and "Fatal" not in errors, errors


def test_a_failure_that_nobody_waited_for_is_reported_at_exit() -> None:
    """Although an array holds on to the stream: once, and none that a waiter was told of."""
    program = """
import aiodev

@aiodev.kernel
def fail(i, x):
    raise ValueError("unheard" if x[i] > 0 else "heard")

arrays = [aiodev.full(1, value, device="cpu") for value in (-1.0, 1.0)]
streams = [aiodev.Stream("cpu") for _ in arrays]
fail.bind((1, streams[0]), arrays[0])()
try:
    streams[0].synchronize_blocking(60)
except aiodev.KernelError:
    pass
failed = fail[1, streams[1]](arrays[1])
while not failed.query():
    pass
del failed, streams
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.count("never retrieved") == 1
    assert "ValueError: unheard" in done.stderr and "ValueError: heard" not in done.stderr


@pytest.mark.parametrize("ending", INTERRUPTED.values(), ids=INTERRUPTED)
def test_ctrl_c_interrupts_a_wait(ending: str) -> None:
    """Ctrl-C ends a wait with KeyboardInterrupt, and then the program, soon."""
    process = start(ending)
    began = wait_until_ready(process)
    wait_until_asleep(process)
    process.send_signal(signal.SIGINT)
    code, errors = end_of(process, began)
    assert code in (-signal.SIGINT, 130, 1), (code, errors)
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert "Fatal" not in errors and "Exception in thread" not in errors, errors


@pytest.mark.parametrize(
    "meanwhile",
    ["", "threading.Thread(target=lambda: [eval('1') for _ in iter(int, 1)], daemon=True).start()"],
    ids=["nothing else runs", "a thread evaluates strings"],
)
def test_an_interrupted_program_ends_by_its_signal(meanwhile: str) -> None:
    """So that a shell's loop, or who supervises it, sees that it was interrupted, whatever ends with it."""
    program = f"""
import os, signal, threading
import aiodev

signal.signal(signal.SIGINT, signal.default_int_handler)
{meanwhile}
aiodev.Stream("cpu").call(int).synchronize_blocking()
os.kill(os.getpid(), signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT, done.stderr


DROPPED = """
import atexit, gc, logging, sys, threading
import aiodev

logging_it, ending, never = threading.Event(), threading.Event(), threading.Event()

def slow(record):
    logging_it.set()
    ending.wait(30)
    never.wait(1.5)  # time for the process to end without us
    return True

logging.getLogger("aiodev").addFilter(slow)
atexit.register(ending.set)  # runs before what aiodev has registered
stream = aiodev.Stream("cpu")
done = stream.call(int, "no number")
while not done.query():
    pass
del stream, done
gc.collect()
logging_it.wait(30)
"""


def test_a_failure_that_is_being_logged_at_exit_is_logged() -> None:
    """Once: the process waits for whoever logs it."""
    found = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=120, check=True)
    assert found.stderr.count("never retrieved") == 1


#: A library, as the C library sees one; it tells when it is taken down. And somebody who never comes back from one.
LIBRARY = """
import ctypes, os, signal, sys, threading, time
from aiodev._native import native_code
from aiodev._native.package import NativePackage

C = ctypes.CDLL(None)
C.strdup.restype = ctypes.c_void_p
C.__cxa_atexit(C.puts, ctypes.c_void_p(C.strdup(b"taken down")), None)
begun = threading.Event()

class Endless(NativePackage):
    def _load(self):
        begun.set()
        C.sleep(600)

"""
AT_WORK = """
threading.Thread(target=Endless("first").load, daemon=True).start()
begun.wait(30)
C.puts(b"from C")
print("from Python")
"""
glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="the C library is not glibc")


@glibc
@pytest.mark.parametrize(
    ("ending", "status"), [("", 0), ("sys.exit(3)", 3), ("raise KeyboardInterrupt", -signal.SIGINT), ("1 / 0", 1)]
)
def test_native_code_that_is_being_made_is_left_at_exit(ending: str, status: int) -> None:
    """LLVM would take itself down under whoever compiles: the process ends without that, else as it would have ended."""
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY + AT_WORK + ending], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (status, ["", "from C", "from Python"]), done.stderr
    assert ("Traceback" in done.stderr) == (ending not in ("", "sys.exit(3)")) and "atexit" not in done.stderr


def test_a_library_is_taken_down_at_exit_where_nobody_is_at_work() -> None:
    """Others' libraries may have something to write."""
    done = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "taken down\n"), done.stderr


def test_native_code_that_is_being_made_is_waited_for_where_the_system_cannot_leave_it() -> None:
    """However often Ctrl-C is pressed meanwhile; nobody begins to make any afterwards."""
    program = """
class Slow(NativePackage):
    def _load(self):
        begun.set()
        threading.main_thread().join()  # until the process ends
        for _ in range(3):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
        print("made", self.name, flush=True)

native_code._end_without_destructors = lambda: False
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=Slow("first").load, daemon=True).start()
begun.wait(30)
threading.Thread(target=Slow("second").load, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", LIBRARY + program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGINT), done.stderr
    assert done.stdout.split("\n")[0] == "made first" and "second" not in done.stdout, done.stderr


#: An exception of a finalizer that the interpreter calls while it ends: to print its traceback, with lines of a file, takes an
#: import.
LATE_FAILURE = """
class Fails:
    def __del__(self):
        raise RuntimeError("in a finalizer")

fails = Fails()
fails.itself = fails
"""


def ends_telling_of_the_failure(file: Path, program: str) -> None:
    file.write_text(program + LATE_FAILURE)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0 and done.stderr.strip().endswith("RuntimeError: in a finalizer"), done.stderr


def test_a_thread_that_imports_at_exit_does_not_keep_the_import_lock(tmp_path: Path) -> None:
    """Python ends daemon threads wherever they wait, as for a file system that is asked for a module, under that lock."""
    finder = """
import importlib, sys, threading, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "nowhere":
            looking.set()
            time.sleep(0.3)

looking = threading.Event()
sys.meta_path.insert(0, Finder())
threading.Thread(target=importlib.import_module, args=("nowhere",), daemon=True).start()
looking.wait(30)
"""
    program = f"import aiodev; exec({finder!r}, {{}})"  # so that the thread holds nothing of the program's names
    ends_telling_of_the_failure(tmp_path / "program.py", program)


@pytest.mark.parametrize("delay", range(examples(40)))
def test_a_program_ends_while_a_backend_starts(delay: int, tmp_path: Path) -> None:
    """At any moment of the start, which imports a lot in a thread of its own, and of the load of native code behind it."""
    program = f"""
import time
import aiodev

stream = aiodev.Stream("cpu")
sleeping = stream.call(time.sleep, 60)
time.sleep({0.01 * delay * 40 / examples(40)})
"""
    ends_telling_of_the_failure(tmp_path / "program.py", program)
