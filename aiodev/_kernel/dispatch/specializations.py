"""Specializations: what a kernel was compiled for, one for each combination of types on each device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.registry import registry
from aiodev._core.config import settings
from aiodev._kernel.analysis.bounds import Access, accesses, farthest
from aiodev._kernel.analysis.pacing import paced_by
from aiodev._kernel.analysis.source import BodyUse, analyse
from aiodev._kernel.analysis.uniformity import is_loop_free
from aiodev._kernel.compile.service import PendingKernel, service
from aiodev._kernel.compile.snapshot import capture
from aiodev._kernel.dispatch.signature import ARRAYS, READ, Signature, describe, key_of
from aiodev._kernel.options import Options

__all__ = ["Specialization", "Specializations"]

#: Specializations that a call function tells apart; more go through a dictionary. Larger: later branches cost more comparisons;
#: smaller: kernels of several types take the slow way.
_BRANCHES = 4
_MOST_PATIENCE = 1024


class Specialization:
    """A kernel for one combination of types on one device.

    Attributes:
        keys: what identifies the combination: an array's key, or a scalar's class, for each argument.
        bounds: elements of the arrays that every index touches, so that a launch must not be longer.
    """

    __slots__ = ("bounds", "device", "keys", "loading", "signature")

    def __init__(
        self,
        keys: tuple[Any, ...],
        device: Device,
        signature: Signature,
        loading: PendingKernel,
        bounds: tuple[Access, ...] = (),
    ) -> None:
        self.keys = keys
        self.device = device
        self.signature = signature
        self.loading = loading
        self.bounds = bounds


class Specializations:
    """The specializations of one kernel.

    Args:
        name: the kernel's name.
        ndim: how many indices its bodies take.
        names: the parameters after those.
        function: the body where ``bodies`` has none for the type of device.
        bodies: hand-written bodies by device type.
        options: the decorator's options.
        launch_options: what the hand-written bodies add to that, by device type.
        uniform: the decorator's ``uniform``, or None.
        reads: the decorator's ``reads``.
    """

    def __init__(
        self,
        name: str,
        ndim: int,
        names: Sequence[str],
        function: Callable[..., None],
        bodies: Mapping[str, Callable[..., None]],
        options: Options,
        launch_options: Mapping[str, Options],
        uniform: bool | Collection[str] | None,
        reads: Sequence[str],
    ) -> None:
        self.name = name
        self.ndim = ndim
        self.names = names
        self.recent: list[Specialization] = []  #: those that the call function has a branch for, of one pattern
        self._function = function
        self._bodies = bodies
        self._options, self._launch_options, self._uniform = options, launch_options, uniform
        self._reads = reads
        self._uses: dict[str | None, BodyUse] = {}
        self._paces: dict[str | None, tuple[bool | None, tuple[int, ...] | None]] = {}
        self._accesses: dict[str | None, tuple[Access, ...]] = {}
        self.forget()

    def forget(self) -> None:
        """Start afresh, as a forked child does with its backend: what is compiled is still in the cache."""
        self._known: dict[tuple[Any, ...], Specialization] = {}
        self.recent = []
        self._lock = threading.RLock()  # re-entrant: a finalizer, or a signal's handler, may launch
        self._misses, self._patience = 0, 1

    def of(self, args: tuple[Any, ...], device: Device) -> Specialization:
        """The specialization for these arguments; a new one begins to load, as does one that failed by what may have passed.

        Raises:
            LaunchError: an argument does not fit.
        """
        keys = tuple(key_of(arg) or type(arg) for arg in args)
        specialization = self._known.get((device, keys))
        if specialization is None:
            with self._lock:
                specialization = self._known.get((device, keys))
                if specialization is None:
                    specialization = self._known[device, keys] = self._make(keys, args, device)
        elif specialization.loading.may_pass:
            self._load_again(specialization)
        return specialization

    def launched_on(self, device_type: str) -> bool:
        """Whether there is a specialization for that type of device."""
        return any(specialization.device.type == device_type for specialization in list(self._known.values()))

    def all(self) -> list[Specialization]:
        """Every specialization so far."""
        return list(self._known.values())

    def remember(self, specialization: Specialization, generate: Callable[[], object]) -> None:
        """Count a launch that the call function had no branch for; ``generate`` makes it anew, from ``recent``.

        That costs as much as a hundred slow launches, so a kernel whose types keep changing does it ever less often.
        """
        with self._lock:
            self._misses += 1
            if specialization in self.recent or self._misses < self._patience:
                return
            self._misses, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)
            same = [known for known in self.recent if known.signature.pattern == specialization.signature.pattern]
            self.recent = [specialization, *same][:_BRANCHES]
            generate()  # under the lock, so that no older call function replaces a newer one

    def _make(self, keys: tuple[Any, ...], args: tuple[Any, ...], device: Device) -> Specialization:
        body = self._bodies.get(device.type, self._function)
        which = device.type if device.type in self._bodies else None
        use = self._use_of(which, body)
        signature = describe(self.name, self.ndim, self.names, args, device, use)
        options = {*self._options, *self._launch_options.get(device.type, ())}
        if settings.debug:
            options.add(("boundscheck", True))
        uniform, pace = self._pace_of(which, body)
        spec = KernelSpec(
            self.name, body, self.ndim, signature.descriptors, tuple(sorted(options)), uniform=uniform, paced_by=pace
        )
        places = {place: len(args[place].shape) for place, kind in enumerate(signature.pattern) if kind in ARRAYS}
        bounds = farthest(self._accesses_of(which, body), places)
        only_reads = [place for place, kind in enumerate(signature.pattern) if kind == READ]
        return Specialization(keys, device, signature, self._loading(spec, device, only_reads), bounds)

    def _pace_of(self, which: str | None, body: Callable[..., None]) -> tuple[bool | None, tuple[int, ...] | None]:
        """Whether all indices take as long, and the places of the arguments that say how long, if not; or None."""
        if isinstance(self._uniform, bool):
            return self._uniform, None
        pace = self._paces.get(which)
        if pace is None:
            names: Collection[str] | None = self._uniform
            if names is None:
                names = () if is_loop_free(body) else paced_by(body, self.ndim)
            places = None if names is None else tuple(n for n, name in enumerate(self.names) if name in names)
            pace = (True, None) if places == () else (None if places is None else False, places)
            self._paces[which] = pace
        return pace

    def _accesses_of(self, which: str | None, body: Callable[..., None]) -> tuple[Access, ...]:
        known = self._accesses.get(which)
        if known is None:
            known = self._accesses[which] = accesses(body, self.ndim)
        return known

    def _use_of(self, which: str | None, body: Callable[..., None]) -> BodyUse:
        use = self._uses.get(which)
        if use is None:
            use = self._uses[which] = analyse(body, tuple(self.names)).promising(self._reads)
        return use

    def _loading(self, spec: KernelSpec, device: Device, only_reads: Sequence[int]) -> PendingKernel:
        """What other variants of the same types share: an int and a bool may both be packed as one type."""
        for specialization in self._known.values():
            known = specialization.loading
            if known.backend.name == device.type and known.spec.arguments == spec.arguments and known.error is None:
                return known
        loading = PendingKernel(registry.handle(device.type), spec, capture(spec.function), only_reads=only_reads)
        service.load(loading)
        return loading

    def _load_again(self, specialization: Specialization) -> None:
        """Another attempt, which all variants share that shared the one that has failed."""
        with self._lock:
            failed = specialization.loading
            if failed.may_pass:
                loading = failed.again()
                for known in self._known.values():
                    if known.loading is failed:
                        known.loading = loading
                service.load(loading)
