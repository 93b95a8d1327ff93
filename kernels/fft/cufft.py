"""Transforms on CUDA devices, by cuFFT where it is installed.

A transform of some length, precision and number of rows is a *plan* of the library's. It is made when such a transform is asked
for first, in a thread, in stream order (:mod:`aiodev.kernels.cuda_libraries`), and kept; of many, those that were used last. A
plan is shared by the device's streams: each transform first sets the plan's stream and workspace, under its lock. The workspace
is an array of the stream's, free again for what it is given next. So cuFFT allocates nothing that counts.

It transforms rows of as many elements as a plan has, and multiplies with nothing. Kernels pad and cut rows before, where
that is needed, and multiply with the factor behind. It takes elements at a distance from each other where that is the same
for all rows.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.cuda_libraries import PerDevice, address_of, find_file, submit
from aiodev.kernels.fft.loops import FORWARD, HERMITIAN, INVERSE, REAL_EVEN, REAL_ODD
from aiodev.kernels.tuning import PLANS_KEPT

__all__ = ["find_library", "transform"]

#: Of CUDA 13 and 12, and where wheels have them.
_NAMES = ("libcufft.so.12", "libcufft.so.11")
_WHEELS = ("nvidia/cu13/lib", "nvidia/cufft/lib")
#: cufftType of transforms in single and in double precision, and the functions.
_TYPES = {
    FORWARD: ((0x29, "cufftExecC2C"), (0x69, "cufftExecZ2Z")),
    INVERSE: ((0x29, "cufftExecC2C"), (0x69, "cufftExecZ2Z")),
    REAL_EVEN: ((0x2A, "cufftExecR2C"), (0x6A, "cufftExecD2Z")),
    REAL_ODD: ((0x2A, "cufftExecR2C"), (0x6A, "cufftExecD2Z")),
    HERMITIAN: ((0x2C, "cufftExecC2R"), (0x6C, "cufftExecZ2D")),
}
_DIRECTIONS = {FORWARD: (-1,), INVERSE: (1,)}
_SET_STREAM, _SET_AREA = "cufftSetStream", "cufftSetWorkArea"


class _Shape(NamedTuple):
    """What a plan is for.

    Attributes:
        kind: cufftType.
        length: elements of a transform, the real ones where some are.
        rows: how many transforms.
        lengths: elements of a row, before and afterwards.
        apart: from one element to the next of its row, in elements; rows follow each other without gaps where that is 1, else
            elements of all rows do.
    """

    kind: int
    length: int
    rows: int
    lengths: tuple[int, int]
    apart: int


class _Plan:
    """A plan, which lives for as long as something refers to its cells: the table, an operation, a graph."""

    def __init__(self, nbytes: int, cells: np.ndarray[Any, Any]) -> None:
        self.nbytes = nbytes
        self.lock, self.handle = cells[:1], cells[1:]


class _Device:
    """The plans of a device."""

    def __init__(self, device: aiodev.Device, path: str) -> None:
        self._device, self._path = device, path
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None
        self._functions: dict[str, int] = {}
        self._plans: OrderedDict[_Shape, _Plan] = OrderedDict()

    def find(self, shape: _Shape) -> _Plan | None:
        """A plan that is there."""
        with self._lock:
            plan = self._plans.get(shape)
            if plan is not None:
                self._plans.move_to_end(shape)
            return plan

    def prepare(self, shape: _Shape, made: list[_Plan]) -> None:
        """Make a plan, in a thread that has the device's context; ``made`` gets it."""
        with _making:
            library = self._library = self._library or self._load()
            plan = self.find(shape) or self._make(library, shape)
            made.append(plan)
            with self._lock:
                self._plans[shape] = plan
                while len(self._plans) > PLANS_KEPT:
                    self._plans.popitem(last=False)

    def _load(self) -> ctypes.CDLL:
        library = ctypes.CDLL(self._path)
        names = {name for both in _TYPES.values() for _, name in both} | {_SET_STREAM, _SET_AREA}
        self._functions = {name: address_of(library, name) for name in names}
        return library

    def _make(self, library: ctypes.CDLL, shape: _Shape) -> _Plan:
        cells = np.zeros(2, np.int64)  # a lock, and the handle, which is an int
        numbers = np.array([shape.length, *shape.lengths, 0], np.int64)
        length, before, behind, nbytes = (ctypes.c_void_p(numbers[k:].ctypes.data) for k in range(4))
        self._check("cufftCreate", library.cufftCreate(ctypes.c_void_p(cells[1:].ctypes.data)))
        handle = ctypes.c_int(int(cells[1]))
        # The cells are what operations refer to.
        weakref.finalize(cells, _destroy, library, self._device, int(cells[1]), os.getpid()).atexit = False
        self._check("cufftSetAutoAllocation", library.cufftSetAutoAllocation(handle, 0))
        steps = [(shape.apart, n if shape.apart == 1 else 1) for n in shape.lengths]
        (stride, distance), (out_stride, out_distance) = (map(ctypes.c_longlong, step) for step in steps)
        status = library.cufftMakePlanMany64(
            handle, 1, length, before, stride, distance, behind, out_stride, out_distance, shape.kind,
            ctypes.c_longlong(shape.rows), nbytes,
        )  # fmt: skip
        self._check("cufftMakePlanMany64", status)
        return _Plan(int(numbers[3]), cells)

    def _check(self, name: str, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"{self._path}: {name} returned {status}")

    def run(
        self, found: Sequence[_Plan], name: str, direction: tuple[int, ...], x: aiodev.Array, out: aiodev.Array,
        stream: aiodev.Stream,
    ) -> None:  # fmt: skip
        """Have a plan transform on a stream."""
        (plan,) = found
        with stream:
            workspace = aiodev.empty(max(1, plan.nbytes), "u1", stream.device)
        stream.call_native(
            (self._functions[_SET_STREAM], plan.handle, None),
            (self._functions[_SET_AREA], plan.handle, workspace.address),
            (self._functions[name], plan.handle, x, out, *direction),
            lock=plan.lock,
            reads=() if x is out else (x,),
        )
        workspace.record_stream(stream)  # passed as a number, so that what is submitted next may have it at once


_making = threading.Lock()
_devices = PerDevice(_Device)


def _destroy(library: ctypes.CDLL, device: aiodev.Device, handle: int, process: int) -> None:
    """Give a plan back, in a thread, since that may wait for the device; a forked child has none."""
    if os.getpid() == process:
        aiodev.Stream(device).call(library.cufftDestroy, ctypes.c_int(handle))


@functools.cache
def find_library() -> str | None:
    """The file of cuFFT, of CUDA 12 or later; None where there is none."""
    return find_file(_NAMES, _WHEELS)


@aiodev.kernel(ndim=3, reads=("x",))
def pad_rows(i: int, j: int, k: int, x: Any, out: Any) -> None:
    """The first elements of a row, as many as are there, and zeros."""
    out[i, j, k] = x[i, j, k] if k < x.shape[2] else 0


@aiodev.kernel(ndim=3, reads=("x",))
def pad_halves(i: int, j: int, k: int, length: int, x: Any, out: Any) -> None:
    """The first elements of half a Hermitian row, and zeros; the first and the middle one count as real."""
    value = x[i, j, k] if k < x.shape[2] else x.dtype.type(0)
    out[i, j, k] = value.real if k == 0 or 2 * k == length else value


@aiodev.kernel(ndim=3, reads=("x",))
def scale_rows(i: int, j: int, k: int, factor: Any, x: Any, out: Any) -> None:
    """Elements times a factor; ``out`` may be ``x``."""
    out[i, j, k] = x[i, j, k] * factor


def transform(call: aiodev.Call, kind: int, x: aiodev.Array, out: aiodev.Array, factor: float) -> None:
    """Submit the transforms of the last of three dimensions, times ``factor``; the other two are of the same lengths.

    ``out`` may be ``x``. Elements are of one precision.
    """
    library = find_library()
    assert library is not None  # else nobody comes here
    double, real = (x.dtype.char in "dD"), np.dtype(np.float64 if x.dtype.char in "dD" else np.float32)
    outer, inner, behind = out.shape
    length = 2 * behind - (1 if kind == REAL_ODD else 2) if kind in (REAL_EVEN, REAL_ODD) else behind
    before = length // 2 + 1 if kind == HERMITIAN else length
    apart = inner if outer == 1 and x.shape == (1, inner, before) and _is_by_columns(x) and _is_by_columns(out) else 1
    rows, made = x, out
    if apart == 1 or kind == HERMITIAN:
        apart = 1
        if kind == HERMITIAN or x.shape[2] != before or not x.is_contiguous:
            rows = call.scratch((outer, inner, before), x.dtype)
            if kind == HERMITIAN:
                call.launch(pad_halves, rows.shape, length, x, rows)
            else:
                call.launch(pad_rows, rows.shape, x, rows)
        if not out.is_contiguous:
            made = call.scratch(out.shape, out.dtype)
    device = _devices.of(call.device, library)
    number, name = _TYPES[kind][double]
    shape = _Shape(number, length, outer * inner, (before, behind), apart)
    plan = device.find(shape)
    plans = [] if plan is None else [plan]
    work = functools.partial(device.run, plans, name, _DIRECTIONS.get(kind, ()), rows, made)
    submit(call, plan is not None, work, functools.partial(device.prepare, shape, plans), [made], [rows])
    if factor != 1 or made is not out:
        call.launch(scale_rows, out.shape, real.type(factor), made, out)


def _is_by_columns(x: aiodev.Array) -> bool:
    """Whether elements of one place of all rows follow each other, and those of the next place them."""
    return x.transpose(0, 2, 1).is_contiguous
