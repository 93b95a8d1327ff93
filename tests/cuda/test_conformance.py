"""The rules that every backend keeps, kept by the CUDA backend on the stand-in."""

from __future__ import annotations

import pytest

from aiodev._backends.cuda import CUDABackend
from aiodev.testing import RULES, NotApplicable, Rule, check_rule

#: What a stand-in whose streams are threads of the system cannot show.
BEYOND = {"urgent_work_overtakes": "the stand-in's streams have no priority"}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rule(rule: Rule, backend: CUDABackend) -> None:
    """Each promise, by itself."""
    if rule.name in BEYOND:
        pytest.skip(BEYOND[rule.name])
    try:
        check_rule(backend, rule)
    except NotApplicable as reason:
        pytest.skip(str(reason))
