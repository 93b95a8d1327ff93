"""Gates: operations that the host completes."""

from __future__ import annotations

from aiodev._backends.executor.structs import GATE_SHUT, Gate
from aiodev._native.compile import exported, inner, int64
from aiodev._native.fields import sizeof
from aiodev._native.intrinsics import free, malloc


@exported(int64())
def create_gate() -> int:
    """A shut gate, referred to by its queue and by the host."""
    address = malloc(sizeof(Gate))
    if address == 0:
        raise MemoryError("no memory for another gate")
    gate = Gate(address)
    gate.state.value = GATE_SHUT
    gate.waiter.value = None
    gate.references.value = 2
    return address


@inner
def release_gate(gate: Gate) -> None:
    """Give a reference to a gate back; the last one frees it."""
    if gate.references.fetch_add(-1) == 1:
        free(gate)
