"""Products of small matrices: :func:`aiodev.lang.matmul` in compiled code keeps a tile of the result in registers.

**Problem.** From the loops of a product the compiler makes vectors of columns, but their sums go to memory and back for each
step of the inner dimension: the processor loads and stores more than it multiplies.

**Solution.** Tiles of :data:`_ROWS` rows by some vectors of columns, whose sums stay in registers from the first step to the
last. A step loads those vectors of ``b`` once, and one element of each row of ``a``. Rows that are left over are tiles of one;
of columns the last vector is computed, some of it for the second time. Every element is a chain of fused multiplications and
additions in the order of the inner dimension, whichever tile it is in.

Factors of 16 bits become ``float32`` as they are loaded, which is exact: a vector of them is half as long in memory, and what
counts where a matrix is read once is how long it is there.
"""

# What numba calls, and compiles, is its to type.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import platform
from collections.abc import Callable, Container
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload, register_jitable
from numba.np.arrayobj import make_array
from numba.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.compile.stored import FORMATS, SINGLES, is_stored
from aiodev._native.machine import host_features

__all__ = ["check_product", "install_products", "make_product_loop"]

#: Bytes of a vector. LLVM makes of it what the processor has.
_BYTES = 64
#: Rows of a tile, and vectors of its columns, the widest tiles first. Of 32 registers of 64 bytes they take sixteen, of 16
#: registers of 32 bytes eight.
_ROWS, _VECTORS, _VECTORS_512 = 4, (1,), (4, 2, 1)
_WORD = ir.IntType(64)


class _Matrix:
    """Where the elements of a matrix are, and what they are as numbers of the result's type."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any, number: Any) -> None:
        view = make_array(kind)(context, builder, value)
        self._kind, self._number, self._context = kind.dtype, number, context
        self._builder, self._first = builder, builder.ptrtoint(view.data, _WORD)
        self.rows, self.columns = cgutils.unpack_tuple(builder, view.shape, 2)
        self._down, self._across = cgutils.unpack_tuple(builder, view.strides, 2)

    def place(self, row: Any, column: Any, lanes: int = 1, vector: int = 0) -> Any:
        """The place of an element, or of the first of ``lanes``, so many ``vector`` of which lie in between."""
        builder, data = self._builder, self._context.get_data_type(self._kind)
        at = builder.add(builder.mul(row, self._down), builder.mul(column, self._across))
        at = builder.add(builder.add(self._first, at), _WORD(vector * lanes * self.size))
        return builder.inttoptr(at, (data if lanes == 1 else ir.VectorType(data, lanes)).as_pointer())

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return int(self._kind.bitwidth) // 8

    def load(self, row: Any, column: Any, lanes: int = 1, vector: int = 0) -> Any:
        """What is there, one number or a vector."""
        place = self.place(row, column, lanes, vector)
        data = self._builder.load(place, align=self.size)
        if self._kind == self._number:
            return data
        if is_stored(self._kind):
            return FORMATS[self._kind.name].load(self._builder, data)
        single = self._context.get_value_type(self._number)
        return self._builder.fpext(data, single if lanes == 1 else ir.VectorType(single, lanes))


def _write_tile(
    builder: Any, a: _Matrix, b: _Matrix, out: _Matrix, top: Any, left: Any, number: Any, rows: int, vectors: int, lanes: int
) -> None:
    """Compute a tile of so many rows and so many vectors of ``lanes`` numbers."""
    vector = number if lanes == 1 else ir.VectorType(number, lanes)
    name = f"llvm.fma.{'' if lanes == 1 else f'v{lanes}'}f{8 * out.size}"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(vectors)] for _ in range(rows)]
    for own in (one for row in sums for one in row):
        builder.store(vector(None if lanes > 1 else 0.0), own)
    with cgutils.for_range(builder, a.columns) as loop:
        columns = [b.load(loop.index, left, lanes, v) for v in range(vectors)]
        for r, own in enumerate(sums):
            factor = a.load(builder.add(top, _WORD(r)), loop.index)
            if lanes > 1:
                once = builder.insert_element(vector(ir.Undefined), factor, ir.IntType(32)(0))
                factor = builder.shuffle_vector(once, once, ir.VectorType(ir.IntType(32), lanes)(None))
            for total, column in zip(own, columns, strict=True):
                builder.store(builder.call(fma, [factor, column, builder.load(total)]), total)
    for r, own in enumerate(sums):
        for v, total in enumerate(own):
            builder.store(builder.load(total), out.place(builder.add(top, _WORD(r)), left, lanes, v), align=out.size)


@intrinsic
def _multiply(typing_context, a, b, out):
    """The product of matrices of floats; rows of ``b`` and of ``out`` have no gaps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y, z = (_Matrix(context, builder, kind, value, out.dtype) for kind, value in zip((a, b, out), args, strict=True))
        number = context.get_data_type(out.dtype)
        lanes = _BYTES // z.size
        fours = builder.and_(z.rows, _WORD(-_ROWS))

        def write_tiles(left: Any, right: Any, vectors: int, wide: int, last: Any = None) -> None:
            """Tiles of all rows, side by side, none of which begins behind ``last``."""
            with cgutils.for_range_slice(builder, left, right, _WORD(vectors * wide)) as (at, _):
                column = at if last is None else builder.select(builder.icmp_signed("<", at, last), at, last)
                for first, end, rows in ((_WORD(0), fours, _ROWS), (fours, z.rows, 1)):
                    with cgutils.for_range_slice(builder, first, end, _WORD(rows)) as (row, _):
                        _write_tile(builder, x, y, z, row, column, number, rows, vectors, wide)

        left = _WORD(0)
        for vectors in _vectors():
            right = builder.and_(z.columns, _WORD(-vectors * lanes))
            write_tiles(left, right, vectors, lanes)
            left = right
        narrow = builder.icmp_signed("<", z.columns, _WORD(lanes))
        with builder.if_else(narrow) as (then, otherwise):
            with then:
                write_tiles(_WORD(0), z.columns, 1, 1)
            with otherwise:  # what is left: the last vector, some of which is there already
                write_tiles(left, z.columns, 1, lanes, builder.sub(z.columns, _WORD(lanes)))
        return context.get_dummy_value()

    return types.none(a, b, out), generate


def _has(feature: str) -> bool:
    """Whether the processor that is compiled for has it."""
    return f"+{feature}" in (config.CPU_FEATURES or host_features()).split(",")


def _vectors() -> tuple[int, ...]:
    return _VECTORS_512 if _has("avx512f") else _VECTORS


def _fuses() -> bool:
    """Whether a fused multiplication and addition is an instruction, not a call."""
    return _has("fma") or platform.machine() not in ("x86_64", "AMD64")


def _widens() -> bool:
    """Whether a ``float16`` becomes a ``float32`` by an instruction."""
    return _has("f16c") or platform.machine() not in ("x86_64", "AMD64")


def check_product(types: Any, singles: Container[Any], error: type[Exception], a: Any, b: Any, out: Any) -> None:
    """Refuse what is no product of matrices, by the types of one compiler, those computed in ``float32``, and its error.

    Raises:
        TypingError: it becomes a CompileError.
    """
    for name, x in (("a", a), ("b", b), ("out", out)):
        if not isinstance(x, types.Array) or x.ndim != 2 or not isinstance(x.dtype, types.Number):
            raise error(f"matmul: argument {name}: expected a two-dimensional array of numbers, got {x}")
    are_singles = out.dtype == types.float32 and a.dtype in singles and b.dtype in singles
    if not (are_singles or a.dtype == b.dtype == out.dtype):
        raise error(
            f"matmul: expected arrays of one dtype, or float32 of such and floats of 16 bits, got {a.dtype}, {b.dtype} and "
            f"{out.dtype}"
        )
    if not out.mutable:
        raise error("matmul: argument out: the array is read-only")


def make_product_loop(out: Any, single: bool, as_dtype: Callable[[Any], Any]) -> Any:
    """The function that computes one element after the other, in numbers of the result's type, or in ``float32``."""
    number = np.float32 if single else as_dtype(out.dtype).type

    def code(a: Any, b: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                total = number(0)
                for k in range(b.shape[0]):
                    total += number(number(a[i, k]) * number(b[k, j]))
                out[i, j] = total

    return code


def _choose_product(a: Any, b: Any, out: Any) -> Any:
    check_product(types, SINGLES, TypingError, a, b, out)
    loop = register_jitable(make_product_loop(out, is_stored(out.dtype), as_dtype))
    is_vector = out.dtype in (types.float32, types.float64) and _fuses()
    is_vector = is_vector and (types.float16 not in (a.dtype, b.dtype) or _widens())

    def product(a: Any, b: Any, out: Any) -> None:
        if a.shape[1] != b.shape[0] or a.shape[0] != out.shape[0] or b.shape[1] != out.shape[1]:
            raise ValueError("matmul: the shapes do not fit")
        if b.strides[1] == b.itemsize and out.strides[1] == out.itemsize:
            _multiply(a, b, out)
        else:
            loop(a, b, out)

    def elements(a: Any, b: Any, out: Any) -> None:
        if a.shape[1] != b.shape[0] or a.shape[0] != out.shape[0] or b.shape[1] != out.shape[1]:
            raise ValueError("matmul: the shapes do not fit")
        loop(a, b, out)

    return product if is_vector else elements


def install_products() -> None:
    """Tell numba of it."""
    overload(lang.matmul, target="cpu")(_choose_product)
