"""The call of a kernel, and of a launch that is bound: native code, once that is there.

Every launch needs the same few steps: find what was compiled for these types, pack the arguments, submit, note the use of the
buffers, return a completion. In Python that takes several times as long as the submission itself. So a kernel's call function,
and a bound launch, are functions in native code (:mod:`aiodev._kernel.dispatch.launch_code`), which go by what is found out
here: for each of the last few combinations of types a *branch*. What no branch knows goes to the slow function, which checks
everything and may add one.

The native code is loaded behind the first launch whose kernel is compiled, in a thread: from the disk cache in some
milliseconds, at the very first time made in a fraction of a second. Until then, and where it cannot be made, the slow function
launches.
"""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from aiodev._core.at_fork import in_child
from aiodev._core.sources import compiled_by
from aiodev._core.streams.completion import Completion
from aiodev._kernel.dispatch.launch_state import MOST_PARAMETERS, VIEWS, BoundCall, Branch, KernelCall
from aiodev._kernel.dispatch.parameters import MISSING
from aiodev._native import native_code
from aiodev._native.objects import check_layouts, offsets_of

if TYPE_CHECKING:
    from aiodev._kernel.dispatch.specializations import Specialization

__all__ = ["SOURCES", "KernelCaller", "become", "native_key", "native_launch"]

_NATIVE = "aiodev._kernel.dispatch.launch_code"
#: What the code comes from, beside the classes whose offsets it has.
SOURCES = ("_native", "_kernel/dispatch/launch_code.py", "_kernel/dispatch/launch_state.py")
_log = logging.getLogger("aiodev")


class KernelCaller:
    """Launches a kernel: :attr:`call`, given a configuration and the kernel's arguments.

    The configuration is a ``LineConfig`` for one dimension, else a ``LaunchConfig``.

    Attributes:
        call: a partial of no arguments. It is the same object for good, since launchers that were kept have it: what it calls
            is the slow function first, and the native one when there is something for that to know.
    """

    def __init__(self, ndim: int, parameters: Sequence[Parameter], slow: Callable[..., Completion[None]]) -> None:
        defaults = [MISSING if p.default is Parameter.empty else p.default for p in parameters]
        self._ndim, self._own = ndim, KernelCall([p.name for p in parameters], defaults, slow)
        self._is_slow = True
        self.call = functools.partial(slow)

    def renew(self, specializations: Sequence[Specialization]) -> None:
        """Know these specializations, which are loaded."""
        self._own.branches = tuple([Branch(specialization, self._ndim) for specialization in specializations])
        self.quicken()

    def quicken(self) -> None:
        """Call native code from now on, if there is something for it to know, and if it is there."""
        if self._is_slow and self._own.branches and len(self._own.names) <= MOST_PARAMETERS:
            launch = native_launch("launch_kernel", self._own)
            if launch is not None:
                self._is_slow = False
                become(self.call, launch)


def become(call: functools.partial[Completion[None]], function: Callable[..., Completion[None]]) -> None:
    """Have a partial, which is called by others meanwhile, call another function from now on."""
    call.__setstate__((function, (), {}, call.__dict__))  # type: ignore[attr-defined]  # not in typeshed


def native_launch(name: str, own: KernelCall | BoundCall) -> Callable[..., Completion[None]] | None:
    """A function of the native code, which goes by ``own``; None where the code is not there, yet or for good."""
    functions = _native.functions
    if functions is None:
        _native.ask()
        return None
    return functions(name, own)


class _Native:
    """The native code of launches.

    Attributes:
        functions: from a name and what it goes by to a function; None as long as the code is not there.
    """

    def __init__(self) -> None:
        self.functions: Callable[[str, object], Callable[..., Any]] | None = None
        self._is_asked_for = False

    def ask(self) -> None:
        """Begin to load, in a thread, unless that was done."""
        if not self._is_asked_for:
            self._is_asked_for = True
            try:
                threading.Thread(target=self._load, name="aiodev-native-code").start()
            except RuntimeError:  # there are too many, or the process ends
                self._is_asked_for = False

    def _load(self) -> None:
        try:
            check_layouts()
            code = native_code.load(_NATIVE, native_key())
        except Exception as error:
            _log.warning("launches take longer than they could, since their native code cannot be made: %s", error)
            return
        module = importlib.import_module(_NATIVE)
        self.functions = lambda name, own: code.method(getattr(module, name), own)


def native_key() -> str:
    """Hash of what the native code is compiled from, and by, and of where the objects that it reads have what."""
    return f"{compiled_by(*SOURCES)[:32]} {offsets_of(*VIEWS)}"


_native = _Native()


@in_child
def _forget_after_fork() -> None:
    if _native.functions is None:  # the thread was the parent's
        _native.__init__()  # type: ignore[misc]
