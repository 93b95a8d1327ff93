"""warm_up: what it compiles, and that a second process compiles nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aiodev
from aiodev import kernels, profiler
from aiodev.kernels import warmup

pytestmark = pytest.mark.anyio


def compiled_or_loaded() -> int:
    """How many kernels this process has had to bring in."""
    found = profiler.counters()
    return found["kernels_compiled"] + found["kernels_loaded"]


async def test_what_is_warm_has_nothing_to_wait_for() -> None:
    """Arrays of one shape, of shapes that broadcast, and a number, of the dtypes that were asked for."""
    await kernels.warm_up(["add", "sqrt"], dtypes=["float32", np.float64])
    before = compiled_or_loaded()
    for dtype in ("float32", "float64"):
        x = aiodev.ones((3, 5), dtype=dtype)
        for found in (kernels.add(x, x), kernels.add(x, x[:1]), kernels.add(x, 2.0), kernels.sqrt(x)):
            assert (await found.numpy()).dtype == dtype
    assert compiled_or_loaded() == before


async def test_few_and_many_elements_are_warm() -> None:
    """Along an axis, or along none, others of a function's kernels run for long rows, for columns and for short rows."""
    await kernels.warm_up(["max"], dtypes=["float32"])
    before = compiled_or_loaded()
    for shape in ((5,), (300_000,), (3, 5), (300, 400), (2000, 10)):
        x = aiodev.ones(shape, "f4")
        for axis in (None, 0, -1):
            await kernels.max(x, axis=axis).numpy()
    assert compiled_or_loaded() == before


async def test_random_numbers_are_warm_and_what_is_drawn_stays() -> None:
    """By their dotted names; the default generator has the numbers that it would have had."""
    generator = aiodev.default_generator(aiodev.current_device())
    state = generator.get_state()
    await kernels.warm_up(["random.random", "random.normal"], dtypes=["float32"])
    before = compiled_or_loaded()
    for function in (kernels.random.random, kernels.random.normal):
        await function(shape=(64, 64), dtype="float32", generator=aiodev.Generator(generator.device)).numpy()
    assert compiled_or_loaded() == before and bytes(generator.get_state()) == bytes(state)


@pytest.mark.parametrize("rows", [5, 64])
async def test_joins_and_conversions_are_warm(rows: int) -> None:
    """Of few elements and of many; between the common dtypes."""
    await kernels.warm_up(["concat", "stack", "astype"], dtypes=["float32"])
    before, x = compiled_or_loaded(), aiodev.ones((rows, rows), "f4")
    for found in (kernels.concat([x, x]), kernels.stack([x, x]), kernels.astype(x, "float64"), kernels.astype(x, "int64")):
        await found.numpy()
    assert compiled_or_loaded() == before


async def test_what_a_function_refuses_is_left_out() -> None:
    """Its other dtypes are compiled."""
    await kernels.warm_up(["layer_norm", "floor"], dtypes=["complex64", "float32"])
    before, x = compiled_or_loaded(), aiodev.ones((3, 5), "f4")
    for found in (kernels.layer_norm(x), kernels.floor(x)):
        await found.numpy()
    assert compiled_or_loaded() == before


async def test_a_function_may_register_its_own_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the place of those that its parameters suggest."""
    monkeypatch.setattr(warmup, "_samples", {})
    asked: list[np.dtype] = []
    warmup.register_sample("sqrt", asked.append)
    await kernels.warm_up(["sqrt"], dtypes=["float32", "int64"])
    assert sorted(asked, key=str) == [np.dtype("float32"), np.dtype("int64")]  # trio begins tasks in any order


async def test_unknown_names_are_refused() -> None:
    """Before anything is compiled."""
    with pytest.raises(ValueError, match="no function 'sqroot'"):
        await kernels.warm_up(["sqroot"])


def test_most_functions_say_what_to_compile() -> None:
    """By the names of their parameters."""
    silent = {name for name, function in warmup.functions().items() if not warmup.samples(name, function)}
    spoken = {"add", "exp", "where", "take", "concat", "matmul", "softmax", "roll", "astype", "linalg.norm", "fft.fft"}
    assert not silent & spoken and not {name for name in silent if name.startswith("random.")} - {"random.block"}


async def test_the_bar_is_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    """And not where standard error is no terminal."""
    pytest.importorskip("tqdm")
    await kernels.warm_up(["negative"], dtypes=["float32"])
    assert capsys.readouterr().err == ""
    await kernels.warm_up(["negative"], dtypes=["float32"], progress=True)
    assert "compiling kernels: 100%" in capsys.readouterr().err


PROGRAM = """
import asyncio
from aiodev import kernels, profiler
asyncio.run(kernels.warm_up(["add", "where", "concat"], dtypes=["float32"]))
found = profiler.counters()
print(found["kernels_compiled"], found["kernels_loaded"])
"""


def test_a_second_process_compiles_nothing(cache_without_kernels: Path) -> None:
    """It finds everything in the disk cache."""
    root, cache = str(Path(aiodev.__file__).parents[1]), str(cache_without_kernels)
    environment = {"PYTHONPATH": root, "AIODEV_CACHE_DIR": cache, "PATH": ""}

    def run() -> list[int]:
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return list(map(int, done.stdout.split()))

    compiled, loaded = run()
    assert compiled >= 5 and loaded == 0
    assert run() == [0, compiled]
