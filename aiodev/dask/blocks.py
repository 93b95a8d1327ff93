"""``map_blocks``: functions of arrays over the blocks of Dask's chunked arrays.

Dask fuses the tasks of a collection, and runs what it has fused in one of the worker's threads, which is blocked until the
blocks are computed; the worker's loop is not. A coroutine function runs on that loop meanwhile, and is cancelled when nobody
wants the blocks any more. Blocks of NumPy are brought
to the device; Dask keeps NumPy's empty array as the description of the blocks (``meta``), since the client need not have a
device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.array.dispatch import concatenate_lookup
from dask.base import tokenize
from dask.utils import funcname, has_keyword
from distributed import get_worker

import aiodev
from aiodev import Array, kernels
from aiodev._core.arguments import function as checked_function, instance
from aiodev.dask.tasks import Running, leased, run_on_loop, seed_of

__all__ = ["map_blocks"]


def map_blocks(
    function: Callable[..., Any], *arrays: Any, dtype: Any = None, chunks: Any = None, **named: Any
) -> da.Array:
    """Apply a function to the blocks of ``dask.array`` collections; gives a collection whose blocks are arrays of aiodev.

    As :func:`dask.array.map_blocks`, with the worker's device current in the function, a stream of its own, and random
    numbers that follow from the place of the block. Blocks of NumPy arrive as arrays on the device. Nothing is computed
    before the collection is.

    Operators, slices, ``rechunk``, ``da.concatenate`` and ``da.reduction`` with functions of :mod:`aiodev.kernels` go on with
    such blocks. NumPy's functions refuse them, on a worker as anywhere, and so do methods of a collection that rest on them:
    ``y.map_blocks(numpy.asarray)`` has blocks of NumPy for these.

    Args:
        function: of one block of each collection; it may be a coroutine function, and may take ``block_id``.
        arrays: collections, or numbers.
        dtype: of the result; that of the first collection by default.
        chunks: lengths of the result's blocks, where they are others.
        named: for the function.

    Raises:
        TypeError: ``function`` cannot be called, or nothing of ``arrays`` is a collection.

    Example:
        >>> import dask.array as da
        >>> from aiodev import kernels
        >>> from aiodev.dask import map_blocks
        >>> x = da.arange(6, chunks=3, dtype="float32")
        >>> y = map_blocks(kernels.square, x) + 1
        >>> y.compute(scheduler="threads").numpy_blocking()
        array([ 1.,  2.,  5., 10., 17., 26.], dtype=float32)
    """
    checked_function("map_blocks", "function", function)
    first = next((array for array in arrays if isinstance(array, da.Array)), None)
    if first is None:
        instance("map_blocks", "arrays", arrays[0] if arrays else None, da.Array, "collections of dask.array")
        raise AssertionError
    dtype = np.dtype(first.dtype if dtype is None else dtype)
    name = f"{funcname(function)}-{tokenize(function, *arrays, dtype, chunks, named)}"
    block = Block(function, name)
    return da.map_blocks(block, *arrays, dtype=dtype, chunks=chunks, name=name, meta=np.array((), dtype), **named)


class Block:
    """A function of blocks as Dask calls it."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self.__name__ = name

    def __dask_tokenize__(self) -> object:
        return self.__name__

    def __call__(self, *blocks: Any, block_id: Any = None, **named: Any) -> Any:
        if has_keyword(self._function, "block_id"):
            named["block_id"] = block_id
        with aiodev.fork_rng():  # what Dask fuses has one key, and this block's numbers are its own
            aiodev.manual_seed(seed_of(_seed_here(), self.__name__, block_id))
            result = self._function(*_brought(blocks), **named)
            return run_on_loop(result) if inspect.iscoroutine(result) else result


def _seed_here() -> int:
    """The seed of the cluster; 0 where no worker runs the block."""
    try:
        running: Running = get_worker().plugins["aiodev"].running
    except (ValueError, KeyError):
        return 0
    return running.seed


def _on_device(block: Any) -> Any:
    return aiodev.asarray(block) if isinstance(block, np.ndarray) else block


def _brought(blocks: tuple[Any, ...]) -> list[Any]:
    """The blocks, those of NumPy on the device: under a lease, unless that has the host's memory."""
    nbytes = sum(block.nbytes for block in blocks if isinstance(block, np.ndarray))
    if not nbytes or aiodev.capabilities().host_accessible:
        return list(map(_on_device, blocks))
    with leased(nbytes, aiodev.current_device()):
        return list(map(_on_device, blocks))


def _concatenate(arrays: Any, axis: int = 0, **_: Any) -> Array:
    return kernels.concat([_on_device(array) for array in arrays], axis=axis)


concatenate_lookup.register(Array, _concatenate)
