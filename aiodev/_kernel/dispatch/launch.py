"""The call of a kernel, and of a launch that is bound: native code, once that is there.

Every launch needs the same few steps: find what was compiled for these types, pack the arguments, submit, note the use of the
buffers, return a completion. In Python that takes several times as long as the submission itself. So a kernel's call function,
and a bound launch, are functions in native code (:mod:`aiodev._kernel.dispatch.native`), which go by what is found out
here: for each of the last few combinations of types a *branch*. What no branch knows goes to the slow function, which checks
everything and may add one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING

from aiodev._core.streams.completion import Completion
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.parameters import MISSING
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, Branch, KernelCall

if TYPE_CHECKING:
    from aiodev._kernel.dispatch.specializations import Specialization

__all__ = ["KernelCaller", "become"]


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
            launch = native_function("launch_kernel", self._own)
            if launch is not None:
                self._is_slow = False
                become(self.call, launch)


def become(call: functools.partial[Completion[None]], function: Callable[..., Completion[None]]) -> None:
    """Have a partial, which is called by others meanwhile, call another function from now on."""
    call.__setstate__((function, (), {}, call.__dict__))  # type: ignore[attr-defined]  # not in typeshed
