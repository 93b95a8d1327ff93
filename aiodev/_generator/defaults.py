"""The default generators, and blocks that have states of their own for them.

**Problem.** There is one default generator for each device, the same object for everyone. ``fork_rng`` gives a block, in
its own task, states of its own; and seeds must hold for devices that nobody has used so far.

**How.** A scope has a state for each device and the last seed that was set for all of them. The process has one, each
``fork_rng`` block another, and a context variable says which is the running task's. A state is made when it is first
needed, of the scope's seed if there is one; else the process's scope asks the operating system, and a block's copies
what is outside. So a seed that is set before a device was used, or its backend started, waits there, and the last one wins.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, SupportsIndex

from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.scopes import Scoped
from aiodev._core.waiting.reactor import others_first
from aiodev._generator.generator import Generator
from aiodev._generator.state import State, check_seed, fresh_seed, guard

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device

__all__ = ["default_generator", "fork_rng", "get_rng_state", "manual_seed", "seed_all", "set_rng_state"]


class Scope:
    """States of the default generators, for the process or for a block.

    Attributes:
        states: those that were needed so far.
        seed: the last one that was set for all devices; None where none was.
        outer: the scope to go back to; None for the process's.
        owner: the guard that made it.
    """

    __slots__ = ("outer", "owner", "seed", "states")

    def __init__(self, outer: Scope | None = None, owner: object = None) -> None:
        self.outer = outer
        self.owner = owner
        self.states: dict[Device, State] = {}
        self.seed: int | None = None
        if outer is not None:
            with guard():
                self.seed = outer.seed
                self.states = {device: state.copy() for device, state in outer.states.items()}

    def state(self, device: Device) -> State:
        """The state of a device's default generator."""
        state = self.states.get(device)
        if state is None:
            with guard():
                state = self.states.get(device)
                if state is None:
                    state = self.states[device] = self._make(device)
        return state

    def _make(self, device: Device) -> State:
        if self.seed is not None:
            return State(self.seed)
        return State(fresh_seed()) if self.outer is None else self.outer.state(device).copy()

    def reseed(self, seed: int) -> None:
        """Set the seed of every device's default generator."""
        with guard():
            self.seed = seed
            for state in self.states.values():
                state.write(seed, 0)


_scope = Scoped("aiodev.rng", Scope())
_generators: dict[Device, DefaultGenerator] = {}


class DefaultGenerator(Generator):
    """The default generator of a device: its state is the running task's scope's."""

    __slots__ = ()

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._own = None

    @property
    def _state(self) -> State:
        return _scope.get().state(self._device)


def default_generator(device: DeviceLike | None = None) -> Generator:
    """The generator of a device (default: the current one) that draws use where none is given. Starts nothing.

    There is one for each device, made on first use with a seed from the operating system, or with the last that
    :func:`manual_seed` was given.

    Raises:
        InvalidDeviceError: there is no such device.

    Example:
        >>> import aiodev
        >>> aiodev.default_generator("cpu") is aiodev.default_generator("cpu:0")
        True
    """
    resolved = registry.resolve(device)[1]
    known = _generators.get(resolved)
    return _generators.setdefault(resolved, DefaultGenerator(resolved)) if known is None else known


def manual_seed(seed: SupportsIndex) -> None:
    """Seed the default generators of all devices, used or not. Starts nothing; of several calls the last one counts.

    Equal seeds give equal numbers, on different devices, too; :meth:`Generator.spawn` gives each device its own.

    Raises:
        TypeError: the seed is no integer.
        ValueError: it is negative, or 2**64 or more.

    Example:
        >>> import aiodev
        >>> aiodev.manual_seed(2026)
        >>> aiodev.default_generator("cpu").initial_seed()
        2026
    """
    number = check_seed(seed)
    for generator in list(_generators.values()):
        generator._refuse_recorded("reseed")
    _scope.get().reseed(number)


def seed_all() -> int:
    """Seed the default generators of all devices from the operating system; returns the seed.

    Example:
        >>> import aiodev
        >>> seed = aiodev.seed_all()
        >>> aiodev.default_generator("cpu").initial_seed() == seed
        True
    """
    number = fresh_seed()
    manual_seed(number)
    return number


def get_rng_state(device: DeviceLike | None = None) -> bytes:
    """The state of a device's default generator, as :meth:`Generator.get_state` gives it.

    Example:
        >>> import aiodev
        >>> len(aiodev.get_rng_state("cpu"))
        16
    """
    return default_generator(device).get_state()


def set_rng_state(state: bytes, device: DeviceLike | None = None) -> None:
    """Set the state of a device's default generator; that of another device will do.

    Raises:
        TypeError: it is no bytes.
        ValueError: they are no state.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> state = aiodev.get_rng_state("cpu")
        >>> first = random.random(3, device="cpu").numpy_blocking()
        >>> aiodev.set_rng_state(state, "cpu")
        >>> bool((random.random(3, device="cpu").numpy_blocking() == first).all())
        True
    """
    default_generator(device).set_state(state)


class fork_rng:
    """A block whose draws from default generators leave their states as they were.

    In the block they begin where they stood, and may be seeded at will; after it they continue where they stood. That
    holds for the task that entered the block, and for tasks that it creates inside; no other notices. Generators
    that are given to a draw explicitly are not default generators: they move on.

    ``with`` and ``async with`` do the same: there is nothing to wait for.

    Raises:
        RuntimeError: when it is left, and it is not what this task entered last.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> aiodev.manual_seed(1)
        >>> with aiodev.fork_rng():
        ...     first = random.random(3, device="cpu").numpy_blocking()
        >>> bool((random.random(3, device="cpu").numpy_blocking() == first).all())
        True
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _scope.set(Scope(_scope.get(), self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _scope.leave(self)

    async def __aenter__(self) -> None:
        await others_first
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        return "aiodev.fork_rng()"
