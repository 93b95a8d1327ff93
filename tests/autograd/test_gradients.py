"""Gradients of the library against central differences, to the second order, and against PyTorch where that is installed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, basic_indices, broadcastable_shapes, mutually_broadcastable_shapes
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd
from aiodev.kernels import linalg
from aiodev.kernels.elementwise.rows import TABLE
from aiodev.testing import SimulatedBackend

if "sim" not in aiodev.available_backends():
    aiodev.register_backend("sim", SimulatedBackend)

pytestmark = pytest.mark.anyio

Shapes = Sequence[tuple[int, ...]]


def on_device(values: Any) -> Any:
    return aiodev.asarray(np.asarray(values), device="cpu")


def leaves_of(shapes: Shapes, low: float = -1.5, high: float = 1.5, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [autograd.Variable(on_device(random.uniform(low, high, shape))) for shape in shapes]


def definite(x: Any) -> Any:
    """Symmetric positive definite matrices."""
    return kernels.matmul(x, x.mT) + 3.0 * kernels.eye(x.shape[-1], device="cpu")


def without_signs(u: Any, s: Any, vh: Any) -> Any:
    """Singular values and vectors, but for the signs of these, which are free."""
    return s, kernels.matmul(u * s[..., None, :], vh), u * u, vh * vh


@pytest.fixture(autouse=True)
def no_gradient_blocks() -> Iterator[None]:
    """Here, whatever blocks the thread of a loop that runs is an error."""
    before = aiodev.get_sync_debug_mode()
    aiodev.set_sync_debug_mode("error")
    yield
    aiodev.set_sync_debug_mode(before)


@kernels.fused
def blended(x: Any, y: Any) -> Any:
    return kernels.tanh(x) * y + x


ROWS = on_device([0, 2, 2])
PLACES = on_device([[0, 2], [1, 1]])
MASK = on_device([[True], [False]])
SOME = on_device([[False, True, True], [True, False, False]])

#: By name: a function, and the shapes of its operands. Those that run by default come first.
CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "sum": (lambda x: kernels.sum(x, axis=1), [(2, 3)]),
    "mean": (lambda x: kernels.mean(x, axis=0), [(2, 3)]),
    "max": (lambda x: kernels.max(x, axis=1), [(2, 3)]),
    "var": (lambda x: kernels.var(x, axis=1, correction=1), [(2, 3)]),
    "matmul": (kernels.matmul, [(2, 3), (3, 2)]),
    "take": (lambda x: kernels.take(x, ROWS, axis=1), [(2, 3)]),
    "concat": (lambda x, y: kernels.concat([x, y], axis=1), [(2, 3), (2, 1)]),
    "log_softmax": (kernels.log_softmax, [(2, 3)]),
    "layer_norm": (kernels.layer_norm, [(2, 3), (3,), (3,)]),
    "where": (lambda x, y: kernels.where(MASK, x, y), [(2, 3), (3,)]),
    "getitem": (lambda x: x[:, ::2], [(2, 3)]),
    "conv2d": (
        lambda x, w, b: kernels.conv2d(x, w, b, stride=(1, 2), padding=1), [(2, 2, 4, 4), (3, 2, 3, 2), (3,)],
    ),
    "max_pool2d": (lambda x: kernels.max_pool2d(x, 2), [(2, 1, 4, 4)]),
    "attention": (
        lambda q, k, v: kernels.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 3, 2), (2, 3, 2), (2, 3, 4)],
    ),
    "embedding": (lambda x: kernels.embedding(PLACES, x), [(3, 2)]),
    "cross_entropy": (lambda x: kernels.cross_entropy(x, ROWS), [(3, 4)]),
    # Of these there are others like them, or their kernels take long to compile.
    "matmul of stacks": (kernels.matmul, [(2, 1, 2, 3), (3, 3, 2)]),
    "solve": (lambda x, y: linalg.solve(definite(x), y), [(3, 3), (3, 2)]),
    "cumulative_prod": (lambda x: kernels.cumulative_prod(x, axis=1), [(2, 3)]),
    "sum over several axes": (lambda x: kernels.sum(x, axis=(0, 2), keepdims=True), [(2, 3, 2)]),
    "sum of all": (kernels.sum, [(2, 3)]),
    "prod": (lambda x: kernels.prod(x, axis=1), [(2, 3)]),
    "prod of all": (kernels.prod, [(2, 2)]),
    "min": (kernels.min, [(2, 3)]),
    "std": (lambda x: kernels.std(x, axis=1), [(2, 3)]),
    "cumulative_sum": (lambda x: kernels.cumulative_sum(x, axis=1), [(2, 3)]),
    "cumulative_sum with an initial one": (lambda x: kernels.cumulative_sum(x, axis=0, include_initial=True), [(2, 3)]),
    "cumulative_sum of others": (lambda x: kernels.cumulative_sum(x, axis=0, exclusive=True), [(2, 3)]),
    "cumulative_prod with an initial one": (lambda x: kernels.cumulative_prod(x, axis=1, include_initial=True), [(2, 3)]),
    "cumulative_prod of others": (lambda x: kernels.cumulative_prod(x, axis=1, exclusive=True), [(2, 3)]),
    "select": (lambda x: kernels.select(SOME, x), [(2, 3)]),
    "select of what was computed": (lambda x: kernels.select(SOME, (x * x).T), [(3, 2)]),
    "take of all": (lambda x: kernels.take(x, on_device([0, 5, 2])), [(2, 3)]),
    "take_along_axis": (lambda x: kernels.take_along_axis(x, PLACES, axis=1), [(2, 3)]),
    "sort": (lambda x: kernels.sort(x, axis=1, descending=True), [(2, 3)]),
    "stack": (lambda x, y: kernels.stack([x, y], axis=1), [(2, 3), (2, 3)]),
    "concat of all": (lambda x, y: kernels.concat([x, y], axis=None), [(2, 3), (2,)]),
    "roll": (lambda x: kernels.roll(x, 1, axis=1), [(2, 3)]),
    "roll of all": (lambda x: kernels.roll(x, 2), [(2, 3)]),
    "repeat": (lambda x: kernels.repeat(x, 2, axis=1), [(2, 3)]),
    "repeat each": (lambda x: kernels.repeat(x, [1, 0, 2], axis=1), [(2, 3)]),
    "tile": (lambda x: kernels.tile(x, (2, 1, 2)), [(2, 3)]),
    "pad": (lambda x: kernels.pad(x, (1, 2)), [(2, 3)]),
    "pad by reflection": (lambda x: kernels.pad(x, 1, "reflect"), [(2, 3)]),
    "tril": (kernels.tril, [(3, 3)]),
    "triu": (lambda x: kernels.triu(x, k=1), [(3, 3)]),
    "matmul with a stack": (kernels.matmul, [(2, 2, 3), (3, 2)]),
    "matrix and vector": (kernels.matmul, [(2, 3), (3,)]),
    "vector and matrix": (kernels.matmul, [(3,), (3, 2)]),
    "vectors": (kernels.matmul, [(3,), (3,)]),
    "matrices and a vector": (kernels.matmul, [(2, 2, 3), (3,)]),
    "a vector and matrices": (kernels.matmul, [(3,), (2, 3, 2)]),
    "vecdot": (kernels.vecdot, [(2, 3), (2, 3)]),
    "vecdot of columns": (lambda x, y: kernels.vecdot(x, y, axis=0), [(2, 3), (2, 3)]),
    "vecdot from the first axis": (lambda x, y: kernels.vecdot(x, y, axis=0), [(3, 2), (3, 3, 2)]),
    "vecdot broadcast": (lambda x, y: kernels.vecdot(x, y, axis=-2), [(4, 2, 3), (2, 3)]),
    "tensordot": (lambda x, y: kernels.tensordot(x, y, axes=([1, 2], [1, 0])), [(2, 3, 2), (2, 3, 2)]),
    "tensordot over one": (lambda x, y: kernels.tensordot(x, y, axes=1), [(2, 3), (3, 2)]),
    "vector_norm": (lambda x: linalg.vector_norm(x, axis=1), [(2, 3)]),
    "vector_norm, third": (lambda x: linalg.vector_norm(x, axis=1, ord=3), [(2, 3)]),
    "vector_norm, first": (lambda x: linalg.vector_norm(x, ord=1), [(2, 3)]),
    "vector_norm, largest": (lambda x: linalg.vector_norm(x, ord=np.inf), [(2, 3)]),
    "matrix_norm": (linalg.matrix_norm, [(2, 3)]),
    "cross": (linalg.cross, [(2, 3), (2, 3)]),
    "diagonal": (lambda x: linalg.diagonal(x, offset=1), [(2, 3, 3)]),
    "trace": (linalg.trace, [(3, 3)]),
    "outer": (linalg.outer, [(2,), (3,)]),
    "inv": (lambda x: linalg.inv(definite(x)), [(3, 3)]),
    "solve for a vector": (lambda x, y: linalg.solve(definite(x), y), [(3, 3), (3,)]),
    "solve stacks": (lambda x, y: linalg.solve(definite(x), y), [(2, 3, 3), (3, 2)]),
    "solve stacks for a vector": (lambda x, y: linalg.solve(definite(x), y), [(3, 3, 3), (3,)]),
    "det": (linalg.det, [(2, 3, 3)]),
    "slogdet": (lambda x: linalg.slogdet(x)[1], [(2, 3, 3)]),
    "cholesky": (lambda x: linalg.cholesky(definite(x)), [(3, 3)]),
    "cholesky, upper": (lambda x: linalg.cholesky(definite(x), upper=True), [(3, 3)]),
    "eigh": (lambda x: linalg.eigh(definite(x))[0] + linalg.eigh(definite(x))[1][..., 0] ** 2, [(2, 3, 3)]),
    "eigvalsh": (lambda x: linalg.eigvalsh(definite(x)), [(3, 3)]),
    "svd": (lambda x: without_signs(*linalg.svd(x, full_matrices=False)), [(3, 3)]),
    "svd of tall matrices": (lambda x: without_signs(*linalg.svd(x, full_matrices=False)), [(2, 4, 2)]),
    "svd of wide matrices": (lambda x: without_signs(*linalg.svd(x, full_matrices=False)), [(2, 4)]),
    "svdvals": (linalg.svdvals, [(2, 3, 2)]),
    "qr": (linalg.qr, [(3, 3)]),
    "qr of tall matrices": (linalg.qr, [(2, 4, 2)]),
    "qr of wide matrices": (linalg.qr, [(2, 4)]),
    "pinv": (linalg.pinv, [(2, 3, 3)]),
    "pinv of tall matrices": (linalg.pinv, [(4, 2)]),
    "pinv of wide matrices": (linalg.pinv, [(2, 4)]),
    "nuclear norm": (lambda x: linalg.matrix_norm(x, ord="nuc"), [(3, 2)]),
    "spectral norm": (lambda x: linalg.matrix_norm(x, ord=2), [(2, 3)]),
    "matrix_power": (lambda x: linalg.matrix_power(x, 3), [(2, 2)]),
    "clip": (lambda x: kernels.clip(x, -0.5, 0.5), [(2, 3)]),
    "clip by arrays": (lambda x, low, high: kernels.clip(x, low, high * high + low), [(2, 3), (3,), (3,)]),
    "softmax": (lambda x: kernels.softmax(x, axis=1), [(2, 3)]),
    "softmax of columns": (lambda x: kernels.softmax(x, axis=0), [(2, 3)]),
    "layer_norm of columns": (lambda x, w: kernels.layer_norm(x, w, axis=0), [(3, 2), (3,)]),
    "layer_norm, plain": (kernels.layer_norm, [(2, 3)]),
    "layer_norm with a bias": (lambda x, b: kernels.layer_norm(x, None, b, axis=1), [(2, 3, 2), (3,)]),
    "rms_norm": (kernels.rms_norm, [(2, 3), (3,)]),
    "rms_norm, plain": (kernels.rms_norm, [(2, 3)]),
    "conv2d of groups": (
        lambda x, w: kernels.conv2d(x, w, stride=2, padding=(0, 2), dilation=(1, 2), groups=2), [(1, 4, 4, 5), (2, 2, 2, 3)],
    ),
    "max_pool2d, overlapping": (lambda x: kernels.max_pool2d(x, (3, 2), stride=1, padding=1), [(2, 1, 4, 3)]),
    "avg_pool2d": (lambda x: kernels.avg_pool2d(x, 3, stride=2, padding=1), [(2, 1, 4, 4)]),
    "avg_pool2d without padding": (
        lambda x: kernels.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False), [(2, 1, 4, 4)],
    ),
    "attention, stacks and masks": (
        lambda q, k, v, mask: kernels.scaled_dot_product_attention(q, k, v, mask, scale=0.7)
        + kernels.scaled_dot_product_attention(q, k, v, MASK), [(2, 1, 2, 3), (2, 3, 3), (2, 3, 3), (2, 1)],
    ),
    "row": (lambda x: x[1], [(2, 3)]),
    "advanced index": (lambda x: x[:, [0, 0, 2]], [(2, 3)]),
    "reshape": (lambda x: x.reshape(3, 2) * 1, [(2, 3)]),
    "transposed": (lambda x: x.T.reshape(6), [(2, 3)]),
    "broadcast_to": (lambda x: aiodev.broadcast_to(x, (2, 2, 3)), [(2, 3)]),
    "flip": (kernels.flip, [(2, 3)]),
    "diff": (kernels.diff, [(2, 3)]),
    "diff, twice": (lambda x: kernels.diff(x, 2, axis=1), [(2, 4, 2)]),
    "diff of a single row": (lambda x: kernels.diff(x, axis=0), [(1, 3)]),
    "diff of a view": (lambda x: kernels.diff(x.T), [(2, 3)]),
    "unstack": (lambda x: kernels.unstack(x, axis=1), [(2, 3)]),
    "fused": (blended, [(2, 3), (3,)]),
    "expand_dims": (lambda x: kernels.expand_dims(x, axis=1) * 1.0, [(2, 3)]),
    "squeeze": (lambda x: kernels.squeeze(x, axis=1) * 1.0, [(2, 1, 3)]),
    "moveaxis": (lambda x: kernels.moveaxis(x, 0, 1) * 1.0, [(2, 3)]),
    "broadcast_arrays": (lambda x, y: [one * 1.0 for one in kernels.broadcast_arrays(x, y)], [(2, 3), (3,)]),
    "meshgrid": (lambda x, y: [one * 1.0 for one in kernels.meshgrid(x, y)], [(2,), (3,)]),
    "astype": (lambda x: kernels.astype(kernels.astype(x, "float64"), "float64"), [(3,)]),
    "product broadcast": (kernels.multiply, [(2, 3), (3,)]),
    "quotient broadcast": (kernels.divide, [(1, 3), (2, 1)]),
    "numbers": (lambda x: 2.0 / (1.0 + x * x) - x**3, [(3,)]),
}
DEFAULT = 16

#: The same of arrays without elements, or without dimensions.
EMPTY: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "product": (kernels.multiply, [(0, 3), (3,)]),
    "sum": (lambda x: kernels.sum(x, axis=0), [(0, 3)]),
    "matmul": (kernels.matmul, [(2, 0), (0, 2)]),
    "concat": (lambda x, y: kernels.concat([x, y]), [(0, 3), (2, 3)]),
    "getitem": (lambda x: x[2:], [(2, 3)]),
    "broadcast_to": (lambda x: aiodev.broadcast_to(x, (0, 3)), [(1, 3)]),
    "no dimensions": (lambda x: x * x + kernels.sum(x), [()]),
    "prod": (lambda x: kernels.prod(x, axis=0), [(0, 3)]),
    "take": (lambda x: kernels.take(x, on_device(np.zeros(0, "i8")), axis=0), [(2, 3)]),
    "advanced index": (lambda x: x[[], :], [(2, 3)]),
    "select": (lambda x: kernels.select(on_device(np.zeros((2, 3), "?")), x), [(2, 3)]),
    "select of none": (lambda x: kernels.select(on_device(np.zeros((0, 3), "?")), x), [(0, 3)]),
    "softmax": (kernels.softmax, [(0, 3)]),
    "layer_norm": (kernels.layer_norm, [(0, 3)]),
    "cumulative_prod": (lambda x: kernels.cumulative_prod(x, axis=1), [(0, 3)]),
    "sort": (kernels.sort, [(0, 3)]),
    "tile": (lambda x: kernels.tile(x, 2), [(0, 3)]),
    "repeat": (lambda x: kernels.repeat(x, 0, axis=0), [(2, 3)]),
    "pad": (lambda x: kernels.pad(x, 1), [(0, 3)]),
    "vector_norm": (linalg.vector_norm, [(0, 3)]),
    "inv": (linalg.inv, [(0, 2, 2)]),
}

#: Where the operands of an elementwise function lie, if not between -0.9 and 0.9.
DOMAINS = {
    "acosh": (1.2, 3.0), "log": (0.2, 2.0), "log2": (0.2, 2.0), "log10": (0.2, 2.0), "sqrt": (0.2, 2.0), "cbrt": (0.2, 2.0),
    "pow": (0.2, 2.0), "reciprocal": (0.2, 2.0), "divide": (0.2, 2.0), "remainder": (1.2, 1.9), "abs": (0.2, 2.0),
}  # fmt: skip
SMOOTH = [
    name for name in TABLE if any(getattr(kernels, name).operation.gradients.get(own) for own in TABLE[name].operands)
]
ELEMENTWISE = ["tanh", "pow", "maximum", "divide", *(n for n in SMOOTH if n not in ("tanh", "pow", "maximum", "divide"))]


@pytest.mark.parametrize("name", some(list(CASES), DEFAULT))
async def test_gradients_of_the_library(name: str) -> None:
    """They are what central differences say."""
    function, shapes = CASES[name]
    await autograd.gradcheck(function, leaves_of(shapes))


@pytest.mark.parametrize("name", some(list(EMPTY), 7))
async def test_gradients_of_arrays_without_elements(name: str) -> None:
    """They have the shapes of their operands."""
    function, shapes = EMPTY[name]
    await autograd.gradcheck(function, leaves_of(shapes))


@pytest.mark.parametrize("name", some(list(dict.fromkeys(["getitem", "matmul", *CASES])), 2))
async def test_second_gradients_of_the_library(name: str) -> None:
    """And so are the gradients of gradients."""
    function, shapes = CASES[name]
    await autograd.gradgradcheck(function, leaves_of(shapes))


def of_elementwise(name: str) -> list[Any]:
    shapes = [(2, 3), (3,)][: len(TABLE[name].operands)]
    return leaves_of(shapes, *DOMAINS.get(name, (-0.9, 0.9)))


@pytest.mark.parametrize("name", some(ELEMENTWISE, 4))
async def test_gradients_of_elementwise_functions(name: str) -> None:
    """Of each operand that they depend on smoothly, where shapes broadcast, too."""
    await autograd.gradcheck(getattr(kernels, name), of_elementwise(name))


@pytest.mark.parametrize("name", some(ELEMENTWISE, 2))
async def test_second_gradients_of_elementwise_functions(name: str) -> None:
    """Whose kernels are derived from the rows of the table."""
    await autograd.gradgradcheck(getattr(kernels, name), of_elementwise(name))


STEPS = "floor", "ceil", "round", "trunc", "sign", "floor_divide", "copysign"


@pytest.mark.parametrize("name", STEPS)
async def test_what_changes_by_steps_has_gradients_of_zeros(name: str) -> None:
    """As in PyTorch, and not none: of what else the loss is made of there are gradients, pass after pass."""
    function = getattr(kernels, name)
    x, y = (autograd.Variable(on_device([0.5, 1.25, np.inf])) for _ in range(2))
    for _ in range(3):
        x.grad = y.grad = None
        result = function(y) if len(TABLE[name].operands) == 1 else function(on_device([2.0, 5.0, 1.0]), y)
        await autograd.backward((result * x).sum())
        assert await y.grad.tolist() == [0.0, 0.0, 0.0]
        np.testing.assert_array_equal(await x.grad.numpy(), await result.numpy())


async def test_a_norm_that_counts_has_gradients_of_zeros() -> None:
    """It changes by steps as well."""
    x = autograd.Variable(on_device([0.0, 2.0]))
    await autograd.backward(linalg.vector_norm(x, ord=0))
    assert await x.grad.tolist() == [0.0, 0.0]


async def test_steps_among_others_of_a_fused_function() -> None:
    """They add nothing to its gradient; a function of nothing else has zeros."""
    for step, expected in (lambda x: kernels.floor(x) * x + kernels.sign(x), 2.0), (lambda x: kernels.round(x), 0.0):
        function = kernels.fused(step)
        x = autograd.Variable(on_device([2.75]))
        await autograd.backward(function(x).sum())
        assert await x.grad.item() == expected


async def test_what_is_selected_is_what_a_mask_chooses() -> None:
    """The gradients are the same, of values at the call: what is written before the count is there comes too late."""
    values, chosen = np.arange(6.0).reshape(2, 3), await SOME.numpy()
    for compute in (lambda x: x, lambda x: x * 1.0):
        x, other = (autograd.Variable(on_device(values)) for _ in range(2))
        selecting = kernels.select(SOME, compute(x))
        with autograd.no_grad():
            x[...] = 7.0
        found = await selecting
        assert (await found.numpy()).tolist() == values[chosen].tolist()
        await autograd.backward((found * found).sum())
        await autograd.backward((compute(other)[SOME] ** 2).sum())
        np.testing.assert_array_equal(await x.grad.numpy(), await other.grad.numpy())


async def test_what_is_clipped_is_of_one_operand() -> None:
    """Where it is equal to both bounds, of ``x``, as in PyTorch; where these are the other way round, of the upper one."""
    values = [0.0, 1.0, 2.0]
    for x, low, high in itertools.product(values, repeat=3):
        operands = [autograd.Variable(on_device([value])) for value in (x, low, high)]
        await autograd.backward(kernels.clip(*operands))
        expected = (0, 0, 1) if low > high or x > high or (x < low == high) else (0, 1, 0) if x < low else (1, 0, 0)
        assert tuple([await one.grad.item() for one in operands]) == expected, (x, low, high)


#: Public functions that have no gradient, by why.
WITHOUT = {
    "the result is of integers or truth values": (
        "all any argmax argmin argsort count_nonzero histogram nonzero searchsorted equal greater greater_equal isfinite isinf "
        "isnan less less_equal logical_and logical_not logical_or logical_xor not_equal signbit bitwise_and bitwise_invert "
        "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor linalg.matrix_rank"
    ),
    "how many elements there are depends on their values, so it is awaited, and indices of them are taken instead": (
        "unique_all unique_counts unique_inverse unique_values"
    ),
    "it writes to its argument, in place": "put scatter_add random.shuffle",
    "it is the neighbour among numbers of floating point": "nextafter",
    "it makes arrays, of no other ones": (
        "arange asarray empty empty_like eye from_dlpack full full_like linspace ones ones_like zeros zeros_like fft.fftfreq "
        "fft.rfftfreq"
    ),
    "it draws numbers": (
        "random.bernoulli random.block random.categorical random.choice random.exponential random.gamma random.integers "
        "random.multinomial random.normal random.permutation random.poisson random.random random.random_raw "
        "random.standard_normal random.uniform"
    ),
    "it tells of dtypes, or compiles": "can_cast finfo iinfo isdtype result_type warm_up",
}
#: Where the name of a function is not the beginning of a case's.
SHOWN_BY = {
    "permute_dims": "transposed", "matrix_transpose": "transposed", "linalg.matrix_transpose": "transposed",
    "linalg.norm": "matrix_norm", "scaled_dot_product_attention": "attention",
    "binary_transform": "fused", "unary_transform": "fused",
}  # fmt: skip
#: What tests/autograd/test_complex.py shows.
OF_COMPLEX = {
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift", "sign",
}  # fmt: skip


def public_functions() -> Iterator[str]:
    """Their names, with that of the module where they are in one."""
    for module in (kernels, kernels.fft, linalg, kernels.random):
        place = "" if module is kernels else f"{module.__name__.rpartition('.')[2]}."
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or name == "fused":
                yield f"{place}{name}"


def test_every_function_of_the_library_is_differentiated_or_says_why_not() -> None:
    """Each has cases above, or in the tests of complex numbers, or is elementwise with a gradient; or it is named here."""
    shown = {name.split(",")[0].split(" ")[0] for name in CASES} | OF_COMPLEX
    reasons = {name for names in WITHOUT.values() for name in names.split()}
    for name in public_functions():
        short = name.rpartition(".")[2]
        has = short in SMOOTH or SHOWN_BY.get(name, short) in shown
        assert has != (name in reasons), f"{name}: {'both' if has else 'neither'} shown and named as without a gradient"
    assert reasons <= set(public_functions())


def test_every_operation_of_the_library_says_whether_it_has_a_gradient() -> None:
    """A new one declares it, of all that it reads, or is named here: what it gives is recorded by nobody, or refused."""
    modules = {value for _, value in inspect.getmembers(kernels, inspect.ismodule)} | {linalg}
    everything = [value for module in (kernels, *modules) for value in vars(module).values()]
    made = [getattr(value, "operation", None) for value in everything]
    operations = {one.name: one for one in made if isinstance(one, aiodev.Operation)}
    random = {name for name, value in operations.items() if value._body.__module__.startswith("aiodev.kernels.random")}
    missing = {name for name, value in operations.items() if not value.gradients}
    assert missing - random <= {
        "nextafter", "put", "scatter_add", "histogram", "eye", "linspace", "select", "nonzero", "unique_values",
        "unique_inverse", "unique_counts",
    }  # fmt: skip


# Shapes and dtypes at random


@pytest.mark.exhaustive
@settings(max_examples=examples(30), deadline=None)
@given(shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3), seed=st.integers(0, 99))
def test_broadcasting_at_random(shapes: Any, seed: int) -> None:
    """Gradients of operands are summed to whatever shape they were broadcast from."""
    inputs = leaves_of(shapes.input_shapes, 0.5, 1.5, seed)
    run(autograd.gradcheck(lambda x, y: x * y / (x + y), inputs))


@pytest.mark.exhaustive
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), shape=array_shapes(min_dims=1, max_dims=3, max_side=4))
def test_reductions_at_random(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Over any axes, kept or not."""
    every = st.integers(-len(shape), len(shape) - 1)
    axes = data.draw(st.none() | st.lists(every, min_size=1, unique_by=lambda axis: axis % len(shape)))
    keepdims = data.draw(st.booleans())
    name = data.draw(st.sampled_from(["sum", "mean", "max", "prod", "std"]))
    axis = None if axes is None else tuple(axes)
    function = getattr(kernels, name)
    if name == "std" and len({shape[a] for a in axes or range(len(shape))}) == 1 and shape[(axes or [0])[0]] == 1:
        return
    run(autograd.gradcheck(lambda x: function(x, axis=axis, keepdims=keepdims), leaves_of([shape]), rtol=1e-2))


@pytest.mark.exhaustive
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), rows=st.integers(1, 3), inner=st.integers(1, 3), columns=st.integers(1, 3))
def test_products_of_stacks_at_random(data: st.DataObject, rows: int, inner: int, columns: int) -> None:
    """Of any shapes that broadcast."""
    stacks = data.draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)).input_shapes
    shapes = (*stacks[0], rows, inner), (*stacks[1], inner, columns)
    run(autograd.gradcheck(kernels.matmul, leaves_of(shapes)))


@pytest.mark.exhaustive
@settings(max_examples=examples(30), deadline=None)
@given(shape=array_shapes(min_dims=1, max_dims=3, max_side=3), data=st.data())
def test_views_at_random(shape: tuple[int, ...], data: st.DataObject) -> None:
    """Indices, orders and broadcasts of any kind."""
    index = data.draw(basic_indices(shape, allow_newaxis=True))
    wide = data.draw(broadcastable_shapes(shape, min_dims=len(shape), max_dims=len(shape)))
    order = data.draw(st.permutations(range(len(shape))))
    x = leaves_of([shape])
    if np.empty(shape)[index].size:
        run(autograd.gradcheck(lambda x: x[index] * 1.0, x))
    run(autograd.gradcheck(lambda x: x.transpose(*order) * 1.0, x))
    if np.broadcast_shapes(shape, wide) == wide:
        run(autograd.gradcheck(lambda x: aiodev.broadcast_to(x, wide) * 1.0, x))


def run(work: Any) -> None:
    async def main() -> None:
        await work

    asyncio.run(main())


# PyTorch

#: The same in both: a function of aiodev's kernels, one of torch, and shapes.
SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any], Shapes]] = {
    "perceptron": (
        lambda x, w, b: kernels.tanh(x @ w + b),
        lambda torch: lambda x, w, b: torch.tanh(x @ w + b),
        [(5, 4), (4, 3), (3,)],
    ),
    "layer_norm": (
        kernels.layer_norm,
        lambda torch: lambda x, w, b: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b),
        [(5, 7), (7,), (7,)],
    ),
    "layer_norm of many rows": (
        kernels.layer_norm,
        lambda torch: lambda x, w, b: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b),
        [(500, 40), (40,), (40,)],
    ),
    "log_softmax": (kernels.log_softmax, lambda torch: lambda x: torch.log_softmax(x, -1), [(5, 7)]),
    "maximum with ties": (
        lambda x: kernels.maximum(x, x * 1.0) + kernels.max(x - x, axis=0),
        lambda torch: lambda x: torch.maximum(x, x * 1.0) + torch.amax(x - x, 0),
        [(3, 4)],
    ),
    "relu with ties": (
        lambda x: kernels.relu(x) + kernels.relu(x - x),
        lambda torch: lambda x: torch.relu(x) + torch.relu(x - x),
        [(3, 4)],
    ),
    "prod with zeros": (
        lambda x: kernels.prod(x * 0.0 + kernels.where(x > 0.0, x, 0.0), axis=0),
        lambda torch: lambda x: torch.prod(x * 0.0 + torch.where(x > 0.0, x, 0.0), 0),
        [(3, 4)],
    ),
    "embedding": (
        lambda x: kernels.embedding(on_device([1, 0, 1, 3]), x),
        lambda torch: lambda x: torch.nn.functional.embedding(torch.tensor([1, 0, 1, 3]), x),
        [(5, 3)],
    ),
    "attention": (
        lambda q, k, v: kernels.scaled_dot_product_attention(q, k, v, scale=0.5, is_causal=True),
        lambda torch: lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5, is_causal=True),
        [(2, 3, 4), (2, 5, 4), (2, 5, 6)],
    ),
    "cross entropy": (
        lambda x: kernels.cross_entropy(x, on_device([0, 2, 1])),
        lambda torch: lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 2, 1])),
        [(3, 4)],
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAME)
async def test_gradients_are_those_of_pytorch(name: str, dtype: str) -> None:
    """Of the same values, in the same precision."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function, make, shapes = SAME[name]
    random = np.random.default_rng(1)
    values = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    ours = [autograd.Variable(on_device(value)) for value in values]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    result, expected = function(*ours), make(torch)(*theirs)
    direction = random.standard_normal(result.shape).astype(dtype)
    await autograd.backward(result, on_device(direction))
    expected.backward(torch.tensor(direction))
    tolerance = 1e-5 if dtype == "float32" else 1e-10
    assert np.allclose(await result.numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    for own, other in zip(ours, theirs, strict=True):
        assert own.grad.dtype == dtype
        assert np.allclose(await own.grad.numpy(), other.grad.numpy(), rtol=tolerance, atol=tolerance)


def strided(data: st.DataObject) -> dict[str, Any]:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return {"stride": data.draw(pair), "dilation": data.draw(pair), "padding": data.draw(st.tuples(*[st.integers(0, 2)] * 2))}


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_convolutions_are_those_of_pytorch(data: st.DataObject) -> None:
    """Of any shapes and options, results and gradients."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    groups, channels, rows, images = (data.draw(st.integers(1, most)) for most in (3, 4, 6, 9))
    window, options = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), strided(data)
    seen = zip(options["dilation"], window, options["padding"], strict=True)
    size = [data.draw(st.integers(max(1, gap * (own - 1) + 1 - 2 * pad), 20)) for gap, own, pad in seen]
    shapes = (images, groups * channels, *size), (groups * rows, channels, *window), (groups * rows,)
    run(same_in_pytorch(
        torch, lambda *own: kernels.conv2d(*own, groups=groups, **options),
        lambda *own: torch.nn.functional.conv2d(*own, groups=groups, **options), shapes,
    ))  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_pooling_is_that_of_pytorch(data: st.DataObject) -> None:
    """The largest elements and the means, of overlapping windows, too."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    window, stride = (data.draw(st.tuples(st.integers(1, 4), st.integers(1, 3))) for _ in range(2))
    padding = tuple(data.draw(st.integers(0, own // 2)) for own in window)
    shape = (2, 3, *(data.draw(st.integers(own, 12)) for own in window))
    options: dict[str, Any] = {"stride": stride, "padding": padding}
    include = data.draw(st.booleans())
    for name, more in (("max_pool2d", {}), ("avg_pool2d", {"count_include_pad": include})):
        given = {**options, **more}
        ours, theirs = getattr(kernels, name), getattr(torch.nn.functional, name)
        run(same_in_pytorch(torch, lambda x: ours(x, window, **given), lambda x: theirs(x, window, **given), [shape]))  # noqa: B023


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_attention_is_that_of_pytorch(data: st.DataObject) -> None:
    """With any number of queries and keys, causal or not."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    queries, keys, features, results = (data.draw(st.integers(1, 9)) for _ in range(4))
    stack = data.draw(array_shapes(min_dims=1, max_dims=2, max_side=3))
    causal, scale = data.draw(st.booleans()), data.draw(st.none() | st.floats(0.1, 2))
    shapes = (*stack, queries, features), (*stack, keys, features), (*stack, keys, results)
    run(same_in_pytorch(
        torch, lambda *own: kernels.scaled_dot_product_attention(*own, is_causal=causal, scale=scale),
        lambda *own: torch.nn.functional.scaled_dot_product_attention(*own, is_causal=causal, scale=scale), shapes,
    ))  # fmt: skip


def test_a_mask_has_a_stack_of_its_own() -> None:
    """The gradients of queries and keys that it is repeated for are summed, as those of any operand that broadcasts."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def theirs(query: Any, key: Any, value: Any, mask: Any) -> Any:
        attention = torch.nn.functional.scaled_dot_product_attention  # which takes no such mask as it is
        return attention(query.expand(2, 3, 4), key.expand(2, 5, 4), value, mask)

    shapes = [(3, 4), (5, 4), (2, 5, 6), (2, 3, 5)]
    run(same_in_pytorch(torch, kernels.scaled_dot_product_attention, theirs, shapes))


def of_an_axis(name: str, theirs: Callable[[Any, Any, int], Any]) -> Any:
    """A case of :data:`AT_RANDOM`: a function of an axis of an array."""

    def make(torch: Any, data: st.DataObject) -> Any:
        shape = data.draw(array_shapes(min_dims=1, max_dims=3, max_side=6))
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        return lambda x: getattr(kernels, name)(x, axis=axis), lambda x: theirs(torch, x, axis), [shape]

    return make


def norms_of_rows(torch: Any, data: st.DataObject, name: str) -> Any:
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, max_side=6))
    options = {"eps": data.draw(st.floats(1e-6, 1e-1))}  # a row of one element is all noise without it
    theirs = getattr(torch.nn.functional, name)
    shapes = [shape, *[shape[-1:]] * (1 if name == "rms_norm" else 2)]
    return (
        lambda *own: getattr(kernels, name)(*own, **options), lambda x, *own: theirs(x, x.shape[-1:], *own, **options), shapes,
    )  # fmt: skip


def stacks_of_products(torch: Any, data: st.DataObject) -> Any:
    rows, inner, columns = (data.draw(st.integers(1, 20)) for _ in range(3))
    stacks = data.draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)).input_shapes
    if data.draw(st.booleans()):
        return kernels.matmul, torch.matmul, [(*stacks[0], rows, inner), (*stacks[1], inner, columns)]
    shapes = [(*stacks[0], inner, rows), (*stacks[1], columns, inner)]
    return lambda x, y: x.mT @ y.mT, lambda x, y: x.mT @ y.mT, shapes


def vectors_among_products(torch: Any, data: st.DataObject) -> Any:
    """A stack of matrices and a vector, in either order."""
    inner, outer = (data.draw(st.integers(1, 6)) for _ in range(2))
    stack = data.draw(array_shapes(min_dims=0, max_dims=2, max_side=4))
    if data.draw(st.booleans()):
        return kernels.matmul, torch.matmul, [(inner,), (*stack, inner, outer)]
    return kernels.matmul, torch.matmul, [(*stack, outer, inner), (inner,)]


def solutions(torch: Any, data: st.DataObject) -> Any:
    """Of stacks of systems, for stacks of matrices or for a vector, which torch tells apart in another way."""
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    first, second = data.draw(mutually_broadcastable_shapes(num_shapes=2, min_dims=0, max_dims=2, max_side=4)).input_shapes
    shapes = [(*first, rows, rows), (rows,) if data.draw(st.booleans()) else (*second, rows, columns)]
    return (
        lambda x, y: linalg.solve(x + 9.0 * kernels.eye(rows, device="cpu"), y),
        lambda x, y: torch.linalg.inv(x + 9.0 * torch.eye(rows)) @ y, shapes,
    )  # fmt: skip


def dots_along_an_axis(torch: Any, data: st.DataObject) -> Any:
    """Of operands whose other dimensions broadcast; the axis is counted from the first or from the last."""
    length = data.draw(st.integers(1, 5))
    rest = data.draw(mutually_broadcastable_shapes(num_shapes=2, min_dims=0, max_dims=2, max_side=4)).input_shapes
    least = min(map(len, rest))
    axis = data.draw(st.integers(-least - 1, least))
    places = [axis if axis >= 0 else axis + len(own) + 1 for own in rest]
    shapes = [(*own[:at], length, *own[at:]) for own, at in zip(rest, places, strict=True)]
    return (
        lambda x, y: kernels.vecdot(x, y, axis=axis),
        lambda x, y: (x.movedim(axis, -1) * y.movedim(axis, -1)).sum(-1), shapes,
    )  # fmt: skip


def joined_along_an_axis(torch: Any, data: st.DataObject) -> Any:
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, max_side=5))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    at = axis % len(shape)
    shapes = [(*shape[:at], length, *shape[at + 1 :]) for length in lengths]
    return lambda *own: kernels.concat(own, axis=axis), lambda *own: torch.cat(own, axis), shapes


def chosen_by_indices(torch: Any, data: st.DataObject) -> Any:
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, max_side=5))
    places = data.draw(st.lists(st.integers(-shape[0], shape[0] - 1), min_size=1, max_size=6))
    return lambda x: x[on_device(places)], lambda x: x[torch.tensor(places)], [shape]


def chosen_by_slices(torch: Any, data: st.DataObject) -> Any:
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, max_side=5))
    slices = [slice(data.draw(st.integers(0, n - 1)), None, data.draw(st.integers(1, 3))) for n in shape]
    index = tuple(slices[: data.draw(st.integers(1, len(shape)))])  # torch has no negative steps
    return lambda x: x[index] * 1.0, lambda x: x[index] * 1.0, [shape]


def rows_of_a_table(torch: Any, data: st.DataObject) -> Any:
    rows, features = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    shape = data.draw(array_shapes(min_dims=1, max_dims=2, max_side=5))
    places = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=math.prod(shape), max_size=math.prod(shape))))
    places, is_taken = places.reshape(shape), data.draw(st.booleans())
    return (
        lambda x: kernels.take(x, on_device(places), axis=0) if is_taken else kernels.embedding(on_device(places), x),
        lambda x: torch.nn.functional.embedding(torch.tensor(places), x), [(rows, features)],
    )  # fmt: skip


def losses_of_classes(torch: Any, data: st.DataObject) -> Any:
    rows, classes = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 20))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    reduction = data.draw(st.sampled_from(["mean", "sum", "none"]))
    ignored = data.draw(st.sampled_from([None, -100, int(labels[0])] if classes > 1 else [None, -100]))
    others = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
    if reduction == "mean" and (labels == ignored).all():
        labels = np.append(labels[1:], (labels[0] + 1) % classes)  # a mean of none has no gradient
    return (
        lambda x: kernels.cross_entropy(x, on_device(labels), reduction=reduction, ignore_index=ignored),
        lambda x: torch.nn.functional.cross_entropy(x, torch.tensor(labels), **others), [(rows, classes)],
    )  # fmt: skip


#: By name: given torch and what shapes are drawn by, a function of ours, the same one of torch, and shapes. By default the
#: first runs: kernels for each number of dimensions take long to compile.
AT_RANDOM: dict[str, Callable[[Any, st.DataObject], Any]] = {
    "concat": joined_along_an_axis,
    "softmax": of_an_axis("softmax", lambda torch, x, axis: torch.softmax(x, axis)),
    "log_softmax": of_an_axis("log_softmax", lambda torch, x, axis: torch.log_softmax(x, axis)),
    "layer_norm": functools.partial(norms_of_rows, name="layer_norm"),
    "rms_norm": functools.partial(norms_of_rows, name="rms_norm"),
    "matmul": stacks_of_products,
    "matmul with a vector": vectors_among_products,
    "solve": solutions,
    "vecdot": dots_along_an_axis,
    "index": chosen_by_indices,
    "slices": chosen_by_slices,
    "rows of a table": rows_of_a_table,
    "cross entropy": losses_of_classes,
    "sum": of_an_axis("sum", lambda torch, x, axis: x.sum(axis)),
    "mean": of_an_axis("mean", lambda torch, x, axis: x.mean(axis)),
    "max": of_an_axis("max", lambda torch, x, axis: x.amax(axis)),
    "min": of_an_axis("min", lambda torch, x, axis: x.amin(axis)),
    "prod": of_an_axis("prod", lambda torch, x, axis: x.prod(axis)),
    "var": of_an_axis("var", lambda torch, x, axis: x.var(axis, correction=0)),
    "std": of_an_axis("std", lambda torch, x, axis: x.std(axis, correction=0)),
    "cumulative_sum": of_an_axis("cumulative_sum", lambda torch, x, axis: x.cumsum(axis)),
    "cumulative_prod": of_an_axis("cumulative_prod", lambda torch, x, axis: x.cumprod(axis)),
    "sort": of_an_axis("sort", lambda torch, x, axis: x.sort(axis).values),
}


@pytest.mark.parametrize("name", some(list(AT_RANDOM), 1))
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_shapes_are_as_in_pytorch(name: str, data: st.DataObject) -> None:
    """Results, gradients, and gradients of these."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    run(same_in_pytorch(torch, *AT_RANDOM[name](torch, data), twice=True))


async def same_in_pytorch(torch: Any, function: Any, other: Any, shapes: Shapes, twice: bool = False) -> None:
    """Compare results and gradients, and if asked for gradients of gradients, in double precision."""
    random = np.random.default_rng(2)
    values = [random.standard_normal(shape) for shape in shapes]
    ours = [autograd.Variable(on_device(value)) for value in values]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    result, expected = function(*ours), other(*theirs)
    assert np.allclose(await result.numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    direction = random.standard_normal(result.shape)
    found = await autograd.grad(result, ours, on_device(direction), create_graph=twice)
    wanted = torch.autograd.grad(expected, theirs, torch.tensor(direction), create_graph=twice)
    assert result.shape == tuple(expected.shape)
    for own, theirs_ in zip(found, wanted, strict=True):
        assert np.allclose(await own.numpy(), theirs_.detach().numpy(), rtol=1e-9, atol=1e-9)
    if not twice or not any(one.requires_grad for one in wanted):
        return
    weights = [random.standard_normal(shape) for shape in shapes]
    totals = [(own * on_device(weight)).sum() for own, weight in zip(found, weights, strict=True)]
    others = [(own * torch.tensor(weight)).sum() for own, weight in zip(wanted, weights, strict=True)]
    found = await autograd.grad(functools.reduce(operator.add, totals), ours, allow_unused=True)
    wanted = torch.autograd.grad(functools.reduce(operator.add, others), theirs, allow_unused=True)
    for own, theirs_ in zip(found, wanted, strict=True):
        pair = 0.0 if own is None else await own.numpy(), 0.0 if theirs_ is None else theirs_.numpy()
        assert np.allclose(*pair, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("axis", [0, 1])
async def test_gradients_of_layer_norm_on_devices_with_threads(axis: int) -> None:
    """There it is the steps that are differentiated; they come to the same."""
    random = np.random.default_rng(5)
    values = [random.standard_normal(shape) for shape in ((4, 3), ((4, 3)[axis],), ((4, 3)[axis],))]
    direction, found = random.standard_normal((4, 3)), []
    for device in ("cpu", "sim"):
        await aiodev.init(device)
        leaves = [autograd.Variable(aiodev.asarray(value, device=device)) for value in values]
        await autograd.backward(kernels.layer_norm(*leaves, axis=axis), aiodev.asarray(direction, device=device))
        found.append([await leaf.grad.numpy() for leaf in leaves])
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, 1e-12, 1e-12)
