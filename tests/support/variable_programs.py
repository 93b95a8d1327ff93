"""Programs at random of variables over several streams: what is differentiated, and on which stream each operation is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st

import aiodev
from aiodev import kernels

__all__ = ["LEAVES", "OPERATIONS", "STREAMS", "Step", "programs", "run_forward"]

LEAVES, STREAMS = 3, 3
#: Of two values; arrays of NumPy's will do, but for one.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "tanh": lambda x, y: kernels.tanh(x),
    "row": lambda x, y: x + y[0],
}


class Step(NamedTuple):
    """One operation: of two values that were there before, on a stream."""

    operation: str
    first: int
    second: int
    stream: int


@st.composite
def programs(draw: st.DrawFn, most: int) -> list[Step]:
    """Up to so many steps."""
    steps = []
    for number in range(draw(st.integers(1, most))):
        places = st.integers(0, LEAVES + number - 1)
        operation = draw(st.sampled_from(list(OPERATIONS)))
        steps.append(Step(operation, draw(places), draw(places), draw(st.integers(0, STREAMS - 1))))
    return steps


def run_forward(steps: list[Step], leaves: Sequence[Any], streams: list[aiodev.Stream]) -> list[Any]:
    """The sums of the last two values. Leaves are of the first stream, and each step waits for those of its operands."""
    values: list[tuple[Any, aiodev.Stream]] = [(leaf, streams[0]) for leaf in leaves]
    for step in steps:
        stream = streams[step.stream]
        (x, first), (y, second) = values[step.first], values[step.second]
        stream.wait_stream(first)
        stream.wait_stream(second)
        with stream:
            values.append((OPERATIONS[step.operation](x, y), stream))
    roots = []
    for value, stream in values[-2:]:
        with stream:
            roots.append(value.sum())
    return roots
