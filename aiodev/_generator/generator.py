"""Generators, from which kernels draw."""

from __future__ import annotations

from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsIndex

from aiodev._core.arguments import integer
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.errors import refused
from aiodev._generator.philox import child_seed
from aiodev._generator.state import BLOCK, State, check_offset, check_seed, fresh_seed, guard, parse_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiodev._array.array import Array
    from aiodev._core.backend.device import Device

__all__ = ["DEFAULT_SEED", "Generator", "Reservation", "recordings"]

#: The seed of generators that were given none.
DEFAULT_SEED = 0xA10DE5EED


class Reservation(NamedTuple):
    """Words that a draw may use, and nobody else.

    Attributes:
        seed: Philox's key, 64 bits; the low word comes first.
        offset: of the first word, a multiple of 4. The counter of its block is ``offset // 4``.
        words: None; or a device array of two ``uint64``: the seed, and what ``offset`` counts from, modulo 2**64. So it is in
            what is recorded to be replayed, and while a replay runs that draws in loops or branches; then the current stream
            of the generator's device is ordered after that replay.
    """

    seed: int
    offset: int
    words: Array | None = None


class Reserving(Protocol):
    """What gives words in place of a generator: a recording of its draws (:mod:`aiodev._generator.recording`)."""

    def reserve(self, count: int) -> Reservation: ...


#: What the running task records, by generator.
recordings: ContextVar[Mapping[Generator, Reserving]] = ContextVar("aiodev.recordings", default=MappingProxyType({}))


class Generator:
    """A source of random numbers for one device: a seed, and an offset that every draw moves on.

    Numbers come from Philox4x32-10, which makes each word of the sequence from its index and the seed alone. So a draw only
    notes on the host which words it takes, and any number of kernels, on any streams, compute theirs at the same time
    without touching. The same seed and the same draws give the same numbers on every device. A new generator has a fixed seed,
    the same one always, until it is given another.

    Two tasks or threads that draw from one generator get different words; which of them gets which depends on who comes
    first. Give each one of what :meth:`spawn` makes where that matters. A forked process continues with the same
    words as its parent: reseed it.

    Args:
        device: where its numbers are drawn (default: the current device). Nothing is started.

    Raises:
        InvalidDeviceError: there is no such device.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(7)
        >>> random.integers(0, 100, 4, generator=g).numpy_blocking()
        array([95, 75, 11,  8])
        >>> g.get_offset()
        4
    """

    __slots__ = ("__weakref__", "_device", "_own")

    def __init__(self, device: DeviceLike | None = None) -> None:
        self._device = registry.resolve(device)[1]
        self._own: State | None = State(DEFAULT_SEED)

    @property
    def device(self) -> Device:
        """Where its numbers are drawn."""
        return self._device

    @property
    def _state(self) -> State:
        assert self._own is not None
        return self._own

    # Seeds

    def manual_seed(self, seed: SupportsIndex) -> Generator:
        """Begin the sequence of a seed of 64 bits; returns the generator itself.

        Raises:
            TypeError: the seed is no integer.
            ValueError: it is negative, or 2**64 or more.
        """
        number = check_seed(seed)
        self._refuse_recorded("reseed")
        self._state.write(number, 0)
        return self

    def seed(self) -> int:
        """Begin the sequence of a seed from the operating system; returns the seed."""
        number = fresh_seed()
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """The seed of its present sequence."""
        return self._state.seed

    def spawn(self, n: SupportsIndex) -> list[Generator]:
        """``n`` new generators for the same device, whose sequences have nothing to do with each other's or this one's.

        Deterministic: the same state gives the same children. Each takes one block of this generator's words, whose number a
        bijection of 64 bits, keyed by this generator's seed, turns into the child's seed. So no two children of one
        seed have one seed, however many there are and whenever they were spawned. Seeds of generators that
        are not siblings meet as random numbers of 64 bits do: with a probability below m² / 2**65 among m.

        While a replay runs that draws from it in loops or branches, this blocks, as :meth:`get_offset` does.

        Raises:
            TypeError: ``n`` is no integer.
            ValueError: ``n`` is negative, or fewer blocks than that are left of this seed.
        """
        count = integer("spawn", "n", n, least=0)
        self._refuse_recorded("spawn from")
        seed, offset = self._state.reserve_known(BLOCK * count)
        children = []
        for index in range(count):
            child = Generator(self._device)
            child._state.write(child_seed(seed, offset // BLOCK + index), 0)
            children.append(child)
        return children

    # The state

    def get_state(self) -> bytes:
        """All that determines what comes next: 16 bytes, the seed and the offset in little-endian order.

        While a replay runs that draws from it in loops or branches, this blocks, as :meth:`get_offset` does.
        """
        self._refuse_recorded("get the state of")
        return self._state.to_bytes()

    def set_state(self, state: bytes) -> None:
        """Continue from where :meth:`get_state` was called, on this or another generator, of this or another device.

        Raises:
            TypeError: it is no bytes.
            ValueError: they are no state.
        """
        seed, offset = parse_state(state)
        self._refuse_recorded("set the state of")
        self._state.write(seed, offset)

    def get_offset(self) -> int:
        """How many words were drawn since it was seeded, those included that rounding to blocks of 4 left out.

        How many a replay draws in loops and branches, the device alone knows. This blocks until such a replay is done, as far
        as :func:`aiodev.set_sync_debug_mode` allows; await the replay first.

        Raises:
            SyncError: it has to wait, in a thread whose loop runs, and :func:`aiodev.set_sync_debug_mode` forbids it.
        """
        self._refuse_recorded("get the offset of")
        return self._state.read()[1]

    def set_offset(self, offset: SupportsIndex) -> None:
        """Continue from a word of the sequence. At 2**64 - 4, the largest offset, none are left to draw.

        Raises:
            TypeError: the offset is no integer.
            ValueError: it is negative, 2**64 or more, or no multiple of 4.
        """
        number = check_offset(offset)
        self._refuse_recorded("set the offset of")
        state = self._state
        with guard():
            state.write(state.seed, number)

    def clone_state(self) -> Generator:
        """Another generator for the same device with the same state; draws from one leave the other as it is. Never blocks."""
        self._refuse_recorded("clone")
        clone = Generator(self._device)
        clone._own = self._state.copy()
        return clone

    def reserve(self, count: SupportsIndex) -> Reservation:
        """Take ``count`` words, rounded up to whole blocks of 4, for a kernel of one's own to use.

        May be called from any thread; no two calls are given the same words.

        Raises:
            TypeError: ``count`` is no integer.
            ValueError: it is negative, or fewer are left of the 2**64 - 4 of this seed.

        Example:
            >>> import aiodev
            >>> g = aiodev.Generator("cpu").manual_seed(1)
            >>> g.reserve(6)[:2], g.get_offset()
            ((1, 0), 8)
        """
        words = integer("reserve", "count", count, least=0)
        recorded = recordings.get().get(self)
        if recorded is not None:
            return recorded.reserve(words)
        return Reservation(*self._state.reserve(words))

    def _refuse_recorded(self, what: str) -> None:
        if self in recordings.get():
            raise refused(f"{what} a generator while its draws are recorded: a replay could not repeat that")

    def __copy__(self) -> Generator:
        return self.clone_state()

    def __deepcopy__(self, memo: Any) -> Generator:
        return self.clone_state()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._device, self.get_state())

    def __repr__(self) -> str:
        state = self._state
        where = f"offset {state.offset}" if state.look_ahead() is None else "behind a replay that runs"
        return f"<aiodev.Generator on {self._device}, seed {state.seed}, {where}>"


def _restore(device: Device, state: bytes) -> Generator:
    generator = Generator(device)
    generator.set_state(state)
    return generator
