"""Optimizers: their steps are those of the formulas, and of PyTorch where that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import autograd, optim, testing

pytestmark = pytest.mark.anyio

MAKERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda parameters: optim.SGD(parameters, 0.1),
    "SGD with momentum": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.01),
    "SGD, Nesterov": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: optim.Adam(parameters, 0.1, weight_decay=0.01),
    "AdamW": lambda parameters: optim.AdamW(parameters, 0.1),
}


def a_leaf(values: Any, dtype: str = "float64") -> Any:
    return autograd.Variable(aiodev.asarray(np.asarray(values, dtype), device="cpu"))


def loss_of(w: Any, b: Any) -> Any:
    return ((w * w).sum(axis=1) * b).sum() + (b * b * b).sum()


def reference(name: str, w: np.ndarray, b: np.ndarray, steps: int) -> list[np.ndarray]:
    """The formulas, by NumPy."""
    parameters = [w.copy(), b.copy()]
    first, second = ([np.zeros_like(p) for p in parameters] for _ in range(2))
    for step in range(1, steps + 1):
        own_w, own_b = parameters
        gradients = [2 * own_w * own_b[:, None], (own_w**2).sum(axis=1) + 3 * own_b**2]
        for k, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
            if name.startswith("SGD"):
                momentum = 0.9 if name != "SGD" else 0.0
                g = g + (0.01 * p if name == "SGD with momentum" else 0)
                first[k] = momentum * first[k] + g
                p -= 0.1 * (g + momentum * first[k] if name == "SGD, Nesterov" else first[k])
            else:
                if name == "Adam":
                    g = g + 0.01 * p
                else:
                    p *= 1 - 0.1 * 0.01
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g * g
                root = np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8
                p -= 0.1 * first[k] / (1 - 0.9**step) / root
    return parameters


async def trained(optimizer: optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        await loss_of(*optimizer.parameters).backward()
        optimizer.step()


W, B = np.array([[0.5, -0.3], [0.2, 0.1]]), np.array([0.4, -0.2])


@pytest.mark.parametrize("name", MAKERS)
async def test_steps_are_those_of_the_formula(name: str) -> None:
    """Several of them, of several parameters."""
    w, b = a_leaf(W), a_leaf(B)
    await trained(MAKERS[name]([w, b]), 4)
    for own, expected in zip((w, b), reference(name, W, B, 4), strict=True):
        assert np.allclose(await own.numpy(), expected, rtol=1e-12)


async def test_single_precision_stays() -> None:
    """Parameters and state keep their dtype."""
    w, b = a_leaf(W, "float32"), a_leaf(B, "float32")
    optimizer = optim.Adam([w, b], 0.1)
    await trained(optimizer, 3)
    assert w.dtype == "float32" and optimizer.state_dict()["state"]["0.mean"].dtype == "float32"
    assert np.isfinite(await w.numpy()).all()


@pytest.mark.parametrize("beta2", [0.999, 0.99999999])
async def test_means_in_single_precision_have_the_weights_of_double_precision(beta2: float) -> None:
    """Of which single precision leaves few digits, or none: the step would be off by as much, or be of any size."""
    w = a_leaf(W, "float32")
    optimizer = optim.Adam([w], 0.5, betas=(0.9, beta2))
    for step in range(1, 6):
        w.grad = aiodev.asarray(np.full_like(W, 3.0, "float32"), device="cpu")
        optimizer.step()
        assert np.allclose(await w.numpy(), W - 0.5 * step, rtol=1e-6, atol=1e-6)
    square = await optimizer.state_dict()["state"]["0.square"].numpy()
    assert np.allclose(square, (1 - beta2**5) * 9.0, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", MAKERS)
async def test_state_is_saved_and_loaded(name: str) -> None:
    """By way of the host; training goes on as if it had not stopped."""
    w, b = a_leaf(W), a_leaf(B)
    optimizer = MAKERS[name]([w, b])
    await trained(optimizer, 2)
    saved = optimizer.state_dict()
    saved["state"] = {key: await value.numpy() for key, value in saved["state"].items()}
    other = [a_leaf(await one.numpy()) for one in (w, b)]
    again = MAKERS[name](other)
    again.load_state_dict(saved)
    await trained(again, 2)
    for own, expected in zip(other, reference(name, W, B, 4), strict=True):
        assert np.allclose(await own.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
async def test_many_parameters_are_to_the_bit_as_each_by_itself(name: str) -> None:
    """More than one operation takes, of several shapes and two dtypes, some of them without a gradient; step after step."""
    random = np.random.default_rng(0)
    hosts = [random.standard_normal((1 + k % 3, 4)).astype("f4" if k % 5 else "f8") for k in range(40)]
    slopes = [random.standard_normal((3, *host.shape)).astype(host.dtype) for host in hosts]
    together, apart = ([autograd.Variable(aiodev.asarray(host, device="cpu")) for host in hosts] for _ in range(2))
    optimizers = [MAKERS[name](together), *[MAKERS[name]([one]) for one in apart]]
    for step in range(3):
        for leaf in (*together, *apart):
            leaf.grad = None
        for k, own in enumerate(slopes):
            if k % 7 or step:
                together[k].grad, apart[k].grad = (aiodev.asarray(own[step], device="cpu") for _ in range(2))
        optimizers[0].step()
        for optimizer, leaf in zip(optimizers[1:], apart, strict=True):
            if leaf.grad is not None:
                optimizer.step()
    for one, other in zip(together, apart, strict=True):
        assert (await one.numpy()).tobytes() == (await other.numpy()).tobytes()


#: With options that are not those by default.
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.5, "weight_decay": 0.25, "nesterov": True},
    "Adam": {"betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.25},
    "AdamW": {"betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.25},
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_options_are_saved_and_loaded(name: str) -> None:
    """Training goes on with them, though the optimizer was made with others; a state that has none leaves them."""
    make = getattr(optim, name)
    w, b = a_leaf(W), a_leaf(B)
    optimizer = make([w, b], lr=0.5, **OPTIONS[name])
    await trained(optimizer, 2)
    state = optimizer.state_dict()
    saved = {key: await value.numpy() for key, value in state["state"].items()}
    others = [a_leaf(await one.numpy()) for one in (w, b)]
    again = make(others, **({"momentum": 0.1} if name == "SGD" else {}))
    default = {own: getattr(again, own) for own in OPTIONS[name]}
    again.load_state_dict({"lr": state["lr"], "state": saved})
    assert {own: getattr(again, own) for own in OPTIONS[name]} == default
    again.load_state_dict({**state, "state": saved})
    assert {own: getattr(again, own) for own in OPTIONS[name]} == OPTIONS[name] and again.lr == 0.5
    await trained(optimizer, 2)
    await trained(again, 2)
    for one, other in zip((w, b), others, strict=True):
        assert np.array_equal(await other.numpy(), await one.numpy())


@pytest.mark.parametrize("is_loaded", [False, True])
async def test_momentum_that_is_set_later(is_loaded: bool) -> None:
    """From the next step on it is as if it had been there; at 0 it is forgotten."""
    w, other = a_leaf([1.0]), a_leaf([1.0])
    optimizer, made = optim.SGD([w], 0.5), optim.SGD([other], 0.5, momentum=0.5)
    if is_loaded:
        optimizer.load_state_dict(made.state_dict())
    else:
        optimizer.momentum = 0.5
    assert [*optimizer.state_dict()["state"]] == ["0.velocity"]
    w.grad = other.grad = aiodev.ones(1, device="cpu")
    for _ in range(2):
        optimizer.step()
        made.step()
    assert await w.item() == await other.item() == 1.0 - 0.5 - 0.75
    optimizer.momentum = 0.0
    assert optimizer.state_dict()["state"] == {}
    optimizer.step()
    assert await w.item() == -0.75
    made.load_state_dict(optimizer.state_dict())
    assert made.momentum == 0.0


async def test_a_step_follows_what_makes_its_state_on_another_stream() -> None:
    """Zeros that are made later would be what is left of the step, and so would what is loaded."""
    w, n = a_leaf(np.ones(1 << 12)), 1 << 12
    w.grad = aiodev.ones(n, device="cpu")
    for load in (False, True):
        optimizer, loaded = (optim.SGD([w], 0.5, momentum=0.5) for _ in range(2))
        dirty = aiodev.full(n, 7.0, device="cpu")
        await aiodev.synchronize("cpu")
        del dirty  # whose memory zeros are written to
        with aiodev.Stream("cpu") as side:
            latch = testing.Latch(side)
            if load:
                optimizer.load_state_dict(loaded.state_dict())
            else:
                optimizer = optim.SGD([w], 0.5, momentum=0.5)
        optimizer.step()
        latch.release()
        await aiodev.synchronize("cpu")
        assert (await optimizer.state_dict()["state"]["0.velocity"].numpy() == 1.0).all()


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("SGD", "momentum", -0.5), ("SGD", "weight_decay", "much"), ("SGD", "nesterov", 1), ("SGD", "nesterov", True),
        ("Adam", "betas", (2.0, 3.0)), ("Adam", "betas", 0.5), ("Adam", "eps", -1.0), ("AdamW", "weight_decay", np.nan),
        ("SGD", "lr", np.array(True)), ("SGD", "lr", np.array([0.1])), ("SGD", "lr", np.array(1j)),
    ],
)  # fmt: skip
async def test_options_are_checked_where_they_are_set(name: str, option: str, value: Any) -> None:
    """As when the optimizer is made; it keeps what it had, whether it is set or loaded."""
    optimizer = getattr(optim, name)([a_leaf([1.0])])
    before, state = getattr(optimizer, option), optimizer.state_dict()
    with pytest.raises((TypeError, ValueError), match=name):
        setattr(optimizer, option, value)
    if option != "betas":
        wrong = {"lr": value} if option == "lr" else {"options": {**state["options"], option: value}}
        with pytest.raises((TypeError, ValueError), match=name):
            optimizer.load_state_dict({"lr": 0.5, **{key: own for key, own in state.items() if key != "lr"}, **wrong})
        assert optimizer.lr == state["lr"]
    assert getattr(optimizer, option) == before


async def test_numbers_of_files_are_arrays() -> None:
    """Of no dimensions, as NumPy's files have them."""
    optimizer = optim.SGD([a_leaf([1.0])], momentum=0.5)
    saved = {"velocity": np.zeros(1), "lr": np.array(0.25, "f4"), "momentum": np.array(0.75), "nesterov": np.array(True)}
    options = {name: saved[name] for name in ("momentum", "nesterov")}
    optimizer.load_state_dict({"lr": saved["lr"], "options": options, "state": {"0.velocity": saved["velocity"]}})
    assert (optimizer.lr, optimizer.momentum, optimizer.nesterov) == (0.25, 0.75, True)
    optimizer.lr = np.array(1)
    assert optimizer.lr == 1.0


async def test_a_learning_rate_that_is_loaded_is_a_copy() -> None:
    """As all arrays are: what is written to that of the other optimizer later is not its own."""
    first, second = (optim.SGD([a_leaf([1.0])]) for _ in range(2))
    first.lr = rate = aiodev.full((), 0.5, "float64", "cpu")
    second.load_state_dict(first.state_dict())
    rate[...] = 0.25
    assert await second.lr.item() == 0.5 and await first.lr.item() == 0.25


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
async def test_a_state_of_another_precision_is_converted(dtype: str) -> None:
    """Device memory and NumPy's alike."""
    given, made, again = (optim.Adam([a_leaf([1.0, 2.0])]) for _ in range(3))
    state = given.state_dict()
    arrays = {name: aiodev.full(one.shape, 3.0, dtype, "cpu") for name, one in state["state"].items()}
    made.load_state_dict({**state, "state": arrays})
    again.load_state_dict({**state, "state": {name: await one.numpy() for name, one in arrays.items()}})
    for one in (*made.state_dict()["state"].values(), *again.state_dict()["state"].values()):
        assert (await one.numpy() == 3.0).all()


async def test_a_refused_state_changes_nothing() -> None:
    """Neither numbers nor arrays, whichever of them is refused."""
    optimizer = optim.AdamW([a_leaf([1.0]), a_leaf([2.0])], lr=0.5)
    other = optim.AdamW([a_leaf([1.0]), a_leaf([2.0])], lr=0.25, betas=(0.1, 0.2)).state_dict()
    arrays = {name: aiodev.ones(one.shape, one.dtype, "cpu") for name, one in other["state"].items()}
    for last in list(arrays):
        with pytest.raises(TypeError, match=f"{last}: expected real numbers, got complex64"):
            optimizer.load_state_dict({**other, "state": {**arrays, last: aiodev.ones(arrays[last].shape, "complex64", "cpu")}})
    assert (optimizer.lr, optimizer.betas) == (0.5, (0.9, 0.999))
    assert all([(await one.numpy() == 0).all() for one in optimizer.state_dict()["state"].values()])


def test_the_state_of_others_is_refused() -> None:
    """By the names and shapes of its arrays."""
    mine, other = MAKERS["Adam"]([a_leaf(W)]), MAKERS["Adam"]([a_leaf(B)])
    for wrong in (other.state_dict(), MAKERS["SGD"]([a_leaf(W)]).state_dict(), {}):
        with pytest.raises(ValueError, match="load_state_dict"):
            mine.load_state_dict(wrong)


async def test_the_learning_rate_is_changed() -> None:
    """It holds from the next step on."""
    w = a_leaf([1.0])
    optimizer = optim.SGD([w], 0.0)
    w.grad = aiodev.ones(1, device="cpu")
    optimizer.step()
    optimizer.lr = 0.25
    optimizer.step()
    assert await w.item() == 0.75


async def test_parameters_without_a_gradient_stay() -> None:
    """Whatever the others do."""
    w, b = a_leaf(W), a_leaf(B)
    optimizer = optim.Adam([w, b], 0.1)
    await (w * w).sum().backward()
    optimizer.step()
    assert np.array_equal(await b.numpy(), B) and not np.array_equal(await w.numpy(), W)


async def test_a_step_follows_gradients_of_other_streams() -> None:
    """It waits, on the device, for what still writes them."""
    w = a_leaf([1.0])
    with aiodev.Stream("cpu") as side:
        loss = (w * 3.0).sum()
        latch = testing.Latch(side)
        await loss.backward()
    with aiodev.Stream("cpu") as main:
        optim.SGD([w], 0.1).step()
        assert not main.query()
        latch.release()
        assert await w.item() == pytest.approx(0.7)


async def test_a_step_follows_readers_on_other_streams() -> None:
    """A forward pass that still reads a parameter on another stream reads what it was."""
    w = a_leaf([1.0])
    with aiodev.Stream("cpu") as side:
        latch = testing.Latch(side)
        seen = w.detach() * 1.0
    w.grad = aiodev.ones(1, device="cpu")
    optim.SGD([w], 0.5).step()
    latch.release()
    assert await seen.item() == 1.0 and await w.item() == 0.5


async def test_clipped_gradients() -> None:
    """By their common norm; those that are small enough stay as they are."""
    w, b = a_leaf([3.0]), a_leaf([4.0])
    w.grad, b.grad = w.detach() * 1.0, b.detach() * 1.0
    before = w.grad
    norm = optim.clip_grad_norm([w, b], 1.0)
    assert await norm.item() == 5.0
    assert np.allclose([await w.grad.item(), await b.grad.item()], [0.6, 0.8], rtol=1e-5)
    assert await before.item() == 3.0
    optim.clip_grad_norm([w, b], 10.0)
    assert np.allclose([await w.grad.item(), await b.grad.item()], [0.6, 0.8], rtol=1e-5)


async def test_clipped_elements() -> None:
    """Each is brought between the bounds; the arrays that were there are left as they are."""
    w, b = a_leaf([3.0, -0.5]), a_leaf([-4.0], "float32")
    w.grad, b.grad = w.detach() * 1.0, b.detach() * 1.0
    before = w.grad
    optim.clip_grad_value([w, b, a_leaf([1.0])], 1.0)
    assert await w.grad.tolist() == [1.0, -0.5] and await b.grad.tolist() == [-1.0]
    assert await before.tolist() == [3.0, -0.5] and b.grad.dtype == "float32"


@pytest.mark.parametrize("values", [[3.0, 4.0], [3.0, np.inf]])
async def test_no_bound_clips_nothing(values: list[float]) -> None:
    """The norm is told, as PyTorch's users measure it."""
    w = a_leaf(values)
    w.grad = gradient = w.detach() * 1.0
    norm = optim.clip_grad_norm([w], float("inf"))
    assert await norm.item() == np.hypot(*values) and w.grad is gradient
    optim.clip_grad_value([w], float("inf"))
    assert await w.grad.tolist() == values


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
async def test_a_learning_rate_in_device_memory(dtype: str) -> None:
    """It is read when the step runs, and computed with as a number is."""
    for name, make in MAKERS.items():
        (w, b), (other, c) = ([a_leaf(W, dtype), a_leaf(B, dtype)] for _ in range(2))
        optimizer, by_number = make([w, b]), make([other, c])
        rate = aiodev.full((), 0.3, "float64", "cpu")
        optimizer.lr, by_number.lr = rate, 0.3
        for one, value in zip((w, b, other, c), (W, B, W, B), strict=True):
            one.grad = aiodev.asarray(value.astype(dtype), device="cpu")
        for optimizer_ in (optimizer, by_number):
            optimizer_.step()
        rate[...] = 0.2
        by_number.lr = 0.2
        for optimizer_ in (optimizer, by_number):
            optimizer_.step()
        assert optimizer.lr is rate
        assert np.array_equal(await w.numpy(), await other.numpy()), name
        assert np.array_equal(await b.numpy(), await c.numpy()), name


async def test_gradients_that_are_filled_with_zeros() -> None:
    """In place, after what reads them on another stream."""
    w, b = a_leaf([1.0]), a_leaf([2.0])
    w.grad = gradient = aiodev.ones(1, device="cpu")
    with aiodev.Stream("cpu") as side:
        side.wait_stream(aiodev.default_stream("cpu"))
        latch = testing.Latch(side)
        seen = gradient * 1.0
    optim.SGD([w, b], 0.1).zero_grad(set_to_none=False)
    latch.release()
    assert await seen.item() == 1.0
    assert w.grad is gradient and await gradient.item() == 0.0 and b.grad is None


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda w: optim.SGD([], 0.1), ValueError),
        (lambda w: optim.SGD([w, w], 0.1), ValueError),
        (lambda w: optim.SGD([w.detach()], 0.1), TypeError),
        (lambda w: optim.SGD([w * 2.0], 0.1), TypeError),
        (lambda w: optim.SGD([w], -0.1), ValueError),
        (lambda w: optim.SGD([w], "fast"), TypeError),
        (lambda w: optim.SGD([w], 0.1, nesterov=True), ValueError),
        (lambda w: optim.Adam([w], betas=(0.9, 1.0)), ValueError),
        (lambda w: optim.clip_grad_norm([w], 1.0), ValueError),
        (lambda w: optim.clip_grad_value([w], 1.0), ValueError),
        (lambda w: optim.SGD([w], aiodev.ones(1, device="cpu")), ValueError),
        (lambda w: optim.Adam([w], aiodev.ones((), "int32", "cpu")), ValueError),
        (lambda w: optim.SGD([w]).zero_grad(1), TypeError),
    ],
)
def test_wrong_arguments(make: Callable[[Any], Any], error: type[Exception]) -> None:
    """They are named."""
    with pytest.raises(error, match="SGD|Adam|clip_grad"):
        make(a_leaf([1.0]))


@pytest.mark.parametrize("name", MAKERS)
async def test_training_is_that_of_pytorch(name: str) -> None:
    """The same parameters, step by step."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    makers = {
        "SGD": lambda p: torch.optim.SGD(p, 0.1),
        "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        "SGD, Nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        "Adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01),
        "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    }
    ours, theirs = [a_leaf(W), a_leaf(B)], [torch.tensor(value, requires_grad=True) for value in (W, B)]
    optimizer, other = MAKERS[name](ours), makers[name](theirs)
    for _ in range(5):
        await trained(optimizer, 1)
        other.zero_grad()
        loss_of(theirs[0], theirs[1]).backward()
        other.step()
        for own, expected in zip(ours, theirs, strict=True):
            assert np.allclose(await own.numpy(), expected.detach().numpy(), rtol=1e-9)
