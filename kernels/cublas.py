"""Matrix products on CUDA devices, by cuBLAS where it is installed.

The library is found without loading it: among those that the process has loaded, in NVIDIA's wheels, and where toolkits are
installed. It is loaded, and a handle made for each device, when the first product is asked for: the stream waits for that, the
loop does not. A handle is shared by the device's streams: each product first sets the handle's stream, under a lock. cuBLAS
then takes a workspace of its own for each stream, and one product's bits may depend on what runs beside it.

cuBLAS has columns where NumPy has rows, so that ``a @ b`` is asked for as the transpose of ``b.T @ a.T``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aiodev

__all__ = ["find_library", "multiply"]

#: For each type: its cudaDataType, and the cublasComputeType_t and factors of products. float16 is summed in float32.
_TYPES = {
    np.dtype(code): (kind, compute, np.dtype(factor).type)
    for code, kind, compute, factor in [
        ("e", 2, 68, "f"), ("f", 0, 68, "f"), ("d", 1, 70, "d"), ("F", 4, 68, "F"), ("D", 5, 70, "D")
    ]
}  # fmt: skip
_ONES = {dtype: np.ones(1, factor) for dtype, (_, _, factor) in _TYPES.items()}
_ZEROS = {dtype: np.zeros(1, factor) for dtype, (_, _, factor) in _TYPES.items()}
_PLAIN, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
#: Of the versions that have 64-bit interfaces, the newest first.
_NAMES = ("libcublas.so.13", "libcublas.so.12")
#: In a folder of sys.path, in the toolkit's, or in the system's.
_IN_WHEELS = ("nvidia/cu13/lib", "nvidia/cublas/lib")
_IN_TOOLKITS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_IN_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")

#: Words of a device's cells: the lock, the handle, and addresses of functions.
_LOCK, _HANDLE, _SET_STREAM, _PRODUCT = range(4)


class _Device:
    """A device's handle, and the functions, which are there when ``loaded`` is done."""

    def __init__(self, device: aiodev.Device, library: str) -> None:
        cells = np.zeros(4, np.int64)
        self.cells = [cells[i : i + 1] for i in range(4)]
        self.failed = False
        self.loaded = aiodev.Stream(device).call(self._load, library, cells)

    def _load(self, path: str, cells: np.ndarray[Any, Any]) -> None:
        try:
            library = ctypes.CDLL(path)
            status = library.cublasCreate_v2(ctypes.c_void_p(cells[_HANDLE:].ctypes.data))
            if status != 0:
                raise RuntimeError(f"{path}: cublasCreate returned {status}")
            for place, name in ((_SET_STREAM, "cublasSetStream_v2"), (_PRODUCT, "cublasGemmStridedBatchedEx_64")):
                cells[place] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except BaseException as error:  # whatever it is, products have to do without
            self.failed = True
            warnings.warn(f"matrix products on CUDA will do without cuBLAS: {error}", RuntimeWarning, stacklevel=2)
            raise


_devices: dict[aiodev.Device, _Device] = {}
_lock = threading.Lock()


def multiply(stream: aiodev.Stream, a: aiodev.Array, b: aiodev.Array, out: aiodev.Array) -> bool:
    """Submit ``a @ b`` into ``out``, stacks of matrices; False where there is no cuBLAS, or it has not these types or strides.

    A stack of one is multiplied with each of the others.
    """
    found = _TYPES.get(out.dtype)
    library = find_library() if found is not None and stream.device.type == "cuda" else None
    if found is None or library is None:
        return False
    device = _device(stream.device, library)
    plan = None if device.failed else _plan(a, b, out)
    if plan is None:
        return False
    if not device.loaded.query():
        stream.wait(device.loaded)
    (m, n, k), left, right, (result, ldc, step) = plan
    kind, compute, _ = found
    one, zero = (table[out.dtype].ctypes.data for table in (_ONES, _ZEROS))
    lock, handle, set_stream, product = device.cells
    stream.call_native(
        (set_stream, handle, None),
        (
            product, handle, left[1], right[1], m, n, k, one, left[0], kind, *left[2:], right[0], kind, *right[2:],
            zero, result, kind, ldc, step, out.shape[0], compute, _DEFAULT_ALGORITHM,
        ),
        lock=lock,
    )  # fmt: skip
    return True


def _plan(a: aiodev.Array, b: aiodev.Array, out: aiodev.Array) -> tuple[Any, ...] | None:
    """Sizes and operands as cuBLAS takes them, by columns: (array, flag, distance of columns, distance of matrices)."""
    distance = _leading(out)
    if distance is None:  # by columns, as cuBLAS has them: the other way round
        swapped = _transposed(out)
        distance = _leading(swapped)
        a, b, out = _transposed(b), _transposed(a), swapped
    operands = [_operand(x) for x in (b, a)]
    if distance is None or None in operands:
        return None
    _, rows, columns = out.shape
    step = out.strides[0] // out.dtype.itemsize
    return (columns, rows, a.shape[2]), *operands, (out, distance, step)


def _operand(x: aiodev.Array) -> tuple[Any, ...] | None:
    flag, distance = _PLAIN, _leading(x)
    if distance is None:
        flag, distance = _TRANSPOSED, _leading(_transposed(x))
    step = x.strides[0] // x.dtype.itemsize if x.shape[0] > 1 else 0
    return None if distance is None else (x, flag, distance, step)


def _leading(x: aiodev.Array) -> int | None:
    """The distance of rows in elements, if they are contiguous and do not overlap; else None."""
    size, (_, rows, columns), (_, down, across) = x.dtype.itemsize, x.shape, x.strides
    if columns > 1 and across != size:
        return None
    if rows <= 1:
        return max(1, columns)
    return down // size if down % size == 0 and down >= size * max(1, columns) else None


def _transposed(x: aiodev.Array) -> aiodev.Array:
    return x.transpose(0, 2, 1)


def _device(device: aiodev.Device, library: str) -> _Device:
    found = _devices.get(device)
    if found is None:
        with _lock:
            found = _devices.get(device) or _devices.setdefault(device, _Device(device, library))
    return found


@functools.cache
def find_library() -> str | None:
    """The file of cuBLAS, of 12 or later; None where there is none."""
    return next((str(path) for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        lines = []
    loaded = {"/" + line.partition("/")[2] for line in lines if "/libcublas.so" in line}
    yield from (Path(path) for path in sorted(loaded) if Path(path).name.startswith(_NAMES))
    toolkits = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [Path(entry, place) for place in _IN_WHEELS for entry in sys.path if entry]
    folders += [Path(toolkit, place) for toolkit in (*toolkits, "/usr/local/cuda") for place in _IN_TOOLKITS]
    folders += [Path(folder) for folder in _IN_SYSTEM]
    yield from (folder / name for name in _NAMES for folder in folders)


def _forget() -> None:
    """A forked child has no device, hence no handle."""
    global _lock
    _lock = threading.Lock()
    _devices.clear()


os.register_at_fork(after_in_child=_forget)
