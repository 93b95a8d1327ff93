"""Whether what the running task computes is differentiated: a scope, inherited by tasks that are created in it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from aiodev._core.arguments import instance, is_kind
from aiodev._core.scopes import Scoped

__all__ = [
    "Mode",
    "current",
    "detect_anomaly",
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])


class Mode:
    """What holds for a block.

    Attributes:
        enabled: whether operations on variables are recorded.
        inference: that nothing inside is recorded, whatever it asks for.
        anomaly: that nodes keep the stack of their forward call, and gradients are looked at for NaN.
    """

    __slots__ = ("anomaly", "enabled", "inference", "outer", "owner")

    def __init__(self, outer: Mode | None, owner: object, enabled: bool, inference: bool, anomaly: bool) -> None:
        self.outer, self.owner = outer, owner
        self.enabled, self.inference, self.anomaly = enabled, inference, anomaly


_modes = Scoped("aiodev.grad_mode", Mode(None, None, True, False, False))
#: The running task's mode. A bound method of C: every operation on variables comes through here.
current = _modes.get


def push(owner: object, enabled: bool | None = None, inference: bool = False, anomaly: bool | None = None) -> None:
    """Enter a block; None leaves what is."""
    mode = current()
    wanted = mode.enabled if enabled is None else enabled
    inference = inference or mode.inference
    looks = mode.anomaly if anomaly is None else anomaly
    _modes.set(Mode(mode, owner, wanted and not inference, inference, looks))


def pop(owner: object) -> None:
    """Leave a block.

    Raises:
        RuntimeError: the innermost block of this task is another one.
    """
    _modes.leave(owner)


class _Guard:
    """A block of ``with``, or a decorator of functions of any kind; any number of tasks may enter it.

    The body of a generator, asynchronous or not, is in the block at each of its steps, and who iterates is not.
    """

    __slots__ = ()

    def _arguments(self) -> tuple[Any, ...]:
        return ()

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *error: object) -> None:
        """Leave the block.

        Raises:
            RuntimeError: the innermost block of this task is another one.
        """
        pop(self)

    def __call__(self, function: F) -> F:
        instance(type(self).__name__, "function", function, Callable, "a function")  # type: ignore[arg-type]
        wrap = next((wrap for kind, wrap in _WRAPPERS.items() if is_kind(function, kind)), _around_function)
        return functools.wraps(function)(wrap(self, function))  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"aiodev.autograd.{type(self).__name__}({', '.join(map(repr, self._arguments()))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments()


def _around_function(guard: _Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with guard:
            return function(*args, **kwargs)

    return run


def _around_coroutine(guard: _Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with guard:
            return await function(*args, **kwargs)

    return run


def _around_generator(guard: _Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step, given = generator.send, None
        while True:
            try:
                with guard:
                    result = step(given)
            except StopIteration as end:
                return end.value
            try:
                step, given = generator.send, (yield result)
            except GeneratorExit:
                with guard:
                    generator.close()
                raise
            except BaseException as error:
                step, given = generator.throw, error

    return run


def _around_async_generator(guard: _Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step, given = generator.asend, None
        while True:
            try:
                with guard:
                    result = await step(given)
            except StopAsyncIteration:
                return
            try:
                step, given = generator.asend, (yield result)
            except GeneratorExit:
                with guard:
                    await generator.aclose()
                raise
            except BaseException as error:
                step, given = generator.athrow, error

    return run


#: What makes a function that runs in a block, by what tells of which kind the function is.
_WRAPPERS: dict[Callable[[Any], bool], Callable[[_Guard, Callable[..., Any]], Callable[..., Any]]] = {
    inspect.iscoroutinefunction: _around_coroutine,
    inspect.isgeneratorfunction: _around_generator,
    inspect.isasyncgenfunction: _around_async_generator,
}


class no_grad(_Guard):
    """A block in which operations on variables are not recorded, for this task and those it creates; or a decorator.

    Results are plain arrays, and variables may be written to.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> w = autograd.Variable(aiodev.ones(2, device="cpu"))
        >>> with autograd.no_grad():
        ...     w -= 0.5
        >>> w.numpy_blocking()
        array([0.5, 0.5])
    """

    __slots__ = ()

    def __enter__(self) -> None:
        push(self, enabled=False)


class enable_grad(_Guard):
    """A block in which operations on variables are recorded again, inside of one of :class:`no_grad`.

    Raises:
        RuntimeError: at its entry, inside of :class:`inference_mode`.

    Example:
        >>> import aiodev
        >>> from aiodev import autograd
        >>> w = autograd.Variable(aiodev.ones(2, device="cpu"))
        >>> with autograd.no_grad(), autograd.enable_grad():
        ...     print((2 * w).requires_grad)
        True
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _allow("enable_grad")
        push(self, enabled=True)


class set_grad_enabled(_Guard):
    """A block of :class:`enable_grad`, or of :class:`no_grad`, as a truth value says.

    Raises:
        TypeError: ``enabled`` is no truth value.
        RuntimeError: at its entry, with True inside of :class:`inference_mode`.

    Example:
        >>> from aiodev import autograd
        >>> with autograd.set_grad_enabled(False):
        ...     print(autograd.is_grad_enabled())
        False
    """

    __slots__ = ("enabled",)

    def __init__(self, enabled: bool) -> None:
        self.enabled = instance("set_grad_enabled", "enabled", enabled, bool, "True or False")

    def _arguments(self) -> tuple[Any, ...]:
        return (self.enabled,)

    def __enter__(self) -> None:
        if self.enabled:
            _allow("set_grad_enabled(True)")
        push(self, enabled=self.enabled)


class inference_mode(_Guard):
    """A block of :class:`no_grad` in which nobody can record: what asks for it inside is an error, not an accident.

    Example:
        >>> from aiodev import autograd
        >>> with autograd.inference_mode():
        ...     try:
        ...         with autograd.enable_grad():
        ...             pass
        ...     except RuntimeError as error:
        ...         print(error)
        enable_grad: inside of inference_mode nothing is recorded; use no_grad where that may be
    """

    __slots__ = ()

    def __enter__(self) -> None:
        push(self, enabled=False, inference=True)


class detect_anomaly(_Guard):
    """A block whose operations keep the stack of their call, and whose backward passes stop at the first NaN.

    An error of a backward pass then tells the whole stack of the forward call of the node that failed. Each gradient is waited
    for and looked at, so this is for debugging.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> from aiodev import autograd
        >>> async def main():
        ...     with autograd.detect_anomaly():
        ...         x = autograd.Variable(aiodev.asarray([-1.0], device="cpu"))
        ...         try:
        ...             await autograd.backward(aiodev.kernels.sqrt(x).sum())
        ...         except autograd.GradientError as error:
        ...             print(error.node, "|", error.__cause__)
        >>> import asyncio; asyncio.run(main())
        sqrt | the gradient of its operand 0 has NaN
    """

    __slots__ = ()

    def __enter__(self) -> None:
        push(self, anomaly=True)


def is_grad_enabled() -> bool:
    """Whether operations on variables are recorded in this task.

    Example:
        >>> from aiodev import autograd
        >>> autograd.is_grad_enabled()
        True
    """
    return current().enabled


def _allow(name: str) -> None:
    if current().inference:
        raise RuntimeError(f"{name}: inside of inference_mode nothing is recorded; use no_grad where that may be")
