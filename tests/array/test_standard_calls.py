"""Calls that the public suite of the array API standard makes give what they gave when the suite passed.

``python tests/array_api.py --record`` writes them down again.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from standard_calls import Case, decode, read, target

import aiodev

#: Results whose values the standard leaves open, or which depend on the version of LAPACK; their shapes and types do not.
OPEN = {
    "empty", "empty_like", *(f"linalg.{name}" for name in ("eigh", "matrix_rank", "pinv", "qr", "svd")),
}  # fmt: skip
CASES = [(name, list(cases)) for name, cases in groupby(read(), key=lambda case: case[0])]


def values_of(result: Any) -> list[Any]:
    """A function's results, arrays as NumPy's."""
    if isinstance(result, tuple | list):
        return [value for item in result for value in values_of(item)]
    return [result.numpy_blocking() if isinstance(result, aiodev.Array) else result]


def check(result: Any, expected: Any, with_values: bool) -> None:
    """Compare results: types and shapes, and values but for the order in which a processor adds."""
    for found, wanted in zip(values_of(result), values_of(expected), strict=True):
        assert type(found) is type(wanted)
        if not isinstance(wanted, np.ndarray):
            assert found == wanted or found != found and wanted != wanted
            continue
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if with_values and wanted.dtype.kind in "fc":
            finite = np.abs(wanted[np.isfinite(wanted)])
            close = 1e-4 if wanted.dtype in ("f4", "c8") else 1e-10
            np.testing.assert_allclose(found, wanted, close, close * float(finite.max(initial=0)))
        elif with_values:
            np.testing.assert_array_equal(found, wanted)


def repeat(case: Case) -> None:
    """Make a call again, and compare."""
    name, arguments, named, outcome = case
    args = [decode(argument) for argument in arguments]
    kwargs = {key: decode(value) for key, value in named.items()}
    if "raises" in outcome:
        with pytest.raises(Exception) as raised:
            target(name)(*args, **kwargs)
        assert type(raised.value).__name__ == outcome["raises"]
        return
    result = target(name)(*args, **kwargs)
    check(args[0] if name == "__setitem__" else result, decode(outcome["gives"]), name not in OPEN)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "cases"), CASES, ids=[name for name, _ in CASES])
def test_a_recorded_call(name: str, cases: list[Case]) -> None:
    """Each call gives again what it gave, or raises what it raised."""
    with aiodev.device("cpu"):
        for case in cases:
            repeat(case)
