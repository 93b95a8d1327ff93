"""Results that are written to memory of which operands have elements: what is read is what was there before, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import kernels as k

SIZE = 7
ORDER = np.random.default_rng(1).permutation(SIZE)


@aiodev.operation(reads=["x"], writes="out")
def reversed_rows(call: aiodev.Call, x: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """An operation of a user's, which says nothing of memory in common."""
    out = call.out(x.shape, x.dtype)
    call.launch(reverse_rows, x.shape, x, out)
    return out


@aiodev.kernel(ndim=2)
def reverse_rows(i: int, j: int, x: Any, out: Any) -> None:
    out[x.shape[0] - 1 - i, j] = x[i, j]


@k.fused
def mixed(x: Any, y: Any) -> Any:
    return 3 * x - y


#: Of a square, to a square.
CALLS: dict[str, Callable[..., Any]] = {
    "negative": lambda x, out: k.negative(x, out=out),
    "add": lambda x, out: k.add(x, x.T, out=out),
    "add a row": lambda x, out: k.add(x, x[0], out=out),
    "add an element": lambda x, out: k.add(x, x[2:3, 3:4], out=out),
    "where": lambda x, out: k.where(x > 3, x, x.T, out=out),
    "clip": lambda x, out: k.clip(x, 2, 5, out=out),
    "fused": lambda x, out: mixed(x, x[::-1], out=out),
    "running sum": lambda x, out: k.cumulative_sum(x, axis=0, out=out),
    "running product": lambda x, out: k.cumulative_prod(x, axis=1, out=out),
    "sort": lambda x, out: k.sort(x, axis=0, out=out),
    "sort of rows": lambda x, out: k.sort(x, axis=1, out=out),
    "softmax": lambda x, out: k.softmax(x, axis=0, out=out),
    "log_softmax": lambda x, out: k.log_softmax(x, axis=1, out=out),
    "layer_norm": lambda x, out: k.layer_norm(x, x[0], x[:, 0], out=out),
    "rms_norm": lambda x, out: k.rms_norm(x, x[1], out=out),
    "matmul": lambda x, out: k.matmul(x, x, out=out),
    "vecdot": lambda x, out: k.vecdot(x, x.T, out=out[1]),
    "roll": lambda x, out: k.roll(x, 1, axis=0, out=out),
    "tril": lambda x, out: k.tril(x, out=out),
    "take": lambda x, out: k.take(x, aiodev.asarray(ORDER, device="cpu"), axis=0, out=out),
    "sum": lambda x, out: k.sum(x, axis=1, out=out[0]),
    "max": lambda x, out: k.max(x, axis=0, out=out[:, 1]),
    "var": lambda x, out: k.var(x, axis=0, out=out[-1]),
    "concat": lambda x, out: k.concat((x[1:], x[:1]), out=out),
    "concat of an iterator": lambda x, out: k.concat(iter([x[1:], x[:1]]), out=out),  # type: ignore[call-overload]
    "stack": lambda x, out: k.stack(list(x)[::-1], out=out),
    "put": lambda x, out: k.put(out, aiodev.asarray(ORDER, device="cpu"), x[0]),
    "scatter_add": lambda x, out: k.scatter_add(out, aiodev.asarray(ORDER, device="cpu"), x, axis=0),
    "inv": lambda x, out: k.linalg.inv(x, out=out),
    "solve": lambda x, out: k.linalg.solve(x, x.T, out=out),
    "cholesky": lambda x, out: k.linalg.cholesky(x, out=out),
    "transform": lambda x, out: k.fft.hfft(x, n=SIZE, out=out),
    "of a user": lambda x, out: reversed_rows(x, out=out),
    "copy": lambda x, out: out.copy_from(x),
    "+=": lambda x, out: out.__iadd__(x),
    "-=": lambda x, out: out.__isub__(x[:, 2:3]),
    "[] =": lambda x, out: out.__setitem__(aiodev.asarray(ORDER, device="cpu"), x),
}  # fmt: skip

#: Where operand and result are, of some memory.
PLACES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "the same": lambda m: (square(m), square(m)),
    "transposed": lambda m: (square(m), square(m).T),
    "ahead": lambda m: (square(m[3:]), square(m)),
    "behind": lambda m: (square(m), square(m[3:])),
    "reversed": lambda m: (square(m), square(m)[::-1]),
    "columns beside columns": lambda m: (wide(m)[:, :SIZE], wide(m)[:, SIZE:]),
    "columns over columns": lambda m: (wide(m)[:, 1 : SIZE + 1], wide(m)[:, :SIZE]),
    "between": lambda m: (wide(m)[:, ::2], wide(m)[:, 1::2]),
}


def square(memory: Any) -> Any:
    return memory[: SIZE * SIZE].reshape(SIZE, SIZE)


def wide(memory: Any) -> Any:
    return memory[: 2 * SIZE * SIZE].reshape(SIZE, 2 * SIZE)


def values() -> np.ndarray[Any, Any]:
    """Of which each square is one of a positive definite matrix, near enough."""
    host = np.random.default_rng(0).uniform(0, 1, 3 * SIZE * SIZE)
    host[:: SIZE + 1] += SIZE
    return host


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CALLS)
def test_results_over_operands(name: str, place: str) -> None:
    """The first time, and when the call is remembered."""
    call, views, host = CALLS[name], PLACES[place], values()
    apart = aiodev.asarray(host, device="cpu")
    expected = found(call, views(aiodev.asarray(host, device="cpu"))[0], views(apart)[1], apart)
    for _ in range(3):
        memory = aiodev.asarray(host, device="cpu")
        result = found(call, *views(memory), memory)
        np.testing.assert_allclose(result, expected, 1e-14)  # sums of a copy may have another order


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CALLS)
def test_results_over_operands_of_another_buffer(name: str, place: str) -> None:
    """Of memory that came in twice, or that went out and came back."""
    call, views, host = CALLS[name], PLACES[place], values()
    apart = aiodev.asarray(host, device="cpu")
    expected = found(call, views(aiodev.asarray(host, device="cpu"))[0], views(apart)[1], apart)
    for count in range(6):
        memory = aiodev.from_dlpack(host.copy()) if count % 2 else aiodev.asarray(host, device="cpu")
        other = aiodev.from_dlpack(np.from_dlpack(memory))
        result = found(call, views(other)[0], views(memory)[1], memory)
        np.testing.assert_allclose(result, expected, 1e-14)


def found(call: Callable[..., Any], x: Any, out: Any, memory: aiodev.Array) -> Any:
    """What a call leaves in memory; nothing if the operand is a matrix that it cannot have to do with."""
    call(x, out)
    try:
        return memory.numpy_blocking()
    except aiodev.KernelError as error:
        assert "LinAlgError" in str(error)
        return ()


def views_of(memory: Any, choice: tuple[int, int, int, bool]) -> Any:
    """Six elements of thirty in two dimensions."""
    offset, row, column, is_turned = choice
    shown = memory[offset:].reshape(-1) if offset else memory
    block = shown[: row * (len(shown) // row)].reshape(-1, row)[:3, : 2 * column : column]
    return block.T[::-1].T if is_turned else block


choices = st.tuples(st.integers(0, 6), st.integers(2, 6), st.integers(1, 2), st.booleans())
functions = st.sampled_from(["negative", "add", "where", "running sum", "sort", "roll", "sum", "matmul"])


@given(functions, choices, choices)
@settings(max_examples=examples(200), deadline=None)
def test_any_views(name: str, first: Any, second: Any) -> None:
    """Of one memory, as it is with two."""
    host = np.arange(30.0)[::-1].copy()
    call: dict[str, Callable[..., Any]] = {
        "negative": lambda x, out: k.negative(x, out=out),
        "add": lambda x, out: k.add(x, x[1:2], out=out),
        "where": lambda x, out: k.where(out > 7, x, out, out=out),
        "running sum": lambda x, out: k.cumulative_sum(x, axis=0, out=out),
        "sort": lambda x, out: k.sort(x, axis=0, out=out),
        "roll": lambda x, out: k.roll(x, 1, axis=0, out=out),
        "sum": lambda x, out: k.sum(x, axis=0, out=out[0]),
        "matmul": lambda x, out: k.matmul(x[:2, :2], x[:2, :2], out=out[:2, :2]),
    }
    if views_of(host, first).shape != (3, 2) or views_of(host, second).shape != (3, 2):
        return
    apart, memory = (aiodev.asarray(host, device="cpu") for _ in range(2))
    call[name](views_of(aiodev.asarray(host, device="cpu"), first), views_of(apart, second))
    call[name](views_of(memory, first), views_of(memory, second))
    np.testing.assert_array_equal(memory.numpy_blocking(), apart.numpy_blocking())


async def test_in_captures() -> None:
    """Replays read what was there before each of them, too."""
    host = values()
    memory = aiodev.asarray(host, device="cpu")
    await aiodev.synchronize("cpu")
    async with aiodev.capture() as graph:
        k.add(memory[1:], memory[:-1], out=memory[1:])
        memory[:-1] *= memory[1:]
    for _ in range(3):
        host[1:] += host[:-1]
        host[:-1] *= host[1:]
        await graph.replay()
        np.testing.assert_array_equal(await memory.numpy(), host)


def test_no_copies_without_need() -> None:
    """Rows beside rows, columns beside columns, and every other element are written in one launch."""
    x = aiodev.ones((4, 6), device="cpu")
    for one, other in ((x[:2], x[2:]), (x[:, :3], x[:, 3:]), (x[:, ::2], x[:, 1::2]), (x[1], x[1]), (x[0], x[0, ::-1][::-1])):
        for count in range(3):
            aiodev.synchronize_blocking("cpu")  # what is compiled would count
            before = aiodev.current_stream("cpu").timeline.submitted
            k.exp(one, out=other)
            one += other
            assert aiodev.current_stream("cpu").timeline.submitted == before + 2 or not count
