"""Optimizers: each parameter's step is one kernel, submitted as all work is, and nothing of it is known to the host alone.

How many steps were taken is counted on the device, so a step that is recorded as a part of a graph counts on when it is
replayed. Parameters are written to in place; gradients are left as they are. A schedule is a plain function of yours:
``optimizer.lr = schedule(epoch)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

import aiodev
from aiodev import kernels
from aiodev._autograd.delivery import follow
from aiodev._autograd.variable import Variable
from aiodev._core.arguments import instance, items, message, number

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "clip_grad_norm"]

aiodev.register_library(__name__)


def __dir__() -> list[str]:
    return __all__


@aiodev.kernel(reads=("g",))
def descend(i: int, lr: float, decay: float, g: Any, x: Any) -> None:
    """Gradient descent without momentum, of one element."""
    x[i] -= lr * (g[i] + decay * x[i])


@aiodev.kernel(reads=("g",))
def descend_with_momentum(
    i: int, lr: float, momentum: float, decay: float, nesterov: bool, g: Any, x: Any, velocity: Any
) -> None:
    """Gradient descent with momentum, of one element."""
    slope = g[i] + decay * x[i]
    velocity[i] = momentum * velocity[i] + slope
    x[i] -= lr * (slope + momentum * velocity[i]) if nesterov else lr * velocity[i]


@aiodev.kernel
def count_step(i: int, lr: float, beta1: float, beta2: float, steps: Any, factors: Any) -> None:
    """Count a step; how far it goes, and what the root of the squares is divided by, with their biases corrected."""
    steps[0] += 1.0
    factors[0] = lr / (1.0 - beta1 ** steps[0])
    factors[1] = (1.0 - beta2 ** steps[0]) ** 0.5


@aiodev.kernel(reads=("g", "factors"))
def adapt(
    i: int,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    shrink: float,
    g: Any,
    factors: Any,
    x: Any,
    mean: Any,
    square: Any,
) -> None:
    """A step of Adam, of one element: ``decay`` is added to the gradient, ``shrink`` taken off the element itself."""
    slope = g[i] + decay * x[i]
    mean[i] = beta1 * mean[i] + (1 - beta1) * slope
    square[i] = beta2 * square[i] + (1 - beta2) * slope * slope
    x[i] = x[i] - shrink * x[i] - factors[0] * mean[i] / (square[i] ** 0.5 / factors[1] + eps)


class Optimizer:
    """What optimizers share: parameters, the state of each, and how that is saved.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate, to be changed at any time.

    Raises:
        TypeError: a parameter is no leaf that may require a gradient, or a number none; or this class itself is called.
        ValueError: there are no parameters, one is there twice, they are on different devices, or a number is out of bounds.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> w = autograd.Variable(aiodev.ones(3, device="cpu"))
        >>> optimizer = aiodev.optim.SGD([w], lr=0.1)
        >>> isinstance(optimizer, aiodev.optim.Optimizer), len(optimizer.parameters)
        (True, 1)
    """

    __slots__ = ("__weakref__", "_flat", "_kept", "_lr", "_parameters", "_state")

    _kept: tuple[str, ...]  #: names of the arrays that there are for each parameter, of its shape and dtype; set by subclasses

    def __init__(self, parameters: Iterable[Variable], lr: float) -> None:
        name = type(self).__name__
        if type(self) is Optimizer:
            raise TypeError("Optimizer: is what optimizers share; make one of them, such as SGD or Adam")
        self._parameters = _variables(name, parameters)
        if not self._parameters:
            raise ValueError(f"{name}: parameters: expected one or more, got none")
        if len({id(one) for one in self._parameters}) != len(self._parameters):
            raise ValueError(f"{name}: parameters: one is there twice")
        if len({one.device for one in self._parameters}) != 1:
            raise ValueError(f"{name}: parameters: expected those of one device; have an optimizer for each")
        if not all(one.is_leaf and one._form.packed and one.writable for one in self._parameters):
            raise TypeError(f"{name}: parameters: expected leaves without gaps, that may be written to")
        self.lr = lr
        self._state: dict[str, aiodev.Array] = {}
        self._flat: list[tuple[aiodev.Array, list[aiodev.Array]]] = []
        for place, one in enumerate(self._parameters):
            for kept in self._kept:
                self._state[f"{place}.{kept}"] = aiodev.zeros(one.shape, one.dtype, one.device)
        self._flatten()

    def _flatten(self) -> None:
        """Have all that belongs to a parameter as arrays of one dimension."""
        self._flat = [
            (_flat(one.detach()), [_flat(self._state[f"{place}.{kept}"]) for kept in self._kept])
            for place, one in enumerate(self._parameters)
        ]

    @property
    def parameters(self) -> Sequence[Variable]:
        """What is optimized."""
        return tuple(self._parameters)

    @property
    def lr(self) -> float:
        """The learning rate; set it for the steps that follow."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = _bounded(type(self).__name__, "lr", value)

    def step(self) -> None:
        """Submit a step of all parameters that have a gradient, to the current stream; waits for nothing.

        It is ordered after what writes the gradients and what uses the parameters, on whatever streams.
        """
        stream = aiodev.current_stream(self._parameters[0].device)
        given = []
        for one, (flat, state) in zip(self._parameters, self._flat, strict=True):
            gradient = one.grad
            if gradient is None:
                continue
            if isinstance(gradient, Variable):
                gradient = gradient.detach()
            _order(stream, one.detach())
            _order(stream, gradient)
            given.append((gradient if gradient.ndim == 1 and gradient._form.packed else _flat(gradient), flat, state))
        if given:
            self._submit(stream, given)

    def _submit(self, stream: aiodev.Stream, given: list[tuple[aiodev.Array, aiodev.Array, list[aiodev.Array]]]) -> None:
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forget the gradients: set them to None."""
        for one in self._parameters:
            one.grad = None

    def state_dict(self) -> dict[str, Any]:
        """What has to be saved to go on later: numbers, and arrays by their names, which are the optimizer's own.

        To a file they go by way of the host: ``{name: await x.numpy() …}``.
        """
        return {"lr": self.lr, "state": dict(self._state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; arrays may be NumPy's, and are copied in stream order.

        Raises:
            TypeError: it is no such dictionary, or has something else than arrays and numbers in it.
            ValueError: it is that of another optimizer, or of other parameters.
        """
        where = f"{type(self).__name__}: load_state_dict"
        instance(where, "state", state, Mapping, "what state_dict gave")  # type: ignore[type-abstract]
        given = state.get("state")
        if not isinstance(given, Mapping) or given.keys() != self._state.keys():
            shown = list(given) if isinstance(given, Mapping) else given
            raise ValueError(f"{where}: expected arrays {sorted(self._state)}, got {shown}")
        for name, own in self._state.items():
            instance(where, name, given[name], aiodev.Array | np.ndarray, "an array")  # type: ignore[arg-type]
            if given[name].shape != own.shape:
                raise ValueError(f"{where}: {name}: expected the shape {own.shape}, got {given[name].shape}")
        if "lr" not in state:
            raise ValueError(f"{where}: expected a learning rate, lr, got none")
        self.lr = state["lr"]
        for name, own in self._state.items():
            value = given[name]
            own.copy_from(value if isinstance(value, aiodev.Array) else np.asarray(value, own.dtype))

    def __repr__(self) -> str:
        return f"<aiodev.optim.{type(self).__name__} of {len(self._parameters)} parameters, lr={self.lr}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("optimizers are not pickled or copied; save and load their state_dict")


class SGD(Optimizer):
    """Gradient descent, with momentum as in PyTorch: ``v = momentum * v + g``, ``x -= lr * v``.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate.
        momentum: how much of the last step is taken again.
        weight_decay: how much of the parameter is added to its gradient.
        nesterov: take the momentum's step before the gradient is looked at.

    Raises:
        ValueError: a number is out of bounds, or ``nesterov`` is asked for without momentum.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> async def main():
        ...     w = autograd.Variable(aiodev.asarray([4.0], device="cpu"))
        ...     optimizer = aiodev.optim.SGD([w], lr=0.25)
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         await (w * w).sum().backward()
        ...         optimizer.step()
        ...     return await w.item()
        >>> import asyncio; asyncio.run(main())
        0.5
    """

    __slots__ = ("momentum", "nesterov", "weight_decay")

    def __init__(
        self,
        parameters: Iterable[Variable],
        lr: float = 1e-3,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.momentum = _bounded("SGD", "momentum", momentum)
        self.weight_decay = _bounded("SGD", "weight_decay", weight_decay)
        self.nesterov = instance("SGD", "nesterov", nesterov, bool, "True or False")
        if nesterov and not momentum:
            raise ValueError("SGD: nesterov: expected a momentum beside it, got 0")
        self._kept = ("velocity",) if momentum else ()
        super().__init__(parameters, lr)

    def _submit(self, stream: aiodev.Stream, given: list[tuple[aiodev.Array, aiodev.Array, list[aiodev.Array]]]) -> None:
        for gradient, flat, state in given:
            if state:
                numbers = self.lr, self.momentum, self.weight_decay, self.nesterov
                descend_with_momentum[flat.size, stream](*numbers, gradient, flat, *state)
            else:
                descend[flat.size, stream](self.lr, self.weight_decay, gradient, flat)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with the decay of weights added to the gradient.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate.
        betas: how much is kept of the running means of gradients and of their squares.
        eps: what is added to the root of the latter.
        weight_decay: how much of the parameter is added to its gradient.

    Raises:
        TypeError: as :class:`Optimizer`.
        ValueError: a number is out of bounds, or ``betas`` are not two.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> async def main():
        ...     w = autograd.Variable(aiodev.asarray([4.0], device="cpu"))
        ...     optimizer = aiodev.optim.Adam([w], lr=0.5)
        ...     await (w * w).sum().backward()
        ...     optimizer.step()
        ...     return round(await w.item(), 6)
        >>> import asyncio; asyncio.run(main())
        3.5
    """

    __slots__ = ("_factors", "betas", "eps", "weight_decay")

    def __init__(
        self,
        parameters: Iterable[Variable],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        name = type(self).__name__
        pair = items(name, "betas", betas, "two numbers")
        if len(pair) != 2:
            raise ValueError(message(name, "betas", "two numbers", betas))
        first, second = pair
        self.betas = _bounded(name, "betas", first, below=1.0), _bounded(name, "betas", second, below=1.0)
        self.eps = _bounded(name, "eps", eps)
        self.weight_decay = _bounded(name, "weight_decay", weight_decay)
        self._kept = "mean", "square"
        super().__init__(parameters, lr)
        device = self._parameters[0].device
        self._state["steps"] = aiodev.zeros(1, np.float64, device)
        self._factors = aiodev.zeros(2, np.float64, device)

    def _decays(self) -> tuple[float, float]:
        """What is added to the gradient, and taken off the parameter."""
        return self.weight_decay, 0.0

    def _submit(self, stream: aiodev.Stream, given: list[tuple[aiodev.Array, aiodev.Array, list[aiodev.Array]]]) -> None:
        for own in (self._state["steps"], self._factors):
            _order(stream, own)
        count_step[1, stream](self.lr, *self.betas, self._state["steps"], self._factors)
        numbers = *self.betas, self.eps, *self._decays()
        for gradient, flat, state in given:
            adapt[flat.size, stream](*numbers, gradient, self._factors, flat, *state)


class AdamW(Adam):
    """Adam with the decay of weights apart from the gradient (Loshchilov and Hutter, 2019): ``x -= lr * weight_decay * x``.

    Arguments are those of :class:`Adam`.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> w = autograd.Variable(aiodev.ones(3, device="cpu"))
        >>> aiodev.optim.AdamW([w], lr=1e-2)
        <aiodev.optim.AdamW of 1 parameters, lr=0.01>
    """

    __slots__ = ()

    def __init__(
        self,
        parameters: Iterable[Variable],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _decays(self) -> tuple[float, float]:
        return 0.0, self.lr * self.weight_decay


def clip_grad_norm(parameters: Iterable[Variable], max_norm: float, *, ord: float = 2.0) -> aiodev.Array:
    """Scale the gradients of parameters so that their common norm is no more than ``max_norm``; returns the norm before.

    The norm stays on the device, and nothing is waited for. Gradients are replaced, not written to.

    Args:
        parameters: of one device; those without a gradient are left out.
        max_norm: the largest norm.
        ord: of the norm of all elements together.

    Raises:
        TypeError: a parameter is no variable, or ``max_norm`` no number.
        ValueError: no parameter has a gradient, or ``max_norm`` is below 0.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> async def main():
        ...     w = autograd.Variable(aiodev.asarray([3.0, 4.0], device="cpu"))
        ...     await (0.5 * w * w).sum().backward()
        ...     norm = aiodev.optim.clip_grad_norm([w], 1.0)
        ...     return await norm.item(), (await w.grad.numpy()).round(3).tolist()
        >>> import asyncio; asyncio.run(main())
        (5.0, [0.6, 0.8])
    """
    largest = _bounded("clip_grad_norm", "max_norm", max_norm)
    with_gradient = [one for one in _variables("clip_grad_norm", parameters) if one.grad is not None]
    if not with_gradient:
        raise ValueError("clip_grad_norm: no parameter has a gradient")
    gradients = [_detached(one.grad) for one in with_gradient]
    stream = aiodev.current_stream(gradients[0].device)
    for gradient in gradients:
        _order(stream, gradient)
    norms = [kernels.linalg.vector_norm(gradient, ord=ord) for gradient in gradients]
    total = norms[0] if len(norms) == 1 else kernels.linalg.vector_norm(kernels.stack(norms), ord=ord)
    factor = kernels.minimum(kernels.divide(largest, kernels.add(total, 1e-6)), 1.0)
    for one, gradient in zip(with_gradient, gradients, strict=True):
        one.grad = kernels.multiply(gradient, factor if factor.dtype == gradient.dtype else factor.astype(gradient.dtype))
    return total


def _variables(function: str, parameters: Iterable[Variable]) -> list[Variable]:
    given = items(function, "parameters", parameters, "variables")
    return [instance(function, "parameters", one, Variable, "variables") for one in given]


def _detached(gradient: Any) -> aiodev.Array:
    detached: aiodev.Array = gradient.detach() if isinstance(gradient, Variable) else gradient
    return detached


def _flat(x: aiodev.Array) -> aiodev.Array:
    return x.reshape(x.size)


def _bounded(function: str, name: str, value: Any, below: float = float("inf")) -> float:
    """A number from 0 on."""
    given = number(function, name, value)
    if not 0.0 <= given < below:
        limit = f", below {below}" if below == 1.0 else ""
        raise ValueError(f"{function}: {name}={value!r}: expected a number from 0 on{limit}")
    return given


def _order(stream: aiodev.Stream, x: aiodev.Array) -> None:
    """Order a stream after what uses an array's memory, where another stream does."""
    buffer, timeline = x._buffer, stream.timeline
    if buffer._writer is not timeline or buffer._reader is not timeline or buffer._readers is not None:
        follow(stream, buffer.contents())
        follow(stream, buffer.pending())
