"""What aiodev is measured next to on a GPU: torch, CuPy, numba-cuda, cuda.core. Whichever is missing, or fails, is left out."""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from harness import Bar, Case

import aiodev
from aiodev._backends.cuda.structs import Queue

__all__ = ["DEVICE", "bars", "burst", "cuda_stream", "finish", "join", "peer", "raw_source", "throughput"]

DEVICE = "cuda:0"


@functools.cache
def peer(name: str) -> Any:
    """A module that works here.

    Raises:
        ImportError: it is not installed.
        RuntimeError: it sees no device.
    """
    found = importlib.import_module(name)
    if (name == "torch" and not found.cuda.is_available()) or (name == "numba.cuda" and not found.is_available()):
        raise RuntimeError("it sees no CUDA device")
    return found


async def join(cases: dict[str, Case], name: str, make: Callable[[], Case]) -> None:
    """Add a peer's case, if it can be made and runs once; else say why not."""
    try:
        case = make()
        outcome = case()
        if inspect.isawaitable(outcome):
            await outcome
    except Exception as error:  # a peer's failure, whatever it is, must not cost the figures of the others
        print(f"    without {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    else:
        cases[name] = case


def bars(values: Iterable[str], *wanted: Bar) -> list[Bar]:
    """Those of the bars whose peer took part."""
    there = set(values)
    return [bar for bar in wanted if bar.peer in there and bar.case in there]


def finish() -> None:
    """Wait for the device."""
    aiodev.synchronize_blocking(DEVICE)


def burst(function: Callable[[], object], count: int, after: Callable[[], object] = finish) -> float:
    """µs of the host for each of ``count`` calls, few enough for the driver to take; ``after`` waits, outside of the time."""
    began = time.perf_counter()
    for _ in range(count):
        function()
    elapsed = time.perf_counter() - began
    after()
    return elapsed / count * 1e6


def throughput(function: Callable[[], object], nbytes: float, after: Callable[[], object] = finish) -> float:
    """GB/s of a call that moves ``nbytes``, five in a row."""
    began = time.perf_counter()
    for _ in range(5):
        function()
    after()
    return 5 * nbytes / (time.perf_counter() - began) / 1e9


def cuda_stream(stream: aiodev.Stream) -> int:
    """The driver's handle of the stream that a stream of ours runs on, for peers to wait in their way for the same work."""
    return Queue(stream.timeline.queue).stream


def raw_source(name: str, arrays: int) -> str:
    """C++ of a kernel with so many arrays: it writes to a single one; of more, behind a number, the last is a sum."""
    pointers = [f"float *x{i}" for i in range(arrays)]
    scalar = [] if arrays == 1 else ["float a"]
    terms = " + ".join(f"x{i}[i]" for i in range(arrays - 1))
    body = f"x{arrays - 1}[i] = {'1.0f' if arrays == 1 else f'a * ({terms})'};"
    parameters = ", ".join(scalar + pointers)
    return f'extern "C" __global__ void {name}({parameters}) {{ int i = threadIdx.x; {body} }}'


def cupy_launch(arrays: int, count: int) -> Case:
    """A burst of CuPy's RawKernel."""
    cupy = peer("cupy")
    kernel = cupy.RawKernel(raw_source("raw", arrays), "raw")
    given = (*([np.float32(2)] if arrays > 1 else []), *(cupy.ones(8, "f4") for _ in range(arrays)))
    return lambda: burst(lambda: kernel((1,), (8,), given), count, cupy.cuda.runtime.deviceSynchronize)


def core_launch(arrays: int, count: int) -> Case:
    """A burst of cuda.core's launch."""
    core = peer("cuda.core")
    if not hasattr(core, "Program"):
        core = peer("cuda.core.experimental")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    options = core.ProgramOptions(arch=f"sm_{''.join(str(part) for part in device.compute_capability)}")
    kernel = core.Program(raw_source("raw", arrays), "c++", options).compile("cubin").get_kernel("raw")
    buffers = [device.allocate(32, stream=stream) for _ in range(arrays)]
    given = (*([np.float32(2)] if arrays > 1 else []), *buffers)
    config = core.LaunchConfig(grid=1, block=8)
    return lambda: burst(lambda: core.launch(stream, config, kernel, *given), count, stream.sync)


def numba_launch(arrays: int, count: int) -> Case:
    """A burst of numba-cuda's launch."""
    importlib.import_module("aiodev._backends.cuda.compile.arrays")  # without which it needs an older NumPy
    cuda = peer("numba.cuda")
    names = [f"x{i}" for i in range(arrays)]
    given = ["a", *names] if arrays > 1 else names
    value = f"a * ({' + '.join(f'{n}[i]' for n in names[:-1])})" if arrays > 1 else "1.0"
    namespace: dict[str, Any] = {"cuda": cuda}
    exec(f"def raw({', '.join(given)}):\n    i = cuda.grid(1)\n    {names[-1]}[i] = {value}\n", namespace)
    kernel = cuda.jit(namespace["raw"])[1, 8]
    on = [cuda.to_device(np.ones(8, "f4")) for _ in names]
    passed = (*([np.float32(2)] if arrays > 1 else []), *on)
    return lambda: burst(lambda: kernel(*passed), count, cuda.synchronize)


def host_callback(stream: int, callback: Callable[[], object]) -> Callable[[], None]:
    """What has the driver call a Python function, through ctypes, when the stream has done what it was given."""
    library = ctypes.CDLL("libcuda.so.1")
    kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: callback())

    def enqueue() -> None:
        status = library.cuLaunchHostFunc(ctypes.c_void_p(stream), kept, None)
        if status:
            raise RuntimeError(f"cuLaunchHostFunc: {status}")

    return enqueue
