"""The stand-in is as strict as a driver may be: what it refuses, what it waits for, and what it ends the process for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., str]

_PREAMBLE = """
import ctypes as C, os, sys, threading, time
lib = C.CDLL(sys.argv[1])

def call(name, *words, version=12000):
    place = C.c_void_p()
    lib.cuGetProcAddress_v2(name.encode(), C.byref(place), version, C.c_uint64(0), None)
    if not place.value:
        return None
    return C.CFUNCTYPE(C.c_int)(place.value)(*(C.c_int64(word) if isinstance(word, int) else word for word in words))

def number(name, *words, version=12000):
    made = C.c_int64()
    status = call(name, C.byref(made), *words, version=version)
    assert status == 0, (name, status)
    return made.value

def stream():
    return number("cuStreamCreateWithPriority", 1, 0)

def launch(function, on, *words):
    block, size = (C.c_int64 * len(words))(*words), C.c_size_t(8 * len(words))
    extra = (C.c_void_p * 5)(1, C.addressof(block), 2, C.addressof(size), 0)
    return call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, on, None, extra)

def until(condition):
    while not condition():
        time.sleep(0.001)

call("cuInit", 0)
contexts = [number("cuDevicePrimaryCtxRetain", device) for device in range(2)]
call("cuCtxSetCurrent", contexts[0])
functions = number("cuModuleLoadData", C.c_char_p(b"\\n.version 6.0"))
poke = number("cuModuleGetFunction", functions, C.c_char_p(b"poke"))
words = (C.c_int64 * 64).from_address(number("cuMemHostAlloc", 512, 3))
at = C.addressof(words)
"""


@pytest.fixture
def run_alone(library: str) -> Callable[..., tuple[int, str]]:
    """Run a program that calls the stand-in and nothing else; its exit status, and what it prints."""

    def run(program: str, **environment: str) -> tuple[int, str]:
        command = [sys.executable, "-c", _PREAMBLE + program, library]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
        return done.returncode, done.stdout if done.returncode <= 0 else done.stderr

    return run


Alone = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    "program",
    [
        "event = number('cuEventCreate', 2); call('cuEventDestroy', event); call('cuEventQuery', event)",
        "s = stream(); call('cuStreamDestroy', s); call('cuStreamWriteValue64', s, at, 1, 0)",
        "call('cuStreamQuery', 12345)",
        "if os.fork() == 0: call('cuCtxSynchronize')\nelse: os.kill(os.getpid(), os.WTERMSIG(os.wait()[1]))",
    ],
    ids=["an event", "a stream", "no handle", "in a child"],
)
def test_what_ends_the_process(program: str, run_alone: Alone) -> None:
    """Handles that are dead, or none, and calls in a forked child."""
    assert run_alone(program)[0] == -6


def test_a_channel_that_is_full_blocks(run_alone: Alone) -> None:
    """Streams that share one have room together; who submits more waits until something there is done."""
    _, said = run_alone(
        """
streams = [stream() for _ in range(33)]  # of 32 channels
call("cuStreamWaitValue64", streams[0], at, 1, 0)
for s in (streams[0], streams[32], streams[0]):
    call("cuStreamWriteValue64", s, at + 8, 1, 0)
call("cuStreamWriteValue64", streams[1], at + 16, 1, 0)
def write():
    call("cuCtxSetCurrent", contexts[0])
    call("cuStreamWriteValue64", streams[32], at + 24, 1, 0)
thread = threading.Thread(target=write)
thread.start()
until(lambda: C.c_long.in_dll(lib, "standin_blocked").value)
print(words[3], thread.is_alive())
words[0] = 1
thread.join()
call("cuCtxSynchronize")
print(words[3])
""",
        STANDIN_DEPTH="3",
    )
    assert said == "0 True\n1\n"


def test_host_functions_are_called_one_after_the_other(run_alone: Alone) -> None:
    """Also those of different streams."""
    _, said = run_alone("""
busy, most = [], []
def function(_):
    busy.append(1); most.append(len(busy)); [os.sched_yield() for _ in range(1000)]; busy.pop()
called = C.CFUNCTYPE(None, C.c_void_p)(function)
for _ in range(3):
    call("cuLaunchHostFunc", stream(), called, None)
call("cuCtxSynchronize")
print(most)
""")
    assert said == "[1, 1, 1]\n"


def test_a_kernel_reaches_no_other_device(run_alone: Alone) -> None:
    """Its parameters' addresses are looked at; with peer access enabled it does."""
    program = """
call("cuCtxSetCurrent", contexts[1])
memory = number("cuMemAlloc", 64)
call("cuCtxSetCurrent", contexts[0])
if os.environ.get("PEERS"):
    call("cuCtxEnablePeerAccess", contexts[1], 0)
print(launch(poke, stream(), memory, 7), call("cuCtxSynchronize"))
"""
    assert run_alone(program)[1] == "0 700\n"
    assert run_alone(program, PEERS="1")[1] == "0 0\n"


def test_a_captured_stream_refuses(run_alone: Alone) -> None:
    """While another library captures it nothing of it can be had, and asking after streams invalidates the capture."""
    _, said = run_alone("""
s = stream()
lib.standin_capture(1, C.c_void_p(s))
status = C.c_int()
print(launch(poke, s, at, 1), call("cuStreamQuery", s), call("cuStreamIsCapturing", s, C.byref(status)), status.value)
print(C.c_long.in_dll(lib, "standin_invalidated").value)
""")
    assert said == "900 900 0 1\n1\n"


def test_some_calls_wait_for_the_device(run_alone: Alone) -> None:
    """Allocating, freeing, loading and a first launch; meanwhile all other calls wait for them."""
    _, said = run_alone("""
s, other = stream(), stream()
call("cuStreamWaitValue64", s, at, 1, 0)
lib.standin_waits(1)
done = []
def call_in_thread(name, *given):
    def run():
        call("cuCtxSetCurrent", contexts[0])
        call(name, *given)
        done.append(words[0])
    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: lib.standin_count(name.encode()) > 0)
    return thread
threads = [call_in_thread("cuMemAlloc", C.byref(C.c_int64()), 64), call_in_thread("cuStreamWriteValue64", other, at + 8, 1, 0)]
words[0] = 1
[thread.join() for thread in threads]
print(done)
""")
    assert said == "[1, 1]\n"


_CAPTURE = """
def begin():
    global outer, graph
    outer, graph = stream(), C.c_int64()
    call("cuStreamBeginCapture", outer, 2)
    call("cuStreamGetCaptureInfo", outer, C.byref(C.c_int64()), 0, C.byref(graph), 0, 0)
    graph = graph.value
def handle(of=None):
    return number("cuGraphConditionalHandleCreate", graph if of is None else of, contexts[0], 0, 1, version=12030)
def block(condition, kind=0, into=None, **changed):
    given = (C.c_int64 * 32)(13, 0, condition, kind | 1 << 32, 0, contexts[0])
    for place, word in changed.items():
        given[int(place[1:])] = word
    nodes, count, node = C.c_int64(), C.c_int64(), C.c_int64()
    call("cuStreamGetCaptureInfo", outer, C.byref(C.c_int64()), 0, 0, C.byref(nodes), C.byref(count))
    status = call("cuGraphAddNode", C.byref(node), graph, nodes.value, count.value, given, version=12020)
    return status, node, C.c_int64.from_address(given[4]).value if status == 0 else 0
def end():
    made, executable = C.c_int64(), C.c_int64()
    status = call("cuStreamEndCapture", outer, C.byref(made))
    return status or call("cuGraphInstantiateWithFlags", C.byref(executable), made.value, 0)
def follow(node):
    call("cuStreamUpdateCaptureDependencies", outer, C.byref(node), 1, 1)
def fill(body, operation):
    inside = stream()
    assert call("cuStreamBeginCaptureToGraph", inside, body, 0, 0, 0, 2, version=12030) == 0
    operation(inside)
    return call("cuStreamEndCapture", inside, C.byref(C.c_int64()))
called = C.CFUNCTYPE(None, C.c_void_p)(lambda _: None)
begin()
"""


_LOOKED_UP = "call('cuGraphAddNode', 0, 0, 0, 0, 0, 0, version=12030), call('cuStreamGetCaptureInfo', 0, version=12030)"
_WITH_BODY = "s, node, body = block(handle()); follow(node); print(fill(body, {}), end())"


@pytest.mark.parametrize(
    ("program", "statuses"),
    [
        (_WITH_BODY.format("lambda s: launch(poke, s, at, 1)"), "0 0"),
        (_WITH_BODY.format("lambda s: call('cuLaunchHostFunc', s, called, None)"), "0 801"),
        (_WITH_BODY.format("lambda s: call('cuStreamWriteValue64', s, at, 1, 0)"), "0 801"),
        ("block(handle()); launch(poke, outer, at, 1); print(end())", "901"),
        ("one = handle(); print(block(one)[0]); print(block(one)[0])", "0 1"),
        ("s, node, body = block(handle()); follow(node); handle(); print(end())", "1"),
        ("one = handle(); begin(); print(block(one)[0])", "1"),
        ("print(block(handle(), kind=2)[0], block(handle(), w1=1)[0], block(handle(), w5=contexts[1])[0])", "1 1 1"),
        (f"print({_LOOKED_UP})", "None None"),
    ],
    ids=[
        "a kernel", "a host function", "a write", "what does not follow", "a handle twice", "a handle unused",
        "of another graph", "other parameters", "other prototypes",
    ],
)  # fmt: skip
def test_conditional_nodes(program: str, statuses: str, run_alone: Alone) -> None:
    """Bodies hold kernels, copies, fills and such nodes; a handle is its graph's and one node's; what follows says so."""
    status, said = run_alone(_CAPTURE + program)
    assert (status, said.split()) == (0, statuses.split()), said


def test_conditions_are_set_in_their_graph_alone(run_alone: Alone) -> None:
    """A kernel that sets one anywhere else has an illegal address."""
    _, said = run_alone(
        _CAPTURE
        + """
count_down = number("cuModuleGetFunction", functions, C.c_char_p(b"count_down"))
print(launch(count_down, stream(), handle(), at, 1), call("cuCtxSynchronize"))
"""
    )
    assert said == "0 700\n"


def test_indices_come_in_any_order(run: Run) -> None:
    """A kernel's threads are run one by one, in another order each time."""
    said = run("""
@aiodev.kernel
def line_up(i, count, out):
    out[i] = count[0]
    count[0] += 1

async def main():
    async with aiodev.device("cuda"):
        found = []
        for _ in range(4):
            count, out = aiodev.zeros(1, "int64"), aiodev.zeros(50, "int64")
            line_up[50](count, out)
            found.append((await out.numpy()).tolist())
        print(all(sorted(one) == list(range(50)) for one in found), len({tuple(one) for one in found}))
asyncio.run(main())
""")
    assert said == "True 4\n"
