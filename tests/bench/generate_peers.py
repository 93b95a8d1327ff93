"""The transformer of examples/generate by others: each takes all texts of a batch one character further.

All work in ``float32`` on the same weights. Attention's bias is that of the present place and of the one that is looked back
at; the first shifts all alike, so only the second is added. Caches have room for ``length`` characters.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["PEERS", "Peer", "is_installed"]

Weights = dict[str, np.ndarray]
#: Takes the codes of a batch and its place; gives the next codes.
Step = Callable[[np.ndarray, int], np.ndarray]
#: Makes a step from weights, heads, the size of a batch, and the longest text.
Peer = Callable[[Weights, int, int, int], Step]

NAMES = "qkv", "out", "up", "down"
EPS = 1e-6


def is_installed(name: str) -> bool:
    """Whether a package is there, without importing it."""
    return importlib.util.find_spec(name) is not None


def slopes_of(heads: int, length: int) -> np.ndarray:
    """What is added to the scores of each place, (heads, length)."""
    slopes = 2.0 ** (-8 * (np.arange(heads) + 1) / heads)
    return (slopes[:, None] * np.arange(length)).astype(np.float32)


def by_numpy(weights: Weights, heads: int, batch: int, length: int) -> Step:
    """In NumPy, whose BLAS has one thread where threadpoolctl can see to it: more lose, at these sizes."""
    if is_installed("threadpoolctl"):
        from threadpoolctl import ThreadpoolController

        ThreadpoolController().select(internal_api="openblas").limit(limits=1)
    width = weights["table"].shape[1]
    bias, scale = slopes_of(heads, length), np.float32(1 / math.sqrt(width // heads))
    shape = len(weights["qkv"]), batch, heads, length, width // heads
    keys, values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def norm(x: np.ndarray) -> np.ndarray:
        return x * (1 / np.sqrt(np.einsum("bi,bi->b", x, x) / np.float32(width) + np.float32(EPS)))[:, None]

    def step(codes: np.ndarray, place: int) -> np.ndarray:
        x = weights["table"][codes]
        for qkv, out, up, down, k, v in zip(*(weights[name] for name in NAMES), keys, values, strict=True):
            query, k[:, :, place], v[:, :, place] = (norm(x) @ qkv).reshape(batch, 3, heads, -1).swapaxes(0, 1)
            scores = (k[:, :, : place + 1] @ (query * scale)[..., None])[..., 0] + bias[:, : place + 1]
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (scores[:, :, None] @ v[:, :, : place + 1])[:, :, 0] / scores.sum(-1, keepdims=True)
            x = x + mixed.reshape(batch, width) @ out
            hidden = np.maximum(norm(x) @ up, 0)
            hidden *= hidden
            x += hidden @ down
        return (norm(x) @ weights["head"]).argmax(-1)

    return step


def _torch_step(weights: Weights, heads: int, batch: int, length: int) -> Any:
    import torch
    from torch.nn.functional import rms_norm, scaled_dot_product_attention

    class Layer(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.qkv, self.out, self.up, self.down = (
                torch.nn.Parameter(torch.from_numpy(weights[name][number].T.copy())) for name in NAMES
            )

        def forward(self, x, bias, keys, values, place: int):
            shown = torch.nn.functional.linear(rms_norm(x, [x.shape[-1]], None, 1e-6), self.qkv)
            query, key, value = shown.view(x.shape[0], 3, bias.shape[0], -1).unbind(1)
            keys[:, :, place] = key
            values[:, :, place] = value
            mixed = scaled_dot_product_attention(
                query.unsqueeze(2), keys[:, :, : place + 1], values[:, :, : place + 1], bias[:, :, : place + 1]
            )
            x = x + torch.nn.functional.linear(mixed.reshape(x.shape), self.out)
            hidden = torch.nn.functional.linear(rms_norm(x, [x.shape[-1]], None, 1e-6), self.up)
            return x + torch.nn.functional.linear(torch.relu(hidden).square(), self.down)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.from_numpy(weights["table"]))
            self.head = torch.nn.Parameter(torch.from_numpy(weights["head"].T.copy()))
            self.register_buffer("bias", torch.from_numpy(slopes_of(heads, length))[:, None])
            self.layers = torch.nn.ModuleList(Layer(n) for n in range(len(weights["qkv"])))

        def forward(self, codes, keys, values, place: int):
            x = self.table[codes]
            for number, layer in enumerate(self.layers):
                x = layer(x, self.bias, keys[number], values[number], place)
            return torch.nn.functional.linear(rms_norm(x, [x.shape[-1]], None, 1e-6), self.head).argmax(-1)

    return Model().eval().requires_grad_(False)


def _by_torch(threads: int, frozen: bool) -> Peer:
    def make(weights: Weights, heads: int, batch: int, length: int) -> Step:
        import torch

        model = _torch_step(weights, heads, batch, length)
        if frozen:
            model = torch.jit.optimize_for_inference(torch.jit.script(model))
        width = weights["table"].shape[1]
        keys, values = (torch.zeros(len(weights["qkv"]), batch, heads, length, width // heads) for _ in range(2))

        def step(codes: np.ndarray, place: int) -> np.ndarray:
            if torch.get_num_threads() != threads:  # each thread of Python has a number of its own
                torch.set_num_threads(threads)
            with torch.inference_mode():
                return model(torch.from_numpy(codes), keys, values, place).numpy()

        return step

    return make


def by_jax(weights: Weights, heads: int, batch: int, length: int) -> Step:
    """One compiled step, whose caches are written in place."""
    import jax
    import jax.numpy as jnp

    width = weights["table"].shape[1]
    shape = batch, heads, length, width // heads
    scale = 1 / math.sqrt(width // heads)
    given = {name: jnp.asarray(matrix) for name, matrix in weights.items()}
    bias = jnp.asarray(slopes_of(heads, length))

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS)

    def one(given: Any, caches: Any, codes: Any, place: Any) -> Any:
        x, changed = given["table"][codes], []
        seen = jnp.where(jnp.arange(length) <= place, bias, -jnp.inf)
        for number, (k, v) in enumerate(caches):
            qkv, out, up, down = (given[name][number] for name in NAMES)
            query, key, value = jnp.moveaxis((norm(x) @ qkv).reshape(batch, 3, heads, -1), 1, 0)
            k = jax.lax.dynamic_update_slice_in_dim(k, key[:, :, None], place, 2)
            v = jax.lax.dynamic_update_slice_in_dim(v, value[:, :, None], place, 2)
            shares = jax.nn.softmax(jnp.einsum("bhd,bhtd->bht", query * scale, k) + seen)
            x = x + jnp.einsum("bht,bhtd->bhd", shares, v).reshape(batch, width) @ out
            x = x + jnp.square(jax.nn.relu(norm(x) @ up)) @ down
            changed.append((k, v))
        return (norm(x) @ given["head"]).argmax(-1), changed

    compiled = jax.jit(one, donate_argnums=1)
    caches = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(len(weights["qkv"]))]

    def step(codes: np.ndarray, place: int) -> np.ndarray:
        nonlocal caches
        found, caches = compiled(given, caches, codes, np.int32(place))
        return np.asarray(found)

    return step


def _by_onnxruntime(threads: int) -> Peer:
    def make(weights: Weights, heads: int, batch: int, length: int) -> Step:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(_onnx_model(weights, heads, batch), options, ["CPUExecutionProvider"])
        layers, width = len(weights["qkv"]), weights["table"].shape[1]
        names = [f"{kind}{number}" for number in range(layers) for kind in "kv"]
        bias = slopes_of(heads, length)
        empty = np.zeros((batch, heads, 0, width // heads), np.float32)
        caches: dict[str, Any] = {}

        def step(codes: np.ndarray, place: int) -> np.ndarray:
            nonlocal caches
            if not place:
                caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(empty) for name in names}
            given = {"codes": codes, "bias": bias[None, :, None, : place + 1]}
            values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x)) for name, x in given.items()}
            found = session.run_with_ort_values(["next", *(f"{name}_out" for name in names)], values | caches)
            caches = dict(zip(names, found[1:], strict=True))
            return found[0].numpy()

        return step

    return make


def _onnx_model(weights: Weights, heads: int, batch: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    width = weights["table"].shape[1]
    nodes: list[Any] = []
    constants = {name: weights[name] for name in ("table", "head")} | {
        f"{name}{number}": weights[name][number] for name in NAMES for number in range(len(weights["qkv"]))
    }
    constants |= {"gain": np.ones(width, np.float32), "scale": np.float32(1 / math.sqrt(width // heads))}
    constants |= {
        "split": np.array([batch, 3, heads, width // heads]), "flat": np.array([batch, width]),
        "first": np.array(0), "second": np.array(1), "third": np.array(2), "one": np.array([2]),
    }  # fmt: skip

    def put(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def norm(x: str, output: str) -> str:
        return put("SimplifiedLayerNormalization", [x, "gain"], output, axis=-1, epsilon=EPS)

    x = put("Gather", ["table", "codes"], "embedded")
    for n in range(len(weights["qkv"])):
        heads_of = put("Reshape", [put("MatMul", [norm(x, f"h{n}"), f"qkv{n}"], f"shown{n}"), "split"], f"heads{n}")
        query, key, value = (
            put("Unsqueeze", [put("Gather", [heads_of, which], f"{which}{n}_flat", axis=1), "one"], f"{which}{n}")
            for which in ("first", "second", "third")
        )
        keys, values = put("Concat", [f"k{n}", key], f"k{n}_out", axis=2), put("Concat", [f"v{n}", value], f"v{n}_out", axis=2)
        turned = put("Transpose", [keys], f"turned{n}", perm=[0, 1, 3, 2])
        fits = put("MatMul", [put("Mul", [query, "scale"], f"scaled{n}"), turned], f"fits{n}")
        shares = put("Softmax", [put("Add", [fits, "bias"], f"biased{n}")], f"shares{n}", axis=-1)
        mixed = put("Reshape", [put("MatMul", [shares, values], f"mixed{n}"), "flat"], f"mixed_flat{n}")
        x = put("Add", [x, put("MatMul", [mixed, f"out{n}"], f"outer{n}")], f"x{n}")
        hidden = put("Relu", [put("MatMul", [norm(x, f"g{n}"), f"up{n}"], f"hidden{n}")], f"positive{n}")
        x = put("Add", [x, put("MatMul", [put("Mul", [hidden, hidden], f"squared{n}"), f"down{n}"], f"lower{n}")], f"y{n}")
    put("ArgMax", [put("MatMul", [norm(x, "last"), "head"], "scores")], "next", axis=-1, keepdims=0)

    def cache(name: str, length: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, heads, length, width // heads])

    kinds = [f"{kind}{n}" for n in range(len(weights["qkv"])) for kind in "kv"]
    graph = helper.make_graph(
        nodes,
        "step",
        [
            helper.make_tensor_value_info("codes", TensorProto.INT64, [batch]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, [1, heads, 1, "after"]),
            *(cache(name, "before") for name in kinds),
        ],
        [
            helper.make_tensor_value_info("next", TensorProto.INT64, [batch]),
            *(cache(f"{name}_out", "after") for name in kinds),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


#: By name: the packages that are needed, and what makes the step.
PEERS: dict[str, tuple[tuple[str, ...], Peer]] = {
    "NumPy": ((), by_numpy),
    "PyTorch eager, 1 thread": (("torch",), _by_torch(1, False)),
    "PyTorch eager, 2 threads": (("torch",), _by_torch(2, False)),
    "PyTorch frozen, 1 thread": (("torch",), _by_torch(1, True)),
    "PyTorch frozen, 2 threads": (("torch",), _by_torch(2, True)),
    "ONNX Runtime, 1 thread": (("onnx", "onnxruntime"), _by_onnxruntime(1)),
    "ONNX Runtime, 2 threads": (("onnx", "onnxruntime"), _by_onnxruntime(2)),
    "JAX jit": (("jax",), by_jax),
}
