"""The BLAS and the LAPACK that the CPU's matrix kernels call: a private copy of the OpenBLAS that NumPy has loaded.

A copy, because what matters is a setting of the whole library: its threads. The executor's workers share a product among
themselves, so that it keeps to its device's cores and its stream's priority, and then each call must stay on the thread that
makes it. NumPy's own callers keep their setting, as theirs is another instance; and its threads, which could be replaced
(``openblas_set_threads_callback_function``): they spin for 25 ms after a product, in the way of our workers, but they are the
program's, which can have them sleep sooner by ``OPENBLAS_THREAD_TIMEOUT``. The copy is loaded from a file without a name,
with the GIL released, when the first product is asked for; the stream waits for it, the loop does not.

Kernels get the functions' addresses from an array, at run time: compiled code is kept on disk and must not contain them.
Where there is no OpenBLAS they find zeros there, and compute by themselves. LAPACK's functions are then looked for in what
NumPy's own linear algebra is linked to: another library's, which is called as it is, with whatever threads it has.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aiodev

__all__ = ["GEMM", "GEMV", "LAPACK", "NO", "ONE", "TRANSPOSED", "WIDTH", "WORDS", "ZERO", "functions", "library_name",
           "process_table"]  # fmt: skip

#: Places in the table of addresses: a function for each of s, d, c, z; constants, of 16 bytes each; LAPACK's functions, each
#: for s, d, c, z; and the bytes of its integers.
GEMM, GEMV, ONE, ZERO = 0, 4, 8, 12
_ROUTINES = ("potrf", "getrf", "getrs", "getri", "gelqf", "orglq", "gesdd", "syevd")
LAPACK = {name: 14 + 4 * place for place, name in enumerate(_ROUTINES)}
WIDTH = 14 + 4 * len(_ROUTINES)
WORDS = WIDTH + 1
#: CBLAS's words for an operand as it is, and transposed; and for rows that are contiguous.
NO, TRANSPOSED = 111, 112

_CODES = "sdcz"
#: Names of the functions in the builds that are about, those of NumPy's wheels first. Integers of 8 bytes are passed to all:
#: a callee that takes 4 reads their lower half.
_SPELLINGS = ("scipy_cblas_{}64_", "cblas_{}64_", "scipy_cblas_{}", "cblas_{}")
#: LAPACK's, in Fortran's way, and the bytes of their integers; what those of complex matrices are called, where that differs.
_FORTRAN = (("scipy_{}_64_", 8), ("{}_64_", 8), ("scipy_{}_", 4), ("{}_", 4))
_COMPLEX = {"orglq": "unglq", "syevd": "heevd"}
_SETTINGS = ("scipy_openblas_{}64_", "openblas_{}64_", "scipy_openblas_{}", "openblas_{}")

_tables: dict[aiodev.Device, tuple[aiodev.Array, aiodev.Completion[None]]] = {}
_loaded: list[np.ndarray[Any, Any]] = []
_libraries: list[ctypes.CDLL] = []  # for as long as the process lives: queues hold addresses
_lock = threading.Lock()


def functions(device: aiodev.Device) -> tuple[aiodev.Array, aiodev.Completion[None]]:
    """The table of addresses on a CPU device, and what to wait for before it is read. Waits for nothing itself."""
    known = _tables.get(device)
    if known is None:
        host = np.zeros(WORDS, np.uint64)
        stream = aiodev.Stream(device)
        with stream:
            table = aiodev.empty(WORDS, np.uint64, device)
            stream.call(_fill, host)
            known = _tables[device] = table, table.copy_from(host)  # reads ``host`` in stream order
    return known


def process_table(device: aiodev.Device) -> tuple[aiodev.Array, aiodev.Completion[None] | None]:
    """The table, for graphs that were saved by another process, where the addresses are others."""
    return functions(device)


def library_name() -> str | None:
    """The file that NumPy has its OpenBLAS from; None where it has none."""
    return next(map(str, _mapped()), None)


def _fill(host: np.ndarray[Any, Any]) -> None:
    with _lock:
        if not _loaded:
            _loaded.append(_table(_load()))
    host[:] = _loaded[0]


def _table(library: ctypes.CDLL | None) -> np.ndarray[Any, Any]:
    table = np.zeros(WORDS, np.uint64)
    table[ONE : ONE + 2] = np.array([1, 0, 0, 0], np.float32).view(np.uint64)
    table[ONE + 2 : ZERO] = np.array([1, 0], np.float64).view(np.uint64)
    if library is not None:
        for place, name in ((GEMM, "gemm"), (GEMV, "gemv")):
            table[place : place + 4] = [_address(library, f"{code}{name}") for code in _CODES]
    if library is None or not _fill_lapack(table, library):
        linked = _linked()
        if linked is not None:
            _fill_lapack(table, linked)
    return table


def _fill_lapack(table: np.ndarray[Any, Any], library: ctypes.CDLL) -> bool:
    """Enter the functions of a LAPACK, all or none: whether the library has them."""
    for spelling, width in _FORTRAN:
        for name, place in LAPACK.items():
            names = [code + (_COMPLEX.get(name, name) if code in "cz" else name) for code in _CODES]
            symbols = [getattr(library, spelling.format(own), None) for own in names]
            if None in symbols:
                table[LAPACK["potrf"] : WIDTH] = 0
                break
            table[place : place + 4] = [_value(function) for function in symbols]
        else:
            table[WIDTH] = width
            return True
    return False


def _linked() -> ctypes.CDLL | None:
    """NumPy's linear algebra, whose symbols are those of the libraries that it is linked to, too."""
    spec = importlib.util.find_spec("numpy.linalg._umath_linalg")
    try:
        return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)
    except OSError:
        return None


def _mapped() -> list[Path]:
    """Files of OpenBLAS that this process has loaded, NumPy's first."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {"/" + line.partition("/")[2] for line in lines if "openblas" in line.rpartition("/")[2].lower()}
    return [Path(path) for path in sorted(paths, key=lambda path: ("numpy" not in path, path))]


def _load() -> ctypes.CDLL | None:
    """A private copy that stays on its caller's thread; None where there is no OpenBLAS, or no way to copy it."""
    for path in _mapped():
        copied = _load_copy(path)
        limit = None if copied is None else _function(copied, _SETTINGS, "set_num_threads")
        if copied is None or limit is None or not _address(copied, "sgemm"):
            continue
        limit(1)
        shutdown = getattr(copied, "blas_thread_shutdown_", None)
        if shutdown is not None:  # its threads would sleep for ever
            shutdown()
        _libraries.append(copied)
        return copied
    return None


def _load_copy(path: Path) -> ctypes.CDLL | None:
    """Load a copy of a library; for the file itself the loader would give the one that is there."""
    loader: Any = ctypes.CDLL(None)
    loader.dlopen.restype = ctypes.c_void_p
    for descriptor in _files():
        try:
            with open(path, "rb") as source:
                left = os.fstat(source.fileno()).st_size
                while left > 0:
                    left -= os.sendfile(descriptor, source.fileno(), None, left)
            place = f"/proc/self/fd/{descriptor}".encode()
            handle = loader.dlopen(place, os.RTLD_NOW | os.RTLD_LOCAL)  # called by ctypes, so without the GIL
            if handle:
                return ctypes.CDLL(str(path), handle=handle)
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return None


def _files() -> Iterator[int]:
    """Files without a name to copy to: in memory, or where code in memory's files may not run, on disk."""
    import tempfile  # costly to import, and hardly ever needed

    if hasattr(os, "memfd_create"):
        yield os.memfd_create("aiodev-openblas")
    with tempfile.TemporaryFile() as file:
        yield os.dup(file.fileno())


def _function(library: ctypes.CDLL, spellings: tuple[str, ...], name: str) -> Any:
    return next((f for spelling in spellings if (f := getattr(library, spelling.format(name), None))), None)


def _address(library: ctypes.CDLL, name: str) -> int:
    function = _function(library, _SPELLINGS, name)
    return 0 if function is None else _value(function)


def _value(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@aiodev.in_child
def _forget() -> None:
    """Make tables anew in a forked child, where the devices start afresh; the library is there."""
    global _lock
    _lock = threading.Lock()
    _tables.clear()
