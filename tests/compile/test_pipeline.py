"""What an entry calls is linked into it, and nothing else becomes of it; what others call as well stays whole."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from kernel_entry import needs_compiler, run, spec_of
from numba.core.codegen import CPUCodeLibrary

from aiodev._backends.cpu.compile import compiler


def test_a_jitted_function_stays_callable() -> None:
    """A function that a program has jitted can be called by the program after a kernel has compiled it."""

    @numba.njit
    def half(value: float) -> float:
        return value / 2

    def body(i: int, x: Any) -> None:
        x[i] = half(x[i])

    x = np.full(4, 3.0)
    run(body, 4, x)
    assert half(np.float64(5)) == 2.5
    assert (x == 1.5).all()


def test_numba_s_functions_stay_whole() -> None:
    """What a kernel has compiled of numba's own functions can be linked into a program's, with all that it calls."""

    def body(i: int, x: Any, out: Any) -> None:
        out[i] = np.nanmin(x)

    @numba.njit
    def least(x: Any) -> Any:
        return np.nanmin(x)

    x, out = np.array([3.0, np.nan, 2.0], "f4"), np.zeros(1, "f4")
    run(body, 1, x, out)
    assert out[0] == 2
    assert least(x) == 2


def test_a_program_s_functions_serve_kernels() -> None:
    """What numba has compiled before, for a program, is linked into a kernel."""

    @numba.njit
    def largest(x: Any) -> Any:
        return np.nanmax(x)

    def body(i: int, x: Any, out: Any) -> None:
        out[i] = np.nanmax(x) + largest(x)

    x, out = np.array([3.0, np.nan, 2.0], "f4"), np.zeros(1, "f4")
    assert largest(x) == 3
    run(body, 1, x, out)
    assert out[0] == 6


@needs_compiler
def test_optimised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is optimised once, together with all that it calls."""
    optimised = []
    optimise = CPUCodeLibrary._optimize_final_module

    def counted(library: Any) -> None:
        optimised.append(library.name)
        optimise(library)

    def total(x: Any) -> Any:
        return x[0] + np.sqrt(x[1])

    def body(i: int, x: Any, out: Any) -> None:
        out[i] = total(x[i]) + total(x[i + 1, :2])

    monkeypatch.setattr(CPUCodeLibrary, "_optimize_final_module", counted)
    compiler.compile_result(spec_of(body, 1, (np.zeros((3, 3)), np.zeros(2))))
    assert optimised == ["body_entry"]
