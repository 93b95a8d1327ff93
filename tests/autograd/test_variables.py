"""Variables: arrays in all but that what is done with them is recorded."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd

pytestmark = pytest.mark.anyio


def a_leaf(*values: float) -> Any:
    return autograd.Variable(aiodev.asarray(list(values) or [1.0, 2.0, 3.0], device="cpu"))


def test_a_variable_shares_memory_and_is_an_array() -> None:
    """It has all that an array has."""
    x = aiodev.ones((2, 3), device="cpu")
    v = autograd.Variable(x)
    assert isinstance(v, aiodev.Array) and v.address == x.address and v.detach() is x
    assert (v.shape, v.dtype, v.ndim, v.size) == ((2, 3), np.float64, 2, 6)
    assert v.is_leaf and v.requires_grad and v.grad is None and v.grad_fn is None


def test_results_are_variables_of_a_graph() -> None:
    """With a node, whose name is the operation's."""
    y = a_leaf() * 2.0
    assert not y.is_leaf and y.requires_grad
    assert y.grad_fn.name == "multiply" and "test_variables.py" in y.grad_fn.called_at


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_dtypes_without_gradients_are_refused(dtype: str) -> None:
    """By name."""
    with pytest.raises(TypeError, match=f"or complex ones, got {dtype}"):
        autograd.Variable(aiodev.zeros(2, dtype=dtype, device="cpu"))


def test_results_without_gradients_are_arrays() -> None:
    """Comparisons, places, and whole numbers."""
    x = a_leaf()
    for found in (x > 1.0, kernels.argmax(x), x.astype("int64"), kernels.count_nonzero(x)):
        assert type(found) is aiodev.Array


def test_what_requires_no_gradient_is_not_recorded() -> None:
    """A frozen leaf is an array to operations, until it is set free again."""
    x = a_leaf()
    x.requires_grad = False
    assert type(x * 2.0) is aiodev.Array
    x.requires_grad = True
    assert (x * 2.0).requires_grad


def test_an_operation_without_a_gradient_says_so() -> None:
    """At its call: nothing is detached silently."""
    x = a_leaf()
    with pytest.raises(NotImplementedError, match="no gradient is declared"):
        kernels.nextafter(x, 9.0)
    with autograd.no_grad():
        assert kernels.nextafter(x, 9.0).numpy_blocking()[0] > 1


async def test_values_of_a_variable() -> None:
    """They are read as those of arrays are."""
    x = a_leaf() * 2.0
    assert await x.tolist() == [2.0, 4.0, 6.0]
    assert await x[1].item() == 4.0
    assert float(x[2]) == 6.0
    assert np.asarray(x).sum() == 12.0


async def test_every_arithmetic_operator() -> None:
    """With numbers and arrays, on either side."""
    x = a_leaf(2.0, 3.0)
    other = aiodev.asarray([4.0, 5.0], device="cpu")
    y = (x + 1.0) - (other - x) * (x / other) + other / x + x**2 - (-x) + 2.0 * abs(x) + (2.0 - x)
    await y.sum().backward()
    value = np.array([2.0, 3.0])
    expected = 1 - (4 - 2 * value) / [4, 5] * 1.0
    host = np.array([4.0, 5.0])
    expected = 1 - (host - 2 * value) / host - host / value**2 + 2 * value + 1 + 2 - 1
    assert np.allclose(await x.grad.numpy(), expected)


async def test_matrix_product_operator() -> None:
    """``@`` is recorded, with a variable on either side."""
    x, m = a_leaf(1.0, 2.0), aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    await ((m @ x) @ x).backward()
    assert await x.grad.tolist() == [2 * 1 + 5 * 2, 5 * 1 + 8 * 2]


@contextlib.contextmanager
def blocking_forbidden() -> Iterator[None]:
    """Whatever blocks the loop's thread raises."""
    before = aiodev.get_sync_debug_mode()
    aiodev.set_sync_debug_mode("error")
    try:
        yield
    finally:
        aiodev.set_sync_debug_mode(before)


@pytest.mark.parametrize(
    "operate",
    [
        lambda x: x[1:], lambda x: x[0], lambda x: x[::-1], lambda x: x[None], lambda x: x[[0, 2, 0]],
        lambda x: x.reshape(3, 1), lambda x: x.reshape(1, 3).T, lambda x: x.reshape(1, 3).mT, lambda x: x.to("cpu"),
        lambda x: copy.copy(x * 1.0), lambda x: x.copy(), lambda x: x.astype("float32"), lambda x: x.astype("float64"),
        lambda x: aiodev.broadcast_to(x, (2, 3)), lambda x: aiodev.asarray(x, copy=True),
        lambda x: aiodev.asarray(x, "float32"), lambda x: kernels.reshape(x, (3, 1), copy=True),
        lambda x: kernels.moveaxis(x.reshape(3, 1), 0, 1), lambda x: next(iter(x)),
        lambda x: kernels.expand_dims(x), lambda x: kernels.unstack(x)[1], lambda x: kernels.flip(x), lambda x: x.mean(),
        lambda x: x.max(), lambda x: kernels.where(x > 1.0, x, 0.0),
    ],
)  # fmt: skip
async def test_nothing_loses_the_graph(operate: Callable[[Any], Any]) -> None:
    """Views, copies, conversions and methods of a variable are variables, and their gradient arrives."""
    x = a_leaf()
    y = operate(x)
    assert type(y) is autograd.Variable and y.requires_grad
    await y.sum().backward()
    assert x.grad.shape == x.shape and x.grad.dtype == x.dtype


async def test_operators_in_place_are_recorded_as_new_results() -> None:
    """``y += x`` of a result gives another variable; what was kept of the first stays."""
    x = a_leaf()
    first = y = kernels.exp(x)
    y += x
    y *= 2.0
    assert y is not first
    await y.sum().backward()
    assert np.allclose(await x.grad.numpy(), 2 * (np.exp([1.0, 2.0, 3.0]) + 1))


async def test_leaves_are_written_to_where_nothing_is_recorded() -> None:
    """The operator gives the variable itself then; else it is refused."""
    x = same = a_leaf()
    with pytest.raises(RuntimeError, match="leaf"):
        x += 1.0
    with autograd.no_grad():
        x -= 1.0
        x[0] = 7.0
    assert x is same and x.is_leaf
    assert await x.tolist() == [7.0, 1.0, 2.0]


def test_what_is_not_recorded_is_refused() -> None:
    """Writing a variable to arrays, or to its elements; nothing is lost silently."""
    x, plain = a_leaf(), aiodev.zeros(3, device="cpu")
    with pytest.raises(RuntimeError, match="not recorded"):
        x[0] = 1.0
    with pytest.raises(RuntimeError, match="not recorded"):
        plain.copy_from(x)
    with pytest.raises(RuntimeError, match="not recorded"):
        (x * 2.0).copy_from(plain)
    with pytest.raises(RuntimeError, match="no part in a graph"):
        kernels.add(x, plain, out=plain)
    with pytest.raises(RuntimeError, match="no part in a graph"):
        plain += x
    with pytest.raises(ValueError, match="free"):
        x.free()


@pytest.mark.parametrize("dtype", ["float64", "complex64", "bfloat16"])
async def test_what_numpy_sees_of_a_variable_is_read_only(dtype: str) -> None:
    """It has the memory, and the values, which a gradient may need; copies may be written to, and what is not recorded."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    leaf = autograd.Variable(aiodev.ones(2, dtype, "cpu"))
    result = kernels.exp(leaf)
    for x in (leaf, result):
        seen = np.asarray(x)
        assert not seen.flags.writeable and np.shares_memory(seen, np.asarray(x.detach()))
        assert not x.__array__(copy=False).flags.writeable
        with pytest.raises(ValueError):
            seen.flags.writeable = True
        for copied in (np.array(x), x.__array__(copy=True), np.asarray(x, np.complex128), await x.numpy()):
            assert copied.flags.writeable and not np.shares_memory(copied, seen)
        assert np.asarray(x.detach()).flags.writeable
        with autograd.no_grad():
            assert np.asarray(x).flags.writeable and x.__array__().flags.writeable
    leaf.requires_grad = False
    assert np.asarray(leaf).flags.writeable


async def test_a_variable_is_exported_as_a_copy_or_not_at_all() -> None:
    """Many consumers of DLPack write to what they are told is read-only; a gradient would not know."""
    leaf = a_leaf()
    for x in (leaf, kernels.exp(leaf)):
        for asked in ({}, {"copy": False}, {"max_version": (1, 0)}, {"dl_device": [1, 0]}, {"stream": -1}):
            with pytest.raises(BufferError, match=r"not recorded; export x\.detach\(\)"):
                x.__dlpack__(**asked)
        copied = aiodev.from_dlpack(Exported(x, copy=True))
        copied[0] = 9.0
        assert await copied.tolist() != await x.tolist()
        assert aiodev.from_dlpack(Exported(x.detach())).address == x.address
        with autograd.no_grad():
            assert aiodev.from_dlpack(Exported(x)).address == x.address
    await kernels.exp(leaf).sum().backward()
    assert np.allclose(await leaf.grad.numpy(), np.exp([1.0, 2.0, 3.0]))
    leaf.requires_grad = False
    assert aiodev.from_dlpack(Exported(leaf)).address == leaf.address


class Exported:
    """What a consumer gets of an array."""

    def __init__(self, array: aiodev.Array, **asked: Any) -> None:
        self.array, self.asked = array, asked

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given, **self.asked)


async def test_retained_gradients_of_results() -> None:
    """They are stored as those of leaves, and the result is not kept alive."""
    x = a_leaf()
    y = x * 2.0
    y.retain_grad()
    await (y * y).sum().backward()
    assert await y.grad.tolist() == [4.0, 8.0, 12.0]


async def test_retained_gradients_are_stored_at_the_end() -> None:
    """By a pass that stores gradients, and has not failed; they are added to what was there."""
    x = a_leaf()
    y = x * 2.0
    y.retain_grad()
    z = (y * 3.0).sum()
    await autograd.grad(z, x, retain_graph=True)
    assert y.grad is None
    with x.register_hook(lambda g: 1 / 0), pytest.raises(autograd.GradientError):
        await z.backward(retain_graph=True)
    assert y.grad is None and x.grad is None
    for times in (1, 2):
        await z.backward(retain_graph=True)
        assert await y.grad.tolist() == [3.0 * times] * 3 and await x.grad.tolist() == [6.0 * times] * 3


async def test_hooks_that_change_what_hooks_there_are() -> None:
    """Those that were there when the gradient came are called; a hook may register others, and retain gradients."""
    x, seen = a_leaf(), list[int]()
    y = x * 2.0
    handles: list[Any] = []

    def remove(gradient: Any) -> None:
        seen.append(1)
        for handle in handles:
            handle.remove()

    y.register_hook(remove)
    handles.append(y.register_hook(lambda gradient: seen.append(2)))
    z = y.sum()
    for expected in ([1, 2], [1]):
        seen.clear()
        await z.backward(retain_graph=True)
        assert seen == expected
    q, r = kernels.linalg.qr(autograd.Variable(aiodev.asarray([[2.0, 1.0], [1.0, 3.0]], device="cpu")))
    q.register_hook(lambda gradient: (r.retain_grad(), r.register_hook(lambda g: None))[2:] or None)
    await (q.sum() + r.sum()).backward()
    assert await r.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("kind", ["array", "tuple of arrays", "NumPy's array", "list"])
async def test_an_index_is_as_it_was_in_the_forward(kind: str) -> None:
    """One of the host's is copied, and one on a device must not be written to until the gradient is made."""
    x, host = a_leaf(), np.array([0, 1])
    index: Any = {"list": [0, 1], "NumPy's array": host}.get(kind, aiodev.asarray(host, device="cpu"))
    y = x[(index,) if kind == "tuple of arrays" else index]
    (first,) = await autograd.grad((y * y * y).sum(), x, create_graph=True)
    index[:] = [2, 2] if kind == "list" else 2
    if isinstance(index, aiodev.Array):
        with pytest.raises(autograd.GradientError, match="an index, kept for the gradient, has been written to"):
            await y.sum().backward()
        return
    await y.sum().backward(retain_graph=True)
    assert await x.grad.tolist() == [1.0, 1.0, 0.0]
    (second,) = await autograd.grad(first.sum(), x)
    assert await second.tolist() == [6.0, 12.0, 0.0]


async def test_arrays_are_not_made_of_variables_without_a_word() -> None:
    """Where that is recorded; else they are of their numbers."""
    x = a_leaf()
    for given in ([x[0], 1.0], [1.0, x[0]], ([1.0, 2.0], [3.0, x[0]])):
        with pytest.raises(RuntimeError, match=r"unlike kernels\.stack of them, is not recorded"):
            aiodev.asarray(given)
    with pytest.raises(RuntimeError, match="full of a variable is not recorded"):
        aiodev.full(2, x[0], device="cpu")
    with autograd.no_grad():
        assert await aiodev.asarray([x[0], x[1]], device="cpu").tolist() == [1.0, 2.0]


async def test_hooks_of_variables() -> None:
    """They see the whole gradient, may replace it, and are removed by their handles; also those of leaves."""
    x = a_leaf()
    y = x * 2.0
    seen: list[Any] = []
    with y.register_hook(lambda g: g * 10.0):
        handle = x.register_hook(lambda g: seen.append(g))
        await (y * 1.0 + y * 2.0).sum().backward(retain_graph=True)
    handle.remove()
    assert await x.grad.tolist() == [60.0] * 3
    assert len(seen) == 1 and await seen[0].tolist() == [60.0] * 3


async def test_hooks_of_nodes() -> None:
    """Before a node, with its results' gradients; behind it, with those of its operands, too."""
    x = a_leaf()
    y = x * 2.0
    y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 2.0,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + outputs[0], *inputs[1:]))
    await y.sum().backward()
    assert await x.grad.tolist() == [6.0] * 3


async def test_hooks_behind_accumulation() -> None:
    """They are called with the leaf, which has its gradient then, before the pass is over."""
    x, w = a_leaf(), a_leaf()
    seen = []
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append((leaf is x, leaf.grad is not None, w.grad)))
    await (x * w).sum().backward()
    assert seen == [(True, True, None)]
    assert w.grad is not None


@pytest.mark.parametrize("hook", [None, 3])
def test_hooks_are_functions(hook: Any) -> None:
    """Something else is refused."""
    with pytest.raises(TypeError, match="hook"):
        a_leaf().register_hook(hook)


@pytest.mark.parametrize("register", [
    lambda x, hook: x.register_hook(hook),
    lambda x, hook: (x * 2.0).register_hook(hook),
    lambda x, hook: x.register_post_accumulate_grad_hook(hook),
    lambda x, hook: (x * 2.0).grad_fn.register_prehook(hook),
    lambda x, hook: (x * 2.0).grad_fn.register_hook(hook),
], ids=["leaf", "result", "accumulation", "node, before", "node, behind"])  # fmt: skip
def test_hooks_are_no_coroutine_functions(register: Any) -> None:
    """Nobody would await what they make."""

    async def hook(*given: Any) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="makes coroutines"):
        register(a_leaf(), hook)


async def test_a_hook_that_returns_something_else() -> None:
    """It fails the pass by name."""
    x = a_leaf()
    y = x * 2.0
    y.register_hook(lambda g: 3)
    with pytest.raises(autograd.GradientError, match="expected an array, or None, got int"):
        await y.sum().backward()


async def test_a_leafs_hook_that_fails() -> None:
    """It fails the pass as a node does, and nothing is stored."""
    x, w = a_leaf(), a_leaf()
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(autograd.GradientError, match="a leaf of the shape") as caught:
        await (x * w).sum().backward()
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and w.grad is None


async def test_copies_and_pickles() -> None:
    """Leaves are copied and pickled with whether they require a gradient; results of a graph are not pickled."""
    x = a_leaf()
    await x.tolist()  # the stream may wait for a compiler, and the reducer of aiodev.dask for a moment only
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(other) is autograd.Variable and other.is_leaf and other.requires_grad
        assert other.address != x.address and await other.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(x * 2.0)
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(x * 2.0)


def test_setting_a_gradient() -> None:
    """It is of the shape, dtype and device of the variable."""
    x = a_leaf()
    x.grad = aiodev.zeros(3, device="cpu")
    x.grad = None
    for wrong in (aiodev.zeros(2, device="cpu"), aiodev.zeros(3, dtype="float32", device="cpu")):
        with pytest.raises(ValueError, match="grad"):
            x.grad = wrong
    with pytest.raises(RuntimeError, match="leaves"):
        (x * 2.0).requires_grad = False


async def test_kernels_take_variables() -> None:
    """A launch is refused where it would have to be recorded, the first as any other; else it reads and writes their memory."""

    @aiodev.kernel
    def double(i: int, x: Any) -> None:
        x[i] = 2 * x[i]

    x, constant = a_leaf(), autograd.Variable(aiodev.ones(3, device="cpu"), requires_grad=False)
    for _ in range(2):
        for refused in (x, x * 1.0):
            with pytest.raises(RuntimeError, match="launch of a kernel with a variable is not recorded"):
                double[3](refused)
            with pytest.raises(RuntimeError, match="not recorded"):
                double.bind(3, refused)
        with autograd.no_grad():
            await double[3](x)  # and is compiled, so that later ones are launched another way
            double[3](x)
            double.bind(3, x)()
        double[3](x.detach())
        double[3](constant)
    assert await x.tolist() == [256.0, 512.0, 768.0] and await constant.tolist() == [4.0] * 3


async def test_a_mask_is_waited_for_once() -> None:
    """How many elements it chooses is known by the forward pass; the backward pass blocks nobody."""
    x = a_leaf()
    mask = x > 1.5
    y = x[mask]
    assert y.shape == (2,) and y.requires_grad
    with blocking_forbidden():
        (first,) = await autograd.grad((y * y).sum(), x, create_graph=True)
        (second,) = await autograd.grad((first * first).sum(), x)
    assert await first.tolist() == [0.0, 4.0, 6.0] and await second.tolist() == [0.0, 16.0, 24.0]


@pytest.mark.parametrize(("mask", "gradient"), [(True, [1.0, 1.0, 1.0]), (np.bool_(True), [1.0, 1.0, 1.0]), (False, [0.0] * 3)])
async def test_a_mask_of_no_dimensions(mask: Any, gradient: list[float]) -> None:
    """It chooses all, or nothing."""
    x = a_leaf()
    chosen = x[mask]
    assert chosen.shape == (int(mask), 3)
    await chosen.sum().backward()
    assert await x.grad.tolist() == gradient


async def test_mixed_dtypes() -> None:
    """Gradients have the dtype of what they are of."""
    x = autograd.Variable(aiodev.ones(3, dtype="float32", device="cpu"))
    y = autograd.Variable(aiodev.ones(3, device="cpu"))
    await (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)


async def test_broadcast_operands() -> None:
    """Their gradients are summed to their shapes."""
    x, y = autograd.Variable(aiodev.ones((2, 1, 3), device="cpu")), autograd.Variable(aiodev.ones((4, 1), device="cpu"))
    await (x * y).sum().backward()
    assert (x.grad.shape, y.grad.shape) == ((2, 1, 3), (4, 1))
    assert await y.grad.tolist() == [[6.0]] * 4


async def test_what_no_gradient_needs_is_not_kept() -> None:
    """Of a product by what has no gradient, such as a number, a mask or frozen weights, that alone; so the other may change."""
    x, mask = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu")), aiodev.asarray([0.0, 3.0], device="cpu")
    weights = aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    cases = [
        (lambda: x * 2.0, [2.0, 2.0], 0),
        (lambda: x / 2.0, [0.5, 0.5], 0),
        (lambda: x * mask, [0.0, 3.0], 1),
        (lambda: mask * x, [0.0, 3.0], 1),
        (lambda: weights @ x, [4.0, 6.0], 1),
    ]
    for call, expected, arrays in cases * 2:  # the second time by what was remembered
        y = call()
        kept = [one for one in y.grad_fn.kept if isinstance(one, aiodev.Array)]
        assert len(kept) == arrays and all(one is not x.detach() for one in kept)
        with autograd.no_grad():
            x[0] = 7.0
        x.grad = None
        await y.sum().backward()
        assert await x.grad.tolist() == expected
