"""Attention and embedding against their definitions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.nn.embedding import embedding_of_weight
from aiodev.testing import SimulatedBackend

if "sim" not in aiodev.available_backends():
    aiodev.register_backend("sim", SimulatedBackend)


def on_device(host: Any, device: str = "cpu") -> aiodev.Array:
    return aiodev.asarray(np.asarray(host), device=device)


def attended(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float) -> Any:
    """The definition, in double precision; 0 for a query that sees nothing."""
    scores = query.astype(float) @ np.swapaxes(key.astype(float), -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value.astype(float)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_attention(device: str, data: st.DataObject) -> None:
    """Of stacks that broadcast, under any mask."""
    queries, keys, features, results = (data.draw(st.integers(1, 5)) for _ in range(4))
    stacks = data.draw(st.sampled_from([((), (), ()), ((2,), (2,), (2,)), ((2, 3), (3,), (2, 1)), ((), (2,), ())]))
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    shapes = (*stacks[0], queries, features), (*stacks[1], keys, features), (*stacks[2], keys, results)
    operands = [random.standard_normal(shape) for shape in shapes]
    kind = data.draw(st.sampled_from([None, "chosen", "added"]))
    stack = np.broadcast_shapes(*stacks)
    mask = None if kind is None else random.random((*stack[:1], *(1 for _ in stack[1:]), queries, keys)) > 0.4
    if kind == "added":
        assert mask is not None
        mask = np.where(mask, random.standard_normal(mask.shape), -np.inf)
    causal = data.draw(st.booleans())
    scale = data.draw(st.none() | st.floats(-2, 2))
    given_mask = None if mask is None else on_device(mask, device)
    found = kernels.scaled_dot_product_attention(
        *(on_device(x, device) for x in operands), given_mask, is_causal=causal, scale=scale
    )
    expected = attended(*operands, mask, causal, features**-0.5 if scale is None else scale)
    np.testing.assert_allclose(found.numpy_blocking(), np.broadcast_to(expected, found.shape), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_of_large_scores(dtype: str) -> None:
    """Nothing overflows, and nothing is NaN, in any precision."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (100 * np.random.default_rng(0).standard_normal((3, 40, 8))).astype(kind)
    found = kernels.scaled_dot_product_attention(*(on_device(x) for _ in range(3)), is_causal=True)
    expected = attended(x, x, x, None, True, 8**-0.5)
    assert found.dtype == kind
    units = {"float32": 2e-4, "float16": 2e-3, "bfloat16": 2e-2}[dtype]  # of scores of some thousand; of rounding the result
    np.testing.assert_allclose(found.numpy_blocking().astype(float), expected, rtol=units, atol=100 * units)


def test_attention_refuses_what_does_not_fit() -> None:
    """And says what."""
    x, y = aiodev.ones((3, 4), device="cpu"), aiodev.ones((2, 4), device="cpu")
    attention = kernels.scaled_dot_product_attention
    with pytest.raises(ValueError, match="argument key: expected at least 2 dimensions"):
        attention(x, x[0], x)
    with pytest.raises(ValueError, match=r"shapes \(3, 4\), \(2, 4\) and \(3, 4\) do not fit"):
        attention(x, y, x)
    with pytest.raises(TypeError, match="argument value: expected real numbers"):
        attention(x, x, kernels.astype(x, "float32"))
    with pytest.raises(ValueError, match="attn_mask has the shape"):
        attention(x, x, x, aiodev.ones((2, 3, 3), device="cpu"))
    with pytest.raises(TypeError, match="attn_mask is int64"):
        attention(x, x, x, aiodev.ones((3, 3), "i8", "cpu"))
    with pytest.raises(TypeError, match="scale 'one': expected a real number"):
        attention(x, x, x, scale="one")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("rows", "width", "shape"), [(3, 1, (4,)), (5, 40, (2, 3)), (2, 4, ()), (9, 33, (200,)), (3, 2, (0,))])
def test_embedding(device: str, rows: int, width: int, shape: tuple[int, ...]) -> None:
    """Rows at indices, from the end, too; what goes back is their sum, in the order of the indices, to the bit."""
    random = np.random.default_rng(1)
    indices, weight = random.integers(-rows, rows, shape), random.standard_normal((rows, width)).astype("f4")
    there = on_device(indices, device)
    found = kernels.embedding(there, on_device(weight, device))
    np.testing.assert_array_equal(found.numpy_blocking(), weight[indices])
    grads, expected = random.standard_normal(found.shape).astype("f4"), np.zeros_like(weight)
    np.add.at(expected, indices.ravel(), grads.reshape(-1, width))
    back = embedding_of_weight(on_device(grads, device), there, shape=weight.shape)
    np.testing.assert_array_equal(back.numpy_blocking(), expected)


def test_embedding_refuses_what_does_not_fit() -> None:
    """And of an index that is out of bounds the waiter is told."""
    weight = aiodev.ones((3, 4), device="cpu")
    with pytest.raises(TypeError, match="expected integers, got float64"):
        kernels.embedding(weight, weight)
    with pytest.raises(ValueError, match="argument weight: expected 2 dimensions"):
        kernels.embedding(on_device([0]), weight[0])
    found = kernels.embedding(on_device([0, 3]), weight)
    with pytest.raises(aiodev.KernelError) as caught:
        found.numpy_blocking()
    assert isinstance(caught.value.__cause__, IndexError)
