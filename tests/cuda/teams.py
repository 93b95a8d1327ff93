"""A device whose teams run on numba's CUDA simulator: the library's functions, launches and all, next to NumPy.

Import it first, in a process of its own with ``NUMBA_ENABLE_CUDASIM=1``: it replaces the team's part of ``aiodev.lang`` by the
simulator's, and can make teams smaller, since each of their threads is a Python thread. Bodies for teams are run as they are,
in the loops of the generated entry; other kernels are compiled for the CPU. Memory that a team shares is garbage at first. The
simulator's threads look in turn who is at a barrier; ours wait for the last one, and fail if one of them leaves instead.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.simulator import kernel as simulator

import aiodev
from aiodev import lang
from aiodev._backends.cuda.compile.entry_source import entry_source, parameters
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.kernel_arguments import KernelArgument
from aiodev._kernel.compile.service import service
from aiodev.testing import SimulatedBackend

__all__ = ["start"]

#: Blocks of a grid: few, so that teams go on to their next index.
_GRID = 2
_jit = cuda.jit  # while a kernel runs, the simulator has another module in place of ``cuda``

warnings.simplefilter("ignore")  # NumPy's of overflow, which is meant


class _Meeting:
    """A barrier that every thread of a block comes by, or none."""

    def __init__(self, threads: int) -> None:
        self._threads, self._waiting, self._passed, self._left = threads, 0, 0, 0
        self._changed = threading.Condition()

    def wait(self) -> None:
        with self._changed:
            before = self._passed
            self._waiting += 1
            if self._waiting == self._threads:
                self._waiting, self._passed = 0, before + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._passed != before or self._left)
            if self._passed == before:
                raise RuntimeError("a thread of the team has left, and will not come to this barrier")

    def leave(self) -> None:
        with self._changed:
            self._left += 1
            self._changed.notify_all()


class _Block(simulator.BlockManager):
    """The threads of one block."""

    def run(self, grid_point: Any, *args: Any) -> None:
        self.meeting = _Meeting(int(np.prod(self._block_dim)))

        def run_thread() -> None:
            try:
                self._f(*args)
            finally:
                self.meeting.leave()

        points = np.ndindex(*self._block_dim)
        threads = [simulator.BlockThread(run_thread, self, grid_point, point, False) for point in points]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for thread in threads:
            if thread.exception:
                raise thread.exception[0].with_traceback(thread.exception[1])


simulator.BlockManager = _Block
simulator.BlockThread.syncthreads = lambda thread: thread._manager.meeting.wait()


def _team_array(size: int, dtype: Any) -> Any:
    """One array for each place in the source and each block."""
    caller = sys._getframe(1)
    manager: Any = threading.current_thread()._manager
    place = caller.f_code, caller.f_lasti
    made = np.frombuffer(b"\xa7" * (size * np.dtype(dtype).itemsize), dtype).copy()
    return vars(manager).setdefault("shared", {}).setdefault(place, made)


def _on_device(function: Any) -> Any:
    return _jit(device=True)(function)


class _Teams(SimulatedBackend):
    """The simulated device under CUDA's name."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(thread_blocks=True)

    def load_cached(self, entry: int, spec: KernelSpec, directory: str) -> bool:
        if ("team", True) not in spec.options:
            return super().load_cached(entry, spec, directory)
        self.load_into(entry, spec, directory)
        return True

    def load_into(self, entry: int, spec: KernelSpec, directory: str) -> None:
        if ("team", True) not in spec.options:
            super().load_into(entry, spec, directory)
            return
        arguments = spec.parse_arguments()
        names: dict[str, Any] = {
            "body": _on_device(spec.function),
            "array_of": lambda kind, data, words: data,
            "scalar_of": lambda kind, words: words[0],
            "advance": lambda index, step: index + step,
            "barrier": _on_device(lambda: cuda.syncthreads()),
            "block_x": _on_device(lambda: cuda.blockIdx.x),
            "blocks_x": _on_device(lambda: cuda.gridDim.x),
            **{f"T{position}": None for position in range(len(arguments))},
        }
        exec(entry_source("entry", spec.ndim, arguments, team=True), names)
        simulated, block = _jit(names["entry"]), dict(spec.options)["block"]

        def run(given: bytes, lo: int, hi: int) -> None:
            if lo > 0:  # a part for another worker; the first does all
                return
            words: list[Any] = list(struct.unpack(f"<{len(given) // 8}q", given))
            values = [0] * len(parameters(spec.ndim, arguments))
            values[: spec.ndim] = words[: spec.ndim]
            for argument in arguments:
                values[argument.offset // 8] = _value(argument, words[argument.offset // 8 :], given)
            simulated[min(_GRID, max(1, words[0])), block](*values)

        self._fill(entry, spec, run)


def _value(argument: KernelArgument, words: list[int], given: bytes) -> Any:
    dtype = np.dtype(argument.dtype)
    if not argument.is_array:
        return np.frombuffer(given, dtype, 1, argument.offset)[0]
    shape, strides = words[1 : 1 + argument.ndim], words[1 + argument.ndim : argument.words]
    found = np.ndarray(shape, dtype, (ctypes.c_char * (1 << 40)).from_address(words[0]), 0, strides or None)
    return found


def start(team_bits: int = 8, piece: int | None = None) -> Any:
    """Have ``cuda`` be the simulated device, with teams of ``1 << team_bits`` threads; returns ``aiodev.kernels``.

    With ``piece`` rows are cut into pieces of as many elements as that, and into more than a launch's few teams need.
    """
    lang.team_rank = _on_device(lambda: cuda.threadIdx.x)
    lang.team_size = _on_device(lambda: cuda.blockDim.x)
    lang.team_barrier = _on_device(lambda: cuda.syncthreads())
    lang.team_array = _team_array
    package = types.ModuleType("aiodev.kernels")
    package.__path__ = [str(Path(aiodev.__file__).parent / "kernels")]
    sys.modules["aiodev.kernels"] = package
    teams: Any = importlib.import_module("aiodev.kernels.thread_block")
    teams.TEAM_BITS, teams.TEAM = team_bits, 1 << team_bits
    if piece is not None:
        teams.TEAM_PIECE, teams.TEAMS = piece, 16
    del sys.modules["aiodev.kernels"]
    service.load = service._finish
    aiodev.register_backend("cuda", _Teams)
    return importlib.import_module("aiodev.kernels")
