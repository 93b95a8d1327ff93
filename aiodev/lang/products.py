"""Products of what one thread reads."""

from __future__ import annotations

from typing import Any

__all__ = ["matmul"]


def matmul(a: Any, b: Any, out: Any) -> None:
    """``out[...] = a @ b`` of two matrices, usually blocks of larger ones that lie in the caches.

    On the CPU ``float32`` and ``float64`` are computed in vectors, a tile of ``out`` in registers at a time, if rows of ``b``
    and of ``out`` have no gaps. Each element is the sum of its products in the order of the inner dimension, rounded once for
    each of them: so it is the same in whatever block, and of however many rows. :func:`aiodev.kernels.matmul` is for arrays.

    A product of ``float32`` may have factors of 16 bits, which become ``float32`` as they are read, without an error: weights,
    or the keys and values of a text, take half the memory, and half the time to read where they are not in the caches.

    Args:
        a: (rows, inner), of the same dtype as ``out``; or where that is ``float32``, of ``float16`` or ``bfloat16``.
        b: (inner, columns), likewise.
        out: (rows, columns), of numbers, which overlaps neither.

    Raises:
        ValueError: the shapes do not fit; CUDA does not look.

    Example:
        >>> import aiodev, numpy
        >>> from aiodev import lang
        >>> @aiodev.kernel
        ... def multiply_rows(i, x, y, out):
        ...     lang.matmul(x[2 * i : 2 * i + 2], y, out[2 * i : 2 * i + 2])
        >>> x, y = (aiodev.asarray(numpy.arange(12.0).reshape(shape), device="cpu") for shape in ((4, 3), (3, 4)))
        >>> out = aiodev.empty((4, 4), device="cpu")
        >>> multiply_rows[2](x, y, out).synchronize_blocking()
        >>> out.numpy_blocking()[3]
        array([128., 158., 188., 218.])
    """
    if a.shape[1] != b.shape[0] or out.shape != (a.shape[0], b.shape[1]):
        raise ValueError("matmul: the shapes do not fit")
    out[...] = a @ b
