"""Tools for tests of aiodev, of its backends, and of programs that use it.

:func:`check_backend` holds any backend to the promises that the core relies on; :class:`SimulatedBackend` is a device
that the host cannot see into and that fails on demand; latches hold work in flight without sleeping;
:func:`check_leaks` finds what was left behind.
"""

from aiodev.testing.conformance import RULES, Conformance, check_backend, check_rule
from aiodev.testing.latch import Latch, QueueLatch, held_workers
from aiodev.testing.leaks import LeakError, check_leaks
from aiodev.testing.rule import ConformanceError, NotApplicable, Rule
from aiodev.testing.simulated import SimulatedBackend

__all__ = [
    "RULES",
    "Conformance",
    "ConformanceError",
    "Latch",
    "LeakError",
    "NotApplicable",
    "QueueLatch",
    "Rule",
    "SimulatedBackend",
    "check_backend",
    "check_leaks",
    "check_rule",
    "held_workers",
]


def __dir__() -> list[str]:
    return __all__
