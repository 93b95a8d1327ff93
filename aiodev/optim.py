"""Optimizers: a step is one operation for many parameters, submitted as all work is; nothing of it is known to the host alone.

How many steps were taken is counted on the device, so a step that is captured into a graph counts on when it is replayed. The
learning rate may be in device memory, too. Parameters are written to in place; gradients are left as they are. A schedule is a
plain function of yours: ``optimizer.lr = schedule(epoch)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

import aiodev
from aiodev import dtypes, kernels
from aiodev._autograd.tuning import PARAMETERS_TOGETHER
from aiodev._autograd.variable import Variable
from aiodev._core.arguments import instance, items, message, number

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "clip_grad_norm", "clip_grad_value"]

T = TypeVar("T")

aiodev.register_library(__name__)


def __dir__() -> list[str]:
    return __all__


# The learning rate is ``lr * rate[()]``: a number and ones, or 1.0 and what is in device memory.


@aiodev.kernel(reads=("rate", "g"))
def descend(i: int, lr: float, decay: float, rate: Any, g: Any, x: Any) -> None:
    """Gradient descent without momentum, of one element."""
    x[i] -= lr * rate[()] * (g[i] + decay * x[i])


@aiodev.kernel(reads=("rate", "g"))
def descend_with_momentum(
    i: int, lr: float, momentum: float, decay: float, nesterov: bool, rate: Any, g: Any, x: Any, velocity: Any
) -> None:
    """Gradient descent with momentum, of one element."""
    slope = g[i] + decay * x[i]
    velocity[i] = momentum * velocity[i] + slope
    x[i] -= lr * rate[()] * (slope + momentum * velocity[i] if nesterov else velocity[i])


@aiodev.kernel(reads=("rate",))
def count_step(
    i: int, lr: float, beta1: float, beta2: float, shrink: float, rate: Any, steps: Any, factors: Any
) -> None:
    """Count a parameter's step; how far it goes, what the root of the squares is divided by, what is taken off the elements."""
    steps[i] += 1.0
    factors[i, 0] = lr * rate[()] / (1.0 - beta1 ** steps[i])
    factors[i, 1] = (1.0 - beta2 ** steps[i]) ** 0.5
    factors[i, 2] = lr * rate[()] * shrink


@aiodev.kernel(reads=("g", "factors"))
def adapt(
    i: int,
    beta1: float,
    beta2: float,
    fresh1: float,
    fresh2: float,
    eps: float,
    decay: float,
    g: Any,
    factors: Any,
    x: Any,
    mean: Any,
    square: Any,
) -> None:
    """A step of Adam, of one element; ``decay`` of it is added to the gradient.

    ``fresh1`` and ``fresh2`` are ``1 - beta1`` and ``1 - beta2``, from the host: in single precision little would be left of
    those, while :func:`count_step` corrects by what they are in double precision.
    """
    slope = g[i] + decay * x[i]
    mean[i] = beta1 * mean[i] + fresh1 * slope
    square[i] = beta2 * square[i] + fresh2 * slope * slope
    x[i] = x[i] - factors[2] * x[i] - factors[0] * mean[i] / (square[i] ** 0.5 / factors[1] + eps)


# Steps of several parameters, as operations: what is launched for arrays of these layouts is found out once.


@aiodev.operation(reads=["rate", "*gradients", "*parameters"], numbers=["lr", "decay"], name="SGD")
def _descend(
    call: aiodev.Call, lr: Any, decay: Any, rate: aiodev.Array, gradients: Any, parameters: Any
) -> aiodev.Array:
    for g, x in zip(gradients, parameters, strict=True):
        call.launch(descend, x.size, lr, decay, rate, _flat(g), _flat(x))
    return rate


@aiodev.operation(
    reads=["rate", "*gradients", "*parameters", "*velocities"], numbers=["lr", "momentum", "decay"], name="SGD"
)
def _descend_with_momentum(
    call: aiodev.Call, lr: Any, momentum: Any, decay: Any, nesterov: bool, rate: aiodev.Array, gradients: Any, parameters: Any,
    velocities: Any,
) -> aiodev.Array:  # fmt: skip
    for g, x, velocity in zip(gradients, parameters, velocities, strict=True):
        numbers = lr, momentum, decay, nesterov
        call.launch(descend_with_momentum, x.size, *numbers, rate, _flat(g), _flat(x), _flat(velocity))
    return rate


@aiodev.operation(
    reads=["*gradients", "*parameters", "*means", "*squares", "*factors"],
    numbers=["beta1", "beta2", "fresh1", "fresh2", "eps", "decay"],
    name="Adam",
)
def _adapt(
    call: aiodev.Call, beta1: Any, beta2: Any, fresh1: Any, fresh2: Any, eps: Any, decay: Any, gradients: Any, parameters: Any,
    means: Any, squares: Any, factors: Any,
) -> aiodev.Array:  # fmt: skip
    for g, x, mean, square, own in zip(gradients, parameters, means, squares, factors, strict=True):
        numbers = beta1, beta2, fresh1, fresh2, eps, decay
        call.launch(adapt, x.size, *numbers, _flat(g), own, _flat(x), _flat(mean), _flat(square))
    first: aiodev.Array = factors[0]
    return first


@aiodev.kernel(reads=("total",))
def find_factor(i: int, largest: float, total: Any, factor: Any) -> None:
    """What gradients of a norm are multiplied by."""
    factor[()] = min(largest / (total[()] + 1e-6), 1.0)


class _Option(Generic[T]):
    """What an optimizer was made with: it may be set, is checked as then, and holds from the next step on."""

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, optimizer: Any, owner: Any = None) -> T:
        found: Any = self if optimizer is None else optimizer._options[self._name]
        return found  # type: ignore[no-any-return]

    def __set__(self, optimizer: Any, value: T) -> None:
        optimizer._choose({**optimizer._options, self._name: value})


class Optimizer:
    """What optimizers share: parameters, the state of each, and how that is saved.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate, to be changed at any time: a number, or an array of one in device memory.

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

    __slots__ = ("__weakref__", "_is_written", "_kept", "_lr", "_members", "_ones", "_options", "_parameters", "_state")

    _is_written: bool  #: the state, by something else than a step; steps follow each other: each joins the parameters' uses

    def __init__(self, parameters: Iterable[Variable], lr: float | aiodev.Array, **options: Any) -> None:
        name = type(self).__name__
        if type(self) is Optimizer:
            raise TypeError("Optimizer: is what optimizers share; make one of them, such as SGD or Adam")
        self._options = self._checked(**options)
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
        computed = {np.dtype(np.float64), *(dtypes.compute_dtype(one.dtype) for one in self._parameters)}
        self._ones = {dtype: aiodev.ones((), dtype, self._parameters[0].device) for dtype in computed}
        self._keep(self._arrays_of(self._options))

    @property
    def parameters(self) -> Sequence[Variable]:
        """What is optimized."""
        return tuple(self._parameters)

    @property
    def lr(self) -> float | aiodev.Array:
        """The learning rate; set it for the steps that follow.

        An array without dimensions is read when a step runs. So what is written to it, or the :meth:`aiodev.Graph.update` of
        an input, changes the rate of steps that were captured. A number is a constant of those.
        """
        return self._lr

    @lr.setter
    def lr(self, value: float | aiodev.Array) -> None:
        self._lr = self._checked_rate(value)

    def _checked_rate(self, value: Any) -> float | aiodev.Array:
        name, device = type(self).__name__, self._parameters[0].device
        if not isinstance(value, aiodev.Array):
            return _bounded(name, "lr", value)
        if value.shape or value.dtype.kind != "f" or value.device is not device:
            raise ValueError(message(name, "lr", f"a number, or one of floating point in an array on {device}", value))
        return _detached(value)

    def _rate(self, dtype: Any) -> tuple[float, aiodev.Array]:
        """The learning rate, for elements of a dtype: the product of a number and of what is in device memory."""
        computed = dtypes.compute_dtype(dtype)
        if isinstance(self._lr, aiodev.Array):
            return 1.0, kernels.astype(self._lr, computed, copy=False)
        return self._lr, self._ones[computed]

    def step(self) -> None:
        """Submit a step of all parameters that have a gradient, to the current stream; waits for nothing.

        It is ordered after what writes the gradients and what uses the parameters, on whatever streams. Where it is captured,
        each replay is. Which parameters have a gradient, and a learning rate that is a number, are of the capture then.

        Raises:
            CaptureError: a gradient is being captured, and the step is not with it.
        """
        timeline = aiodev.current_stream(self._parameters[0].device).timeline
        groups = []
        for dtype, members in self._members.items():
            given = []
            for one, own in members:
                gradient = one._grad
                if gradient is None:
                    continue
                if gradient.__class__ is not aiodev.Array:
                    gradient = _detached(gradient)
                for buffer in (own[0]._buffer, gradient._buffer):
                    if buffer._writer is not timeline or buffer._reader is not timeline or buffer._readers is not None:
                        buffer.join_uses(timeline)
                given.append((gradient, *own))
            groups += [(dtype, given[i : i + PARAMETERS_TOGETHER]) for i in range(0, len(given), PARAMETERS_TOGETHER)]
        if groups:
            if self._is_written:
                self._join_state(timeline)
                self._is_written = False
            if self._lr.__class__ is aiodev.Array:
                self._lr._buffer.join_uses(timeline)
            self._begin(timeline)
            for dtype, given in groups:
                self._submit(dtype, *zip(*given, strict=True))

    def _join_state(self, timeline: Any) -> None:
        """Order a stream after what writes the state, or reads it."""
        for own in self._state.values():
            own._buffer.join_uses(timeline)

    def _begin(self, timeline: Any) -> None:
        """Submit what is the same for all parameters."""

    def _submit(self, dtype: Any, gradients: Any, parameters: Any, *state: Any) -> None:
        """Submit the step of parameters of one dtype."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients.

        Args:
            set_to_none: set them to None; else fill them with zeros, in place, in stream order, after whatever uses them. That
                is for graphs that add to gradients which were there before.

        Raises:
            ValueError: a gradient is read-only, and is to be filled.
        """
        if instance(type(self).__name__, "set_to_none", set_to_none, bool, "True or False"):
            for one in self._parameters:
                one._grad = None
            return
        stream = aiodev.current_stream(self._parameters[0].device)
        for one in self._parameters:
            if one.grad is not None:
                gradient = _detached(one.grad)
                gradient._buffer.join_uses(stream.timeline)
                gradient[...] = 0.0

    def _checked(self, *given: Any, **options: Any) -> dict[str, Any]:
        """What it is made with, but for the parameters and the learning rate, by their names, where that is in bounds."""
        raise NotImplementedError

    def _arrays_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the arrays that these options need for each parameter, of its shape and dtype."""
        raise NotImplementedError

    def _choose(self, options: dict[str, Any]) -> None:
        """Have options from the next step on, and the arrays that they need, and no others."""
        self._options = self._checked(**options)
        needed = self._arrays_of(self._options)
        if needed != self._kept:
            self._keep(needed)

    def _keep(self, names: tuple[str, ...]) -> None:
        """Have arrays of zeros, by these names, for each parameter."""
        self._kept = names
        self._is_written = True
        self._state: dict[str, aiodev.Array] = {}
        #: Of each dtype: parameters, and the arrays that are written to.
        self._members: dict[Any, list[tuple[Variable, tuple[aiodev.Array, ...]]]] = {}
        for place, one in enumerate(self._parameters):
            arrays = {f"{place}.{name}": aiodev.zeros(one.shape, one.dtype, one.device) for name in names}
            self._state.update(arrays)
            self._members.setdefault(one.dtype, []).append((one, (one.detach(), *arrays.values())))

    def _numbers(self) -> dict[str, Any]:
        """The options as they are saved."""
        return dict(self._options)

    def _from_numbers(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        return dict(numbers)

    def state_dict(self) -> dict[str, Any]:
        """What has to be saved to go on later: numbers, and arrays by their names, which are the optimizer's own.

        The arrays are what is written to by later steps: save them, or copy them. :func:`aiodev.interop.safetensors.save`
        has a file of them.
        """
        return {"lr": self.lr, "options": self._numbers(), "state": dict(self._state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; arrays may be NumPy's, and are copied in stream order.

        Real numbers of another dtype, as of a model of another precision, are converted. Its ``options`` take the place of
        those that this optimizer was made with; those that it does not name stay. What is refused changes nothing.

        Raises:
            TypeError: it is no such dictionary, or has something else than arrays and numbers in it.
            ValueError: it is that of another optimizer, or of other parameters.
        """
        where = f"{type(self).__name__}: load_state_dict"
        instance(where, "state", state, Mapping, "what state_dict gave")  # type: ignore[type-abstract]
        own_numbers, numbers = self._numbers(), state.get("options", {})
        instance(where, "options", numbers, Mapping, "numbers by their names")  # type: ignore[type-abstract]
        if not numbers.keys() <= own_numbers.keys():
            raise ValueError(f"{where}: options: expected {list(own_numbers)}, got {list(numbers)}")
        options = self._checked(**self._from_numbers({**own_numbers, **numbers}))
        given = state.get("state")
        kept = self._arrays_of(options)
        shapes = {f"{place}.{name}": one.shape for place, one in enumerate(self._parameters) for name in kept}
        shapes.update({name: own.shape for name, own in self._state.items() if "." not in name})
        if not isinstance(given, Mapping) or given.keys() != shapes.keys():
            shown = list(given) if isinstance(given, Mapping) else given
            raise ValueError(f"{where}: expected arrays {sorted(shapes)}, got {shown}; where there is momentum, it has some")
        for name, shape in shapes.items():
            instance(where, name, given[name], aiodev.Array | np.ndarray, "an array")  # type: ignore[arg-type]
            if dtypes.kind(given[name].dtype) not in "biuf":
                raise TypeError(f"{where}: {name}: expected real numbers, got {given[name].dtype}")
            if given[name].shape != shape:
                raise ValueError(f"{where}: {name}: expected the shape {shape}, got {given[name].shape}")
        if "lr" not in state:
            raise ValueError(f"{where}: expected a learning rate, lr, got none")
        lr = self._checked_rate(state["lr"])
        self._options = options
        if kept != self._kept:
            self._keep(kept)
        self._lr = lr.copy() if isinstance(lr, aiodev.Array) else lr
        self._join_state(aiodev.current_stream(self._parameters[0].device).timeline)
        self._is_written = True
        for name, own in self._state.items():
            value = given[name]
            convert = kernels.astype if isinstance(value, aiodev.Array) else np.asarray
            own.copy_from(value if value.dtype == own.dtype else convert(value, own.dtype))

    def __repr__(self) -> str:
        return f"<aiodev.optim.{type(self).__name__} of {len(self._parameters)} parameters, lr={self.lr}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("optimizers are not pickled or copied; save and load their state_dict")


class SGD(Optimizer):
    """Gradient descent, with momentum as in PyTorch: ``v = momentum * v + g``, ``x -= lr * v``.

    Options are attributes that may be set, and hold from the next step on. A momentum of 0 forgets what there was of it.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate: a number, or an array of one in device memory.
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

    __slots__ = ()

    momentum = _Option[float]()
    weight_decay = _Option[float]()
    nesterov = _Option[bool]()

    def __init__(
        self,
        parameters: Iterable[Variable],
        lr: float | aiodev.Array = 1e-3,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _checked(self, *, momentum: Any, weight_decay: Any, nesterov: Any) -> dict[str, Any]:
        if instance("SGD", "nesterov", _on_host(nesterov, "b"), bool, "True or False") and not momentum:
            raise ValueError("SGD: nesterov: expected a momentum beside it, got 0")
        numbers = {"momentum": momentum, "weight_decay": weight_decay}
        return {name: _bounded("SGD", name, value) for name, value in numbers.items()} | {"nesterov": bool(nesterov)}

    def _arrays_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("velocity",) if options["momentum"] else ()

    def _submit(self, dtype: Any, gradients: Any, parameters: Any, *state: Any) -> None:
        lr, rate = self._rate(dtype)
        if state:
            numbers = lr, self.momentum, self.weight_decay, self.nesterov
            _descend_with_momentum(*numbers, rate, gradients, parameters, *state)
        else:
            _descend(lr, self.weight_decay, rate, gradients, parameters)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with the decay of weights added to the gradient.

    A parameter's steps are those in which it had a gradient, as in PyTorch. Options are attributes that may be set, and hold
    from the next step on.

    Args:
        parameters: leaves, of one device.
        lr: the learning rate: a number, or an array of one in device memory.
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

    __slots__ = ("_factors",)

    betas = _Option[tuple[float, float]]()
    eps = _Option[float]()
    weight_decay = _Option[float]()

    def __init__(
        self,
        parameters: Iterable[Variable],
        lr: float | aiodev.Array = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)
        device, count = self._parameters[0].device, len(self._parameters)
        self._state["steps"] = aiodev.zeros(count, np.float64, device)
        self._factors = aiodev.zeros((count, 3), np.float64, device)
        own = {id(one): self._factors[place] for place, one in enumerate(self._parameters)}
        for members in self._members.values():
            members[:] = [(one, (*arrays, own[id(one)])) for one, arrays in members]

    def _checked(self, *, betas: Any, eps: Any, weight_decay: Any) -> dict[str, Any]:
        name = type(self).__name__
        pair = items(name, "betas", betas, "two numbers")
        if len(pair) != 2:
            raise ValueError(message(name, "betas", "two numbers", betas))
        first, second = (_bounded(name, "betas", beta, below=1.0) for beta in pair)
        numbers = {"eps": eps, "weight_decay": weight_decay}
        return {"betas": (first, second)} | {own: _bounded(name, own, value) for own, value in numbers.items()}

    def _arrays_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return "mean", "square"

    def _numbers(self) -> dict[str, Any]:
        first, second = self.betas
        return {"beta1": first, "beta2": second, "eps": self.eps, "weight_decay": self.weight_decay}

    def _from_numbers(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in numbers.items() if name not in ("beta1", "beta2")}
        return {"betas": (numbers["beta1"], numbers["beta2"]), **rest}

    def _decays(self) -> tuple[float, float]:
        """What is added to the gradient; and, times the learning rate, taken off the parameter."""
        return self.weight_decay, 0.0

    def _begin(self, timeline: Any) -> None:
        for own in (self._state["steps"], self._factors):
            own._buffer.join_uses(timeline)
        _, shrink = self._decays()
        lr, rate = self._rate(np.dtype(np.float64))
        end = 0
        for stepped, group in itertools.groupby(self._parameters, lambda one: one._grad is not None):
            begin, end = end, end + sum(1 for _ in group)
            if stepped:
                steps, factors = self._state["steps"][begin:end], self._factors[begin:end]
                count_step[end - begin](lr, *self.betas, shrink, rate, steps, factors)

    def _submit(self, dtype: Any, gradients: Any, parameters: Any, *state: Any) -> None:
        added, _ = self._decays()
        first, second = self.betas
        _adapt(first, second, 1.0 - first, 1.0 - second, self.eps, added, gradients, parameters, *state)


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
        lr: float | aiodev.Array = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _decays(self) -> tuple[float, float]:
        return 0.0, self.weight_decay


def clip_grad_norm(parameters: Iterable[Variable], max_norm: float, *, ord: float = 2.0) -> aiodev.Array:
    """Scale the gradients of parameters so that their common norm is no more than ``max_norm``; returns the norm before.

    The norm stays on the device, and nothing is waited for: each gradient is read by one kernel, and scaled by another.
    Gradients are replaced, not written to.

    Args:
        parameters: of one device; those without a gradient are left out.
        max_norm: the largest norm; with infinity nothing is scaled, and the norm is what is asked for.
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
    largest = _bounded("clip_grad_norm", "max_norm", max_norm, or_infinite=True)
    with_gradient, gradients, stream = _gradients("clip_grad_norm", parameters)
    norms = [kernels.linalg.vector_norm(gradient, ord=ord) for gradient in gradients]
    total = norms[0] if len(norms) == 1 else kernels.linalg.vector_norm(kernels.stack(norms), ord=ord)
    if largest == float("inf"):
        return total
    factor = aiodev.empty((), total.dtype, total.device)
    find_factor[1, stream](largest, total, factor)
    for one, gradient in zip(with_gradient, gradients, strict=True):
        one.grad = kernels.multiply(gradient, kernels.astype(factor, gradient.dtype, copy=False))
    return total


def clip_grad_value(parameters: Iterable[Variable], max_value: float) -> None:
    """Bring each element of the gradients of parameters between ``-max_value`` and ``max_value``, by one kernel each.

    Nothing is waited for. Gradients are replaced, not written to.

    Args:
        parameters: of one device; those without a gradient are left out.
        max_value: the largest absolute value; infinity clips nothing.

    Raises:
        TypeError: a parameter is no variable, or ``max_value`` no number.
        ValueError: no parameter has a gradient, or ``max_value`` is below 0.

    Example:
        >>> import aiodev, aiodev.optim
        >>> from aiodev import autograd
        >>> async def main():
        ...     w = autograd.Variable(aiodev.asarray([3.0, -0.5], device="cpu"))
        ...     await (0.5 * w * w).sum().backward()
        ...     aiodev.optim.clip_grad_value([w], 1.0)
        ...     return await w.grad.tolist()
        >>> import asyncio; asyncio.run(main())
        [1.0, -0.5]
    """
    largest = _bounded("clip_grad_value", "max_value", max_value, or_infinite=True)
    with_gradient, gradients, _ = _gradients("clip_grad_value", parameters)
    for one, gradient in zip(with_gradient, gradients, strict=True):
        one.grad = kernels.clip(gradient, -largest, largest)


def _gradients(
    function: str, parameters: Iterable[Variable]
) -> tuple[list[Variable], list[aiodev.Array], aiodev.Stream]:
    """Parameters that have a gradient, those, and the current stream, which is ordered after whatever writes them."""
    with_gradient = [one for one in _variables(function, parameters) if one.grad is not None]
    if not with_gradient:
        raise ValueError(f"{function}: no parameter has a gradient")
    gradients = [_detached(one.grad) for one in with_gradient]
    stream = aiodev.current_stream(gradients[0].device)
    for gradient in gradients:
        gradient._buffer.join_uses(stream.timeline)
    return with_gradient, gradients, stream


def _variables(function: str, parameters: Iterable[Variable]) -> list[Variable]:
    given = items(function, "parameters", parameters, "variables")
    variables = [instance(function, "parameters", one, Variable, "variables") for one in given]
    for one in variables:
        if one.dtype.kind == "c":
            raise TypeError(f"{function}: parameters: expected real numbers, got {one.dtype}; its parts may be parameters")
    return variables


def _detached(gradient: Any) -> aiodev.Array:
    detached: aiodev.Array = gradient.detach() if isinstance(gradient, Variable) else gradient
    return detached


def _flat(x: aiodev.Array) -> aiodev.Array:
    return x.reshape(x.size)


def _on_host(value: Any, kinds: str) -> Any:
    """What an array of NumPy's without dimensions, as files have numbers, holds, if that is of these kinds."""
    is_one = isinstance(value, np.ndarray | np.generic) and not value.shape and dtypes.kind(value.dtype) in kinds
    return value.item() if is_one else value


def _bounded(function: str, name: str, value: Any, below: float = float("inf"), or_infinite: bool = False) -> float:
    """A number from 0 on."""
    given = number(function, name, _on_host(value, "fiu"))
    if not (0.0 <= given < below or (or_infinite and given == float("inf"))):
        limit = f", below {below}" if below == 1.0 else ""
        raise ValueError(f"{function}: {name}={value!r}: expected a number from 0 on{limit}")
    return given
