"""Factorisations on CUDA devices, by cuSOLVER where it is installed: what submits them, as :mod:`.lapack` does on the CPU.

The library is loaded when the first factorisation is asked for, and asked once, for each shape, which memory one needs: in a
thread, in stream order (:mod:`aiodev.kernels.cuda_libraries`). The workspace is an array of the stream's, free again for
what it is given next. cuSOLVER's functions may wait for the device, as those that finish on the host do, so threads of the
device call them (``may_wait``). There are a few handles, of which each call holds one until its work is done. A stack is a
call for each of its matrices; stacks of small ones are one call of other functions (:mod:`.batched`), of cuBLAS's too.

cuSOLVER has columns where arrays have rows: what lies in memory as ``A`` is ``A.T`` to it.

-   ``A = L @ L^H`` with the lower triangle is ``A.T = U^H @ U`` with the upper one.
-   The factors of ``A.T`` solve for ``A`` as those of a transpose; the inverse of ``A.T`` is, read by rows, that of ``A``.
-   ``A.T = U @ S @ V^H`` gives ``A = conj(V) @ S @ U.T``, where ``A.T`` has as many rows as columns or more, which it must;
    other matrices are transposed first, and so are those whose ``Q`` and ``R`` are wanted.
-   The eigenvectors of ``A.T`` are conjugates of those of ``A``.

What a function finds wrong with a matrix it writes to the device; the kernel that finishes the results reads it there, and
raises LinAlgError, which arrives as the cause of a KernelError, as on the CPU.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

import aiodev
from aiodev.kernels.cuda_libraries import PerDevice, address_of, find_file, submit
from aiodev.kernels.linalg import cublas
from aiodev.kernels.linalg.cofactors import cofactors_by_elimination, is_safe
from aiodev.kernels.tuning import SOLVER_HANDLES, SOLVER_SIZES

__all__ = [
    "BatchedRoutine",
    "Given",
    "Routine",
    "cholesky",
    "cofactors",
    "determinants",
    "eigenvalues",
    "find_library",
    "finish_cofactors",
    "invert",
    "qr",
    "signs_and_logarithms",
    "singular_values",
    "solve",
    "submit_routines",
    "svd",
]

DType = np.dtype[Any]

#: Of CUDA 13 and 12, and where wheels have them.
_NAMES = ("libcusolver.so.12", "libcusolver.so.11")
_WHEELS = ("nvidia/cu13/lib", "nvidia/cusolver/lib")
#: For each type: its cudaDataType, that of its real part, and what functions of it are called.
_TYPES = {
    np.dtype(code): entry
    for code, entry in {"f": (0, 0, "Sorgqr"), "d": (1, 1, "Dorgqr"), "F": (4, 0, "Cungqr"), "D": (5, 1, "Zungqr")}.items()
}
_LOWER, _UPPER = 0, 1  # cublasFillMode_t
_PLAIN, _TRANSPOSED = 0, 1  # cublasOperation_t
_NO_VECTORS, _VECTORS = 0, 1  # cusolverEigMode_t
_ALL, _SOME, _NONE = (ord(letter) for letter in "ASN")
_SET_STREAM, _SET_STREAM_OF_BLAS = "cusolverDnSetStream", "cublasSetStream_v2"
_WITHOUT_WORKSPACE = frozenset({"cusolverDnXgetrs"})
#: Bytes of an integer that a function may write on the host.
WORD = 8


class Given(enum.Enum):
    """What stands among the arguments of a function for what is known when it is called."""

    HANDLE, PARAMETERS, JACOBI, BLAS = range(4)  #: cuSOLVER's handle, its parameters, those of Jacobi's method, cuBLAS's handle
    WORK, WORK_BYTES, WORK_COUNT, HOST, HOST_BYTES = range(4, 9)  #: workspaces on the device and on the host
    FOUND, FOUND_TOO = 9, 10  #: where a function writes how large they are


class Routine(NamedTuple):
    """A function, and what it is called with once for each matrix.

    Attributes:
        name: the function.
        shape: what its workspace depends on: what the function that says how large that is takes, but for addresses, which
        are 0. words: what it takes before its workspace.
        info: where it writes what it finds wrong.
        itemsize: of elements, by which the workspace of functions with 32-bit interfaces is counted; else 0.
    """

    name: str
    shape: tuple[int, ...]
    words: tuple[Any, ...]
    info: range
    itemsize: int = 0

    @property
    def asked(self) -> tuple[Any, ...]:
        """The arguments of the function that says how large its workspace is; none where it has no workspace."""
        if self.name in _WITHOUT_WORKSPACE:
            return ()
        if self.itemsize:
            return Given.HANDLE, *self.shape, Given.FOUND
        return Given.HANDLE, Given.PARAMETERS, *self.shape, Given.FOUND, Given.FOUND_TOO

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Its own arguments."""
        if self.itemsize:
            return Given.HANDLE, *self.words, Given.WORK, Given.WORK_COUNT, self.info
        room = () if self.name in _WITHOUT_WORKSPACE else (Given.WORK, Given.WORK_BYTES, Given.HOST, Given.HOST_BYTES)
        return Given.HANDLE, Given.PARAMETERS, *self.words, *room, self.info


class BatchedRoutine(NamedTuple):
    """A function that is called once for a whole stack of matrices.

    Attributes:
        name: the function; cuBLAS's, if its name says so.
        arguments: its arguments.
        asked: those of the function that says how large its workspace is, counted by ``itemsize``; none where it has none.
        itemsize: of elements.
    """

    name: str
    arguments: tuple[Any, ...]
    asked: tuple[Any, ...] = ()
    itemsize: int = 1

    @property
    def shape(self) -> tuple[Any, ...]:
        """What its workspace depends on."""
        return self.asked


AnyRoutine = Routine | BatchedRoutine
#: What is created for each handle, when it is first needed, and by which function.
_CREATED = {
    Given.HANDLE: "cusolverDnCreate", Given.PARAMETERS: "cusolverDnCreateParams", Given.JACOBI: "cusolverDnCreateSyevjInfo",
    Given.BLAS: "cublasCreate_v2",
}  # fmt: skip


class _HostMemory(int):
    """The address of an array in host memory, which keeps it."""

    owner: np.ndarray[Any, Any]


class _Device:
    """A device's handles, and what is known of the libraries' functions."""

    def __init__(self, device: aiodev.Device, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._locks = np.zeros(SOLVER_HANDLES, np.int64)
        #: For each place among the locks, and one more for asking: handles, and what else calls need.
        self._handles = {given: np.zeros(SOLVER_HANDLES + 1, np.int64) for given in _CREATED}
        self._functions: dict[str, int] = {}
        self._sizes: dict[tuple[Any, ...], tuple[int, int]] = {}

    def knows(self, routines: Iterable[AnyRoutine]) -> bool:
        """Whether the functions are loaded, and their workspaces known."""
        return all((routine.name, routine.shape) in self._sizes for routine in routines)

    def prepare(self, routines: Iterable[AnyRoutine]) -> None:
        """Load what is needed, and ask how large workspaces are; in a thread that has the device's context."""
        with self._lock:
            if len(self._sizes) > SOLVER_SIZES:
                self._sizes.clear()
            for routine in routines:
                library = self._library_of(routine)
                self._functions[routine.name] = address_of(library, routine.name)
                self._create(library, [item for item in (*routine.arguments, *routine.asked) if isinstance(item, Given)])
                self._sizes[routine.name, routine.shape] = self._ask(library, routine)

    def _library_of(self, routine: AnyRoutine) -> ctypes.CDLL:
        is_blas = routine.name.startswith("cublas")
        set_stream = _SET_STREAM_OF_BLAS if is_blas else _SET_STREAM
        library = self._libraries.get(set_stream)
        if library is None:
            path = cublas.find_library() if is_blas else self._path
            assert path is not None  # else nobody asks for it
            library = ctypes.CDLL(path)
            self._functions[set_stream] = address_of(library, set_stream)
            self._libraries[set_stream] = library
        return library

    def _create(self, library: ctypes.CDLL, wanted: Iterable[Given]) -> None:
        for given in _CREATED.keys() & wanted:
            cells, name = self._handles[given], _CREATED[given]
            for place in range(SOLVER_HANDLES + 1):
                made = np.zeros(1, np.int64)  # which a call that fails may write to as well
                if not cells[place]:
                    self._check(name, getattr(library, name)(ctypes.c_void_p(made.ctypes.data)))
                    cells[place] = made[0]

    def _check(self, name: str, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"{self._path}: {name} returned {status}")

    def _ask(self, library: ctypes.CDLL, routine: AnyRoutine) -> tuple[int, int]:
        """Bytes of a function's workspace on the device, and on the host."""
        if not routine.asked:
            return 0, 0
        name = f"{routine.name}_bufferSize"
        sizes = np.zeros(2, np.int64)  # those with 32-bit interfaces write the lower half of one
        given: dict[Any, Any] = {kind: int(cells[-1]) for kind, cells in self._handles.items()}
        given |= {Given.FOUND: sizes.ctypes.data, Given.FOUND_TOO: sizes[1:].ctypes.data}
        words = [given.get(item, item) for item in routine.asked]
        self._check(name, getattr(library, name)(*map(ctypes.c_int64, words)))
        return int(sizes[0]) * (routine.itemsize or 1), int(sizes[1])

    def run(self, routines: Sequence[AnyRoutine], stream: aiodev.Stream) -> None:
        """Have them called on a stream, one after the other."""
        sizes = [self._sizes[routine.name, routine.shape] for routine in routines]
        with stream:
            workspace = aiodev.empty(max(1, *(device for device, _ in sizes)), "u1", stream.device)
        memory = np.empty(max(WORD, *(host for _, host in sizes)), np.uint8)
        host = _HostMemory(memory.ctypes.data)
        host.owner = memory
        given: dict[Any, Any] = {kind: cells[:SOLVER_HANDLES] for kind, cells in self._handles.items()}
        given |= {Given.WORK: workspace.address, Given.HOST: host}
        kinds = {Given.BLAS if routine.name.startswith("cublas") else Given.HANDLE for routine in routines}
        setters = {Given.HANDLE: _SET_STREAM, Given.BLAS: _SET_STREAM_OF_BLAS}
        calls: list[tuple[Any, ...]] = [(self._functions[setters[kind]], given[kind], None) for kind in kinds]
        for routine, (on_device, on_host) in zip(routines, sizes, strict=True):
            given |= {Given.WORK_BYTES: on_device, Given.WORK_COUNT: on_device // (routine.itemsize or 1)}
            given[Given.HOST_BYTES] = on_host
            words = (given[item] if isinstance(item, Given) else item for item in routine.arguments)
            calls.append((self._functions[routine.name], *words))
        stream.call_native(*calls, lock=self._locks, may_wait=True)
        workspace.record_stream(stream)  # passed as a number, so that what is submitted next may have it at once


_devices = PerDevice(_Device)


@functools.cache
def find_library() -> str | None:
    """The file of cuSOLVER, of CUDA 12 or later; None where there is none."""
    return find_file(_NAMES, _WHEELS)


def submit_routines(call: aiodev.Call, routines: Sequence[AnyRoutine], *arrays: aiodev.Array) -> None:
    library = find_library()
    assert library is not None  # else nobody comes here
    device = _devices.of(call.device, library)
    submit(
        call, device.knows(routines), functools.partial(device.run, routines), functools.partial(device.prepare, routines),
        arrays,
    )  # fmt: skip


def _each(x: aiodev.Array) -> range:
    """The addresses of the parts of an array without gaps along its first dimension."""
    count = x.shape[0]
    step = x.nbytes // count
    return range(x.address, x.address + count * step, step)


# Kernels that finish what the library has left, with an index for each element or each matrix. They write to all results of
# what they find wrong: so who reads one waits for them.


@aiodev.kernel(ndim=3, reads=("info",))
def keep_triangle(k: int, i: int, j: int, upper: bool, info: Any, out: Any) -> None:
    """Zeros in the triangle that is no factor's."""
    if info[k] != 0:
        raise LinAlgError("cholesky: a matrix is not positive definite")
    if i != j and (j > i) != upper:
        out[k, i, j] = 0


@aiodev.kernel(ndim=3)
def fill_identities(k: int, i: int, j: int, out: Any) -> None:
    """Identity matrices."""
    out[k, i, j] = 1 if i == j else 0


@aiodev.kernel(reads=("info",))
def check_inverse(k: int, info: Any, out: Any) -> None:
    """Whether a matrix had an inverse."""
    if info[k] != 0:
        out[k, 0, 0] = np.nan
        raise LinAlgError("inv: a matrix is singular")


@aiodev.kernel(ndim=3, reads=("info", "columns"))
def take_solution(k: int, i: int, j: int, info: Any, columns: Any, out: Any) -> None:
    """Solutions, which lie one after the other."""
    if info[k] != 0:
        raise LinAlgError("solve: argument x1: a matrix is singular")
    out[k, i, j] = columns[k, j, i]


def _logarithm(a: Any) -> float:
    """That of the absolute value of the product of a diagonal."""
    total = 0.0
    for i in range(a.shape[0]):
        total += math.log(abs(a[i, i]))
    return total


def _sign(a: Any, pivots: Any, one: Any) -> Any:
    """That of a determinant of factors whose rows were swapped."""
    for i in range(a.shape[0]):
        one *= a[i, i] / abs(a[i, i])
        if pivots[i] != i + 1:
            one = -one
    return one


@aiodev.kernel(reads=("factors", "pivots", "info"))
def take_determinant(k: int, factors: Any, pivots: Any, info: Any, out: Any) -> None:
    """The product of a diagonal; by logarithms, where it is beyond the type on the way."""
    a, total = factors[k], out.dtype.type(1)
    if info[k] != 0:
        out[k] = 0
        return
    for i in range(a.shape[0]):
        total *= a[i, i] if pivots[k, i] == i + 1 else -a[i, i]
    if not (0 < abs(total) < np.inf):
        total = _sign(a, pivots[k], out.dtype.type(1)) * out.dtype.type(math.exp(_logarithm(a)))
    out[k] = total


@aiodev.kernel(reads=("factors", "pivots", "info"))
def take_sign(k: int, factors: Any, pivots: Any, info: Any, signs: Any, sizes: Any) -> None:
    """The sign of a determinant, and the logarithm of its size."""
    if info[k] != 0:
        signs[k], sizes[k] = 0, -np.inf
    else:
        signs[k], sizes[k] = _sign(factors[k], pivots[k], signs.dtype.type(1)), _logarithm(factors[k])


@aiodev.kernel(reads=("x", "factors", "pivots", "info"))
def take_scale(
    k: int, least: Any, x: Any, factors: Any, pivots: Any, info: Any, order: Any, rest: Any, scales: Any
) -> None:
    """A determinant as two factors, neither beyond the type; 0 of a singular matrix, whose cofactors are put into ``rest``."""
    a, one = factors[k], scales.dtype.type(1)
    if info[k] != 0 or not is_safe(a, least):
        b = rest[k]
        for i in range(b.shape[0]):
            for j in range(b.shape[1]):
                a[i, j] = x[k, i, j]
        cofactors_by_elimination(a, order[k], b)
        scales[k, 0], scales[k, 1] = 0, 0
        return
    total, more = one, one
    for i in range(a.shape[0]):
        total *= a[i, i] if pivots[k, i] == i + 1 else -a[i, i]
    if abs(total) < least or abs(total) == np.inf or total != total:
        total, more = _sign(a, pivots[k], one), scales.dtype.type(math.exp(0.5 * _logarithm(a)))
        total *= more
    scales[k, 0], scales[k, 1] = total, more


@aiodev.kernel(ndim=3, reads=("scales", "inverses", "rest"))
def take_cofactors(k: int, i: int, j: int, scales: Any, inverses: Any, rest: Any, out: Any) -> None:
    """Inverses, transposed and scaled; where there is none what else was found."""
    out[k, i, j] = rest[k, i, j] if scales[k, 1] == 0 else inverses[k, j, i] * scales[k, 0] * scales[k, 1]


@aiodev.kernel(ndim=3, reads=("a",))
def take_upper(k: int, i: int, j: int, a: Any, r: Any) -> None:
    """The upper triangle of a QR factorisation, which lies by columns."""
    r[k, i, j] = a[k, j, i] if j >= i else 0


@aiodev.kernel(ndim=3, reads=("a",))
def take_reflectors(k: int, i: int, j: int, least: int, a: Any, q: Any) -> None:
    """What makes the orthonormal columns; room for those that it has nothing for."""
    q[k, i, j] = a[k, i, j] if i < least else 0


@aiodev.kernel(ndim=3, reads=("info", "columns"))
def take_columns(k: int, i: int, j: int, info: Any, columns: Any, q: Any, r: Any) -> None:
    """Orthonormal columns, which lie one after the other."""
    if info[k] != 0:
        r[k, 0, 0] = np.nan
        raise LinAlgError("qr: a matrix has no factors")
    q[k, i, j] = columns[k, j, i]


@aiodev.kernel(ndim=3, reads=("info", "columns"))
def take_eigenvectors(k: int, i: int, j: int, info: Any, columns: Any, values: Any, out: Any) -> None:
    """Eigenvectors, which lie one after the other, conjugated."""
    if info[k] != 0:
        values[k, 0] = np.nan
        raise LinAlgError("eigh: the eigenvalues of a matrix did not converge")
    out[k, i, j] = np.conj(columns[k, j, i])


@aiodev.kernel(reads=("info",))
def check_eigenvalues(k: int, info: Any, values: Any) -> None:
    """Raise LinAlgError if eigenvalues have not converged."""
    if info[k] != 0:
        values[k, 0] = np.nan
        raise LinAlgError("eigh: the eigenvalues of a matrix did not converge")


@aiodev.kernel(reads=("info",))
def check_singular_values(k: int, info: Any, s: Any) -> None:
    """Raise LinAlgError if singular values have not converged."""
    if info[k] != 0:
        s[k, 0] = np.nan
        raise LinAlgError("svdvals: the singular values of a matrix did not converge")


@aiodev.kernel(reads=("info",))
def check_svd(k: int, info: Any, s: Any, u: Any, vh: Any) -> None:
    """Raise LinAlgError if singular values and their vectors have not converged."""
    if info[k] != 0:
        s[k, 0] = u[k, 0, 0] = vh[k, 0, 0] = np.nan
        raise LinAlgError("svd: the singular values of a matrix did not converge")


# What submits them: stacks of matrices in, of one dtype of cuSOLVER's, and results without gaps


def _copied(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
    """The matrices in scratch memory, without gaps."""
    made = call.scratch(x.shape, x.dtype)
    made.copy_from(x)
    return made


def _flipped(x: aiodev.Array) -> aiodev.Array:
    return x.transpose(0, 2, 1)


def _info(call: aiodev.Call, x: aiodev.Array) -> aiodev.Array:
    return call.scratch(x.shape[0], np.int32)


def cholesky(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, upper: bool) -> None:
    """Factors of Hermitian matrices."""
    n, (kind, _, _), info = x.shape[1], _TYPES[x.dtype], _info(call, x)
    out.copy_from(x)
    fill = _LOWER if upper else _UPPER
    words = fill, n, kind, _each(out), n, kind
    submit_routines(call, [Routine("cusolverDnXpotrf", (fill, n, kind, 0, n, kind), words, _each(info))], out, info)
    call.launch(keep_triangle, out.shape, upper, info, out)


class _Factors(NamedTuple):
    """Of LU factorisations the function, and where factors, pivots and what is wrong are."""

    routine: Routine
    matrices: aiodev.Array
    pivots: aiodev.Array
    info: aiodev.Array

    @property
    def arrays(self) -> tuple[aiodev.Array, ...]:
        return self.matrices, self.pivots, self.info

    def solving(self, transposed: int, right: aiodev.Array) -> Routine:
        """What solves for right sides, which lie one after the other; it finds nothing wrong with matrices."""
        n, (kind, _, _), columns = self.matrices.shape[1], _TYPES[right.dtype], right.shape[1]
        words = transposed, n, columns, kind, _each(self.matrices), n, _each(self.pivots), kind, _each(right), n
        return Routine("cusolverDnXgetrs", (), words, _each(self.info[right.shape[0] :]))


def _factorise(call: aiodev.Call, x: aiodev.Array) -> _Factors:
    batch, n, (kind, _, _) = x.shape[0], x.shape[1], _TYPES[x.dtype]
    matrices, pivots = _copied(call, x), call.scratch((batch, n), np.int64)
    info = call.scratch(2 * batch, np.int32)  # behind those of the factors, those of what solves with them
    words = n, n, kind, _each(matrices), n, _each(pivots), kind
    routine = Routine("cusolverDnXgetrf", (n, n, kind, 0, n, kind), words, _each(info[:batch]))
    return _Factors(routine, matrices, pivots, info)


def invert(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Inverses."""
    factors = _factorise(call, x)
    call.launch(fill_identities, out.shape, out)
    submit_routines(call, [factors.routine, factors.solving(_PLAIN, out)], *factors.arrays, out)
    call.launch(check_inverse, x.shape[0], factors.info, out)


def solve(call: aiodev.Call, x: aiodev.Array, y: aiodev.Array, out: aiodev.Array) -> None:
    """Solutions of ``x @ out = y``, all three stacks of matrices."""
    factors, columns = _factorise(call, x), _copied(call, _flipped(y))
    submit_routines(call, [factors.routine, factors.solving(_TRANSPOSED, columns)], *factors.arrays, columns)
    call.launch(take_solution, out.shape, factors.info, columns, out)


def determinants(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Determinants."""
    if not x.size:
        call.launch(fill_identities, (out.size, 1, 1), out.reshape(out.size, 1, 1))
        return
    factors = _factorise(call, x)
    submit_routines(call, [factors.routine], *factors.arrays)
    call.launch(take_determinant, x.shape[0], *factors.arrays, out)


def cofactors(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array) -> None:
    """Cofactors."""
    factors, inverses = _factorise(call, x), call.scratch(x.shape, x.dtype)
    call.launch(fill_identities, inverses.shape, inverses)
    submit_routines(call, [factors.routine, factors.solving(_PLAIN, inverses)], *factors.arrays, inverses)
    finish_cofactors(call, x, factors.arrays, inverses, out)


def finish_cofactors(
    call: aiodev.Call, x: aiodev.Array, factors: Sequence[aiodev.Array], inverses: aiodev.Array, out: aiodev.Array
) -> None:
    """Cofactors from factors, pivots and what is wrong, and from inverses; one thread eliminates where there is no inverse."""
    batch, n, _ = x.shape
    least = x.dtype.type(np.finfo(x.dtype).tiny).real
    order, scales = call.scratch((batch, 2 * n), np.int64), call.scratch((batch, 2), x.dtype)
    rest = call.scratch(x.shape, x.dtype)
    call.launch(take_scale, batch, least, x, *factors, order, rest, scales)
    call.launch(take_cofactors, out.shape, scales, inverses, rest, out)


def signs_and_logarithms(call: aiodev.Call, x: aiodev.Array, signs: aiodev.Array, sizes: aiodev.Array) -> None:
    """Of determinants: signs, and logarithms of absolute values."""
    if not x.size:
        call.launch(fill_identities, (signs.size, 1, 1), signs.reshape(signs.size, 1, 1))
        sizes.copy_from(aiodev.zeros(sizes.shape, sizes.dtype, sizes.device))
        return
    factors = _factorise(call, x)
    submit_routines(call, [factors.routine], *factors.arrays)
    call.launch(take_sign, x.shape[0], *factors.arrays, signs, sizes)


def qr(call: aiodev.Call, x: aiodev.Array, q: aiodev.Array, r: aiodev.Array) -> None:
    """QR factors, as many columns of ``q`` as it has."""
    batch, rows, columns = x.shape
    least, width, (kind, _, name) = min(rows, columns), q.shape[2], _TYPES[x.dtype]
    if not least:
        call.launch(fill_identities, q.shape, q)
        return
    a, tau, info = _copied(call, _flipped(x)), call.scratch((batch, least), x.dtype), _info(call, x)
    made = call.scratch((batch, width, rows), x.dtype)
    shape = rows, columns, kind, 0, rows, kind, 0, kind
    words = rows, columns, kind, _each(a), rows, kind, _each(tau), kind
    submit_routines(call, [Routine("cusolverDnXgeqrf", shape, words, _each(info))], a, tau, info)
    call.launch(take_upper, r.shape, a, r)
    call.launch(take_reflectors, made.shape, least, a, made)
    given = rows, width, least, _each(made), rows, _each(tau)
    making = Routine(f"cusolverDn{name}", (rows, width, least, 0, rows, 0), given, _each(info), x.dtype.itemsize)
    submit_routines(call, [making], made, tau, info)
    call.launch(take_columns, q.shape, info, made, q, r)


def _svd(
    call: aiodev.Call, a: aiodev.Array, job: int, s: aiodev.Array, u: aiodev.Array | None, vh: aiodev.Array | None,
    info: aiodev.Array,
) -> None:  # fmt: skip
    """Of matrices that lie by columns, of which there are not more than rows; so do the vectors lie afterwards."""
    batch, n, m = a.shape
    kind, real, _ = _TYPES[a.dtype]
    shape = job, job, m, n, kind, 0, m, real, 0, kind, 0, m, kind, 0, n, kind
    left, right = (0 if x is None else _each(x) for x in (u, vh))
    words = job, job, m, n, kind, _each(a), m, real, _each(s), kind, left, m, kind, right, n, kind
    arrays = [x for x in (a, s, u, vh, info) if x is not None]
    submit_routines(call, [Routine("cusolverDnXgesvd", shape, words, _each(info))], *arrays)


def svd(call: aiodev.Call, x: aiodev.Array, u: aiodev.Array, s: aiodev.Array, vh: aiodev.Array) -> None:
    """Singular values and vectors, as many of these as ``u`` and ``vh`` have room for."""
    batch, rows, columns = x.shape
    least = min(rows, columns)
    if not least:
        for vectors in (u, vh):
            if vectors.size:
                call.launch(fill_identities, vectors.shape, vectors)
        return
    job, info = _ALL if u.shape[2] > least or vh.shape[1] > least else _SOME, _info(call, x)
    if columns >= rows:
        _svd(call, _copied(call, x), job, s, vh, u, info)
        call.launch(check_svd, batch, info, s, u, vh)
        return
    left, right = (call.scratch((batch, v.shape[2], v.shape[1]), x.dtype) for v in (u, vh))
    _svd(call, _copied(call, _flipped(x)), job, s, left, right, info)
    u.copy_from(_flipped(left))
    vh.copy_from(_flipped(right))
    call.launch(check_svd, batch, info, s, u, vh)


def singular_values(call: aiodev.Call, x: aiodev.Array, s: aiodev.Array) -> None:
    """Singular values."""
    info = _info(call, x)
    _svd(call, _copied(call, x if x.shape[2] >= x.shape[1] else _flipped(x)), _NONE, s, None, None, info)
    call.launch(check_singular_values, x.shape[0], info, s)


def eigenvalues(call: aiodev.Call, x: aiodev.Array, values: aiodev.Array, vectors: aiodev.Array | None) -> None:
    """Eigenvalues of Hermitian matrices, whose lower triangles are read, and their eigenvectors if those are given."""
    n, (kind, real, _), a, info = x.shape[1], _TYPES[x.dtype], _copied(call, x), _info(call, x)
    job = _NO_VECTORS if vectors is None else _VECTORS
    words = job, _UPPER, n, kind, _each(a), n, real, _each(values), kind
    routine = Routine("cusolverDnXsyevd", (job, _UPPER, n, kind, 0, n, real, 0, kind), words, _each(info))
    submit_routines(call, [routine], a, values, info)
    if vectors is None:
        call.launch(check_eigenvalues, x.shape[0], info, values)
    else:
        call.launch(take_eigenvectors, vectors.shape, info, a, values, vectors)
