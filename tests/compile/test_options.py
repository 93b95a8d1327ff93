"""Options of a kernel: they have their effect, they are part of what it is kept by, and others are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_entry import needs_compiler, run, spec_of

import aiodev
from aiodev._backends.cpu.compile import compiler
from aiodev._backends.cpu.structs import Entry
from aiodev._kernel.compile.keys import cache_key
from aiodev._kernel.compile.snapshot import capture
from aiodev._kernel.options import FASTMATH_FLAGS, parse_options


def row_sum(i: int, x: Any, out: Any) -> None:
    total = x[i, 0]
    for k in range(1, x.shape[1]):
        total += x[i, k]
    out[i] = total


def test_options_are_plain_data() -> None:
    """Those that are on, sorted; all flags together are the plain option."""
    assert parse_options(False, False) == parse_options(False, set()) == ()
    assert parse_options(True, {"reassoc", "contract"}) == (
        ("boundscheck", True),
        ("fastmath", ("contract", "reassoc")),
    )
    assert parse_options(False, set(FASTMATH_FLAGS)) == parse_options(False, True) == (("fastmath", True),)


def test_what_is_no_flag_is_refused() -> None:
    """The message lists those that there are; a string is not taken for a set of letters."""
    with pytest.raises(ValueError, match=r"'fast' is no flag; there are afn, arcp, contract"):
        aiodev.kernel(fastmath={"fast"})
    with pytest.raises(TypeError, match="a set of flags"):
        aiodev.kernel(fastmath="reassoc")


def test_options_are_part_of_the_key() -> None:
    """Another set of flags is another kernel."""
    x = np.zeros((4, 4), "f4")
    keys = {
        cache_key(spec_of(row_sum, 1, (x, x[0]), **dict(parse_options(False, flags))), capture(row_sum))
        for flags in (False, True, {"reassoc"}, {"contract"}, {"contract", "reassoc"})
    }
    assert len(keys) == 5


@needs_compiler
async def test_a_uniform_kernel_says_so_to_the_executor() -> None:
    """Its entry does, and not that of a kernel which says that it is none. One of which nobody knows is irregular."""
    await aiodev.init("cpu")

    def body(i, x):
        x[i] = 1

    for uniform in (False, True):
        kernel = aiodev.kernel(uniform=uniform)(body)
        await kernel[1](aiodev.zeros(1, device="cpu"))
        (variant,) = kernel._specializations.all()
        entry = Entry(variant.loading.entry)
        assert (entry.uniform, entry.irregular) == (uniform, False)

    def counting(i, x):
        while x[i] < 3:
            x[i] += 1

    kernel = aiodev.kernel(counting)
    await kernel[1](aiodev.zeros(1, device="cpu"))
    (variant,) = kernel._specializations.all()
    entry = Entry(variant.loading.entry)
    assert (entry.uniform, entry.irregular) == (False, True)


async def test_what_a_kernel_is_said_to_read_outlives_its_failure() -> None:
    """An array that a function inside of it uses counts as written without that, and names and promises are looked at."""

    def body(i, x, out):
        def total(k):
            return x[k] + x[k + 1]

        out[i] = total(i)
        if out[i] > 0:
            raise ValueError

    for reads in ((), ("x",)):
        x = aiodev.ones(2, device="cpu")
        kernel = aiodev.kernel(reads=reads)(body)
        with pytest.raises(aiodev.KernelError):
            await kernel[1](x, aiodev.zeros(1, device="cpu"))
        if reads:
            assert (await x.numpy()).tolist() == [1, 1]
        else:
            with pytest.raises(aiodev.KernelError):
                await x.numpy()
    for wrong in ("x", ["y"]):
        with pytest.raises(TypeError, match="expected names among"):
            aiodev.kernel(reads=wrong)(body)
    with pytest.raises(TypeError, match="the body writes out"):
        aiodev.kernel(reads=["out"])(body)[1](x, x)


def test_reassoc_vectorises_a_sum_and_keeps_nan() -> None:
    """A sum in order is not vectorised; one that may be reordered is, and NaN is still NaN."""
    x, out = np.ones((2, 64), "f4"), np.zeros(2, "f4")
    plain = compiler.compile_result(spec_of(row_sum, 1, (x, out))).library.get_llvm_str()
    assert not re.search(r"fadd [a-z ]*<\d+ x float>", plain)
    fast = compiler.compile_result(spec_of(row_sum, 1, (x, out), fastmath=("reassoc",))).library.get_llvm_str()
    assert re.search(r"fadd reassoc <\d+ x float>", fast)
    assert "nnan" not in fast
    x[1, 5] = np.nan
    run(row_sum, 2, x, out, fastmath=("reassoc",))
    assert out[0] == 64 and np.isnan(out[1])
