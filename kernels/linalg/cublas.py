"""Matrix products on CUDA devices, by cuBLAS where it is installed.

The library is loaded, and a handle made for each device, when the first product is asked for: the stream waits for that, the
loop does not. A product of each type is tried then, since the first takes long; one of a kind that is new to cuBLAS still
loads code where it is submitted. A handle is shared by the device's streams: each product first sets the handle's stream and
workspace, under a lock. The workspace is an array of the stream's, free again for what it is given next. So cuBLAS allocates
nothing, and a product's bits do not depend on what runs beside it.

cuBLAS has columns where NumPy has rows, so that ``a @ b`` is asked for as the transpose of ``b.T @ a.T``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import warnings
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.cuda_libraries import PerDevice, address_of, find_file

__all__ = ["find_library", "multiply"]

#: For each type, by its name: its cudaDataType, and the cublasComputeType_t and factors of products. Types that are only stored
#: are summed in float32.
_TYPES = {
    name: (kind, compute, np.dtype(factor).type)
    for name, kind, compute, factor in [
        ("float16", 2, 68, "f"), ("bfloat16", 14, 68, "f"), ("float32", 0, 68, "f"), ("float64", 1, 70, "d"),
        ("complex64", 4, 68, "F"), ("complex128", 5, 70, "D"),
    ]
}  # fmt: skip
_ONES = {name: np.ones(1, factor) for name, (_, _, factor) in _TYPES.items()}
_ZEROS = {name: np.zeros(1, factor) for name, (_, _, factor) in _TYPES.items()}
_PLAIN, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
#: Of the versions that have 64-bit interfaces, the newest first; and where wheels have them.
_NAMES = ("libcublas.so.13", "libcublas.so.12")
_WHEELS = ("nvidia/cu13/lib", "nvidia/cublas/lib")

#: Words of a device's cells: the lock, the handle, and addresses of functions.
_LOCK, _HANDLE, _SET_STREAM, _SET_WORKSPACE, _PRODUCT, _CELLS = range(6)
_FUNCTIONS = {
    _SET_STREAM: "cublasSetStream_v2", _SET_WORKSPACE: "cublasSetWorkspace_v2", _PRODUCT: "cublasGemmStridedBatchedEx_64"
}  # fmt: skip
#: Bytes that cuBLAS's manual recommends, from compute capability 9.0 on and before.
_WORKSPACE, _SMALL_WORKSPACE = 32 << 20, 4 << 20


class _Device:
    """A device's handle, and the functions, which are there when ``loaded`` is done."""

    def __init__(self, device: aiodev.Device, library: str) -> None:
        cells = np.zeros(_CELLS, np.int64)
        self.cells = [cells[i : i + 1] for i in range(_CELLS)]
        self.failed = False
        modern = aiodev.get_device_capability(device) >= (9, 0)
        self.workspace = _WORKSPACE if modern else _SMALL_WORKSPACE
        self.loaded = aiodev.Stream(device).call(self._load, library, cells, device)

    def _load(self, path: str, cells: np.ndarray[Any, Any], device: aiodev.Device) -> None:
        try:
            library = ctypes.CDLL(path)
            status = library.cublasCreate_v2(ctypes.c_void_p(cells[_HANDLE:].ctypes.data))
            if status != 0:
                raise RuntimeError(f"{path}: cublasCreate returned {status}")
            for place, name in _FUNCTIONS.items():
                cells[place] = address_of(library, name)
            with contextlib.suppress(MemoryError):  # that it is tried is for speed alone
                self._try(library, int(cells[_HANDLE]), device)
        except BaseException as error:  # whatever it is, products have to do without
            self.failed = True
            warnings.warn(f"matrix products on CUDA will do without cuBLAS: {error}", RuntimeWarning, stacklevel=2)
            raise

    def _try(self, library: ctypes.CDLL, handle: int, device: aiodev.Device) -> None:
        """Multiply once in each type: the first product of a type takes cuBLAS some tens of milliseconds."""
        stream = aiodev.Stream(device)
        with stream:
            x = aiodev.zeros((2, 64, 64), "c16", device)
            workspace = aiodev.empty(self.workspace, "u1", device)
        stream.synchronize_blocking()

        def call(place: int, *words: int) -> None:
            status = getattr(library, _FUNCTIONS[place])(ctypes.c_int64(handle), *map(ctypes.c_int64, words))
            if status != 0:
                raise RuntimeError(f"{_FUNCTIONS[place]} returned {status}")

        call(_SET_STREAM, stream.__cuda_stream__()[1])
        call(_SET_WORKSPACE, workspace.address, self.workspace)
        for dtype, (kind, compute, _) in _TYPES.items():
            one, zero = (table[dtype].ctypes.data for table in (_ONES, _ZEROS))
            operand = (x[0].address, kind, 64, 0)
            result = (x[1].address, kind, 64, 64 * 64, 1, compute, _DEFAULT_ALGORITHM)
            call(_PRODUCT, _PLAIN, _PLAIN, 64, 64, 64, one, *operand, *operand, zero, *result)
        stream.copy(x[0], x[1])  # behind them, so that both arrays live until they are done
        workspace.record_stream(stream)


_devices = PerDevice(_Device)


def multiply(call: aiodev.Call, a: aiodev.Array, b: aiodev.Array, out: aiodev.Array) -> bool:
    """Submit ``a @ b`` into ``out``, stacks of matrices; False where there is no cuBLAS, or it has not these types or strides.

    A stack of one is multiplied with each of the others.
    """
    types, stream = _TYPES.get(out.dtype.name), call.stream
    library = find_library() if types is not None and aiodev.capabilities(stream.device).cuda_interfaces else None
    if types is None or library is None:
        return False
    device = _devices.of(stream.device, library)
    plan = None if device.failed else _plan(a, b, out)
    if plan is None:
        return False
    if not device.loaded.query():
        call.wait(device.loaded)
    (m, n, k), left, right, (result, ldc, step) = plan
    kind, compute, _ = types
    one, zero = (table[out.dtype.name].ctypes.data for table in (_ONES, _ZEROS))
    lock, handle, set_stream, set_workspace, product, *_ = device.cells
    workspace = _workspace(stream, device.workspace)
    stream.call_native(
        (set_stream, handle, None),
        (set_workspace, handle, workspace.address, device.workspace),
        (
            product, handle, left[1], right[1], m, n, k, one, left[0], kind, *left[2:], right[0], kind, *right[2:],
            zero, result, kind, ldc, step, out.shape[0], compute, _DEFAULT_ALGORITHM,
        ),
        lock=lock, reads=(left[0], right[0]),
    )  # fmt: skip
    workspace.record_stream(stream)  # passed as a number, so that the stream's next product may have it at once
    return True


def _workspace(stream: aiodev.Stream, nbytes: int) -> aiodev.Array:
    with stream:
        return aiodev.empty(nbytes, "u1", stream.device)


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


@functools.cache
def find_library() -> str | None:
    """The file of cuBLAS, of 12 or later; None where there is none."""
    return find_file(_NAMES, _WHEELS)
