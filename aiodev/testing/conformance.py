"""The conformance test of backends: :func:`check_backend`.

It uses nothing but the ABC, so that anyone can hold a backend of their own to it. Each rule is a named promise; all are
in :data:`RULES`, for use as parameters of a test of one's own::

    @pytest.mark.parametrize("rule", aiodev.testing.RULES, ids=str)
    def test_conformance(rule, backend):
        aiodev.testing.check_rule(backend, rule)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiodev._core.backend.interface import Backend
from aiodev.testing import (
    buffer_rules,
    failure_rules,
    kernel_rules,
    memory_rules,
    order_rules,
    sharing_rules,
    trace_rules,
    waking_rules,
    withdrawal_rules,
)
from aiodev.testing.rule import ConformanceError, NotApplicable, Rule
from aiodev.testing.workbench import Workbench

__all__ = ["RULES", "Conformance", "check_backend", "check_rule"]

#: Every rule, in the order in which to read and to check them.
RULES: tuple[Rule, ...] = (
    *memory_rules.RULES,
    *order_rules.RULES,
    *waking_rules.RULES,
    *failure_rules.RULES,
    *withdrawal_rules.RULES,
    *sharing_rules.RULES,
    *trace_rules.RULES,
    *kernel_rules.RULES,
    *buffer_rules.RULES,
)


@dataclass
class Conformance:
    """What ``check_backend`` found: names of the rules kept, and why the others do not apply.

    Example:
        >>> from aiodev.testing import Conformance
        >>> report = Conformance(kept=["values_count_from_one"])
        >>> report.kept, report.not_applicable
        (['values_count_from_one'], {})
    """

    kept: list[str] = field(default_factory=list)
    not_applicable: dict[str, str] = field(default_factory=dict)


def check_backend(
    backend: Backend, *, rules: Iterable[Rule | str] | None = None, patience: float = 30.0
) -> Conformance:
    """Hold a started backend to the rules; blocks for some seconds.

    Args:
        backend: any backend on which ``start`` was called.
        rules: which rules, or their names; all when None.
        patience: seconds that something may take before it counts as never happening.

    Raises:
        ConformanceError: an AssertionError that names the rule which is broken; queues and memory that the check used
            may then still be in use, so that the backend is best thrown away.
        KeyError: no rule has a name that was given.

    Example:
        >>> from aiodev.testing import SimulatedBackend, check_backend
        >>> backend = SimulatedBackend()
        >>> backend.start()
        >>> check_backend(backend, rules=["values_count_from_one"]).kept
        ['values_count_from_one']
        >>> backend.stop()
    """
    by_name = {rule.name: rule for rule in RULES}
    chosen = RULES if rules is None else [rule if isinstance(rule, Rule) else by_name[rule] for rule in rules]
    outcome = Conformance()
    for rule in chosen:
        try:
            check_rule(backend, rule, patience=patience)
        except NotApplicable as reason:
            outcome.not_applicable[rule.name] = str(reason)
        else:
            outcome.kept.append(rule.name)
    return outcome


def check_rule(backend: Backend, rule: Rule, *, patience: float = 30.0) -> None:
    """Hold a started backend to one rule.

    Raises:
        ConformanceError: the rule is broken, or the backend raised while it was checked (that is the cause).
        NotApplicable: the rule says nothing about this backend.

    Example:
        >>> from aiodev.testing import RULES, SimulatedBackend, check_rule
        >>> backend = SimulatedBackend()
        >>> backend.start()
        >>> check_rule(backend, RULES[0])
        >>> backend.stop()
    """
    try:
        with Workbench(backend, patience) as bench:
            rule.check(bench)
    except NotApplicable:
        raise
    except Exception as error:  # a backend under test may raise anything
        detail = str(error) or "the check failed" if isinstance(error, AssertionError) else f"raised {error!r}"
        raise ConformanceError(rule.name, rule.promise, detail) from error
