"""The stand-in driver (``standin.c``), built when it is needed, and a compiler whose images it can run."""

from __future__ import annotations

import atexit
import ctypes
import dis
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aiodev._backends.cpu.compile import kernel_code
from aiodev._backends.cpu.compile.excinfo import decode_error
from aiodev._backends.cpu.structs import Outcome
from aiodev._backends.cuda.compile.entry_source import parameters
from aiodev._backends.cuda.structs import FaultRecord, Parameters
from aiodev._backends.executor.arena import arena
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._core.errors import KernelError
from aiodev._native.compile import callback, inner
from aiodev._native.emit import emit
from aiodev._native.fields import Cell
from aiodev._native.intrinsics import call_entry, get, put
from aiodev._native.native_code import NativeCode

__all__ = ["StandIn", "StandInCompiler", "build"]

SOURCE = Path(__file__).with_name("standin.c")


@cache
def build() -> str | None:
    """File name of the library, or None where there is no compiler for C."""
    compiler = shutil.which(os.environ.get("CC", "")) or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = tempfile.TemporaryDirectory(prefix="aiodev-standin-")
    atexit.register(folder.cleanup)
    library = str(Path(folder.name) / "libcuda.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-pthread", "-o", library, str(SOURCE)], check=True)
    return library


class StandIn:
    """The controls of a stand-in that is loaded in this process."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)

    def inject(self, function: str, status: int, after: int = 0) -> None:
        """Have the next call of a function of the driver, or the one ``after`` that many, return ``status``."""
        self._library.standin_inject(function.encode(), status, after)

    def lose(self, status: int = 719) -> None:
        """Lose the context: every call returns ``status`` from now on; 0 brings it back for the next test."""
        self._library.standin_lose(status)

    def capture(self, on: bool, stream: int = 0) -> int:
        """Have another thread capture a graph, of ``stream``, or end it; how often a capture was invalidated so far."""
        self._library.standin_capture(int(on), ctypes.c_void_p(stream))
        return ctypes.c_long.in_dll(self._library, "standin_invalidated").value

    def waits(self, on: bool) -> None:
        """Have allocating, freeing, loading and first launches wait for the device, and all else for them, or for room."""
        self._library.standin_waits(int(on))

    def blocked(self) -> int:
        """How many submissions have had to wait for room in a channel so far."""
        return ctypes.c_long.in_dll(self._library, "standin_blocked").value

    def priority(self, stream: int) -> int:
        """The driver's number for a stream's priority; lower is more urgent."""
        return int(self._library.standin_priority(ctypes.c_void_p(stream)))

    def grid(self) -> tuple[int, ...]:
        """Of the last launch: blocks along x, y and z, then threads of a block."""
        return tuple((ctypes.c_uint * 6).in_dll(self._library, "standin_grid"))

    def latency(self, seconds: float) -> None:
        """Have each operation of a stream take longer."""
        self._library.standin_latency(ctypes.c_long(int(seconds * 1e9)))

    def give_lapack(self, file: str | None) -> None:
        """Have the stand-in for cuSOLVER factorise by the LAPACK of NumPy's OpenBLAS, which is in a file."""
        assert file is not None, "NumPy has no OpenBLAS"
        library = ctypes.CDLL(file)
        for place, routine in enumerate(("potrf", "getrf", "getrs", "geqrf", "ungqr", "heevd", "gesvd")):
            function = getattr(library, f"scipy_z{routine}_64_")
            self._library.standin_lapack(place, ctypes.cast(function, ctypes.c_void_p))

    def count(self, function: str) -> int:
        """How often a function of the driver was called."""
        self._library.standin_count.restype = ctypes.c_long
        return int(self._library.standin_count(function.encode()))


@inner
def divisor(a, b):
    """The greatest that both have in common."""
    while b != 0:
        a, b = b, a % b
    return a


@dataclass(frozen=True)
class _Image:
    cubin: bytes
    symbol: str
    exceptions: bool

    def explain(self, kernel: str, status: int) -> KernelError:
        return decode_error(status, kernel)


class StandInCompiler:
    """Makes host functions of kernels: the CPU's entry, behind what a CUDA kernel does about failures.

    A status is the address of numba's exception. A body counts as able to fail if it raises, divides or calls.
    """

    def load_image(self, spec: KernelSpec, directory: str, architecture: tuple[int, int]) -> _Image:
        """An image that the stand-in takes."""
        kept = tuple(option for option in spec.options if option[0] not in ("block", "grid", "team"))
        entry = kernel_code.load_kernel(spec._replace(options=kept), "")
        ndim = spec.ndim
        code = arena.allocate(64)
        ctypes.c_int64.from_address(code).value = entry
        order = code + 8

        def kernel(parameters: Parameters, nbytes: int, grid: int) -> None:
            record, value = FaultRecord(parameters.record), parameters.value
            if record.address != 0 and record.status.load() != 0:
                return
            size = 1
            for dimension in range(ndim):
                size *= parameters.arguments[dimension].value
            scratch = Outcome(parameters)  # the first two words have been read
            # One by one in another order each time, as threads may come; one that fails ends itself alone.
            put(order, get(order) * 6364136223846793005 + 1442695040888963407)
            chosen = (get(order) >> 17) & 0x3FFFFFFFFFFF
            step = chosen % size + 1 if size > 0 else 1
            while divisor(step, size) != 1:
                step += 1
            index = chosen % size if size > 0 else 0
            for _ in range(size):
                status = call_entry(get(code), scratch, parameters.arguments, index, index + 1)
                failed = status != 0 and status != 4294967294 and record.address != 0
                if failed and record.status.compare_exchange(0, scratch.excinfo):
                    host: Cell[int] = Cell(record.host)
                    host[1].value = value
                    host[0].value = scratch.excinfo
                index = (index + step) % size

        function = callback(kernel)
        address = NativeCode(emit("standin", [function])).address(function)
        words = parameters(ndim, parse_arguments(ndim, spec.arguments))
        image = b"STANDIN\0" + struct.pack("<QQ", address, 16 + 8 * len(words))
        return _Image(image, f"aiodev_{spec.name}", _may_fail(spec))


def _may_fail(spec: KernelSpec) -> bool:
    if spec.options:
        return True
    found = list(dis.get_instructions(spec.function))
    return any(i.opname in ("RAISE_VARARGS", "CALL") or i.argrepr in ("//", "%", "//=", "%=") for i in found)
