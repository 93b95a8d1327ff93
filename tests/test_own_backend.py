"""A backend of somebody else's: that of the how-to, which is made of public names alone."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import aiodev
from aiodev.testing import RULES, NotApplicable, Rule, check_rule

SOURCE = Path(__file__).resolve().parents[1] / "docs" / "howto" / "one_thread.py"


@pytest.fixture(scope="module")
def own() -> ModuleType:
    """The how-to's module."""
    spec = importlib.util.spec_from_file_location("one_thread", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def backend(own: ModuleType) -> Iterator[aiodev.Backend]:
    """It, started."""
    made: aiodev.Backend = own.OneThreadBackend()
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_it_keeps_each_rule(rule: Rule, backend: aiodev.Backend) -> None:
    """What the ABCs say is enough to pass the conformance test."""
    try:
        check_rule(backend, rule)
    except NotApplicable as reason:
        pytest.skip(str(reason))


def test_it_needs_nothing_private() -> None:
    """It imports aiodev alone, and touches no name with an underscore in front."""
    tree = ast.parse(SOURCE.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in modules if module and module.startswith("aiodev")} == {"aiodev"}
    touched = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not [name for name in touched if re.match(r"_(?!_|replace$)", name)]  # a NamedTuple has `_replace`


PROGRAM = """
import asyncio, sys
import numpy as np
import aiodev, aiodev.kernels.linalg
from aiodev import kernels
sys.path.insert(0, sys.argv[1])
from one_thread import OneThreadBackend

aiodev.register_backend("thread", OneThreadBackend)
host = np.arange(12, dtype="f4").reshape(3, 4)

async def main():
    async with aiodev.Stream("thread") as stream:
        x = aiodev.asarray(host)
        found = kernels.add(x, 1), kernels.sum(x, axis=0), kernels.linalg.matmul(x, x.T), kernels.sort(x[:, ::-2])
        expected = host + 1, host.sum(0), host @ host.T, np.sort(host[:, ::-2])
        for ours, numpys in zip(found, expected):
            assert np.allclose(await ours.numpy(), numpys), (await ours.numpy(), numpys)
        event = stream.record_event()
        assert await stream.call(int, 7) == 7 and event.query()

asyncio.run(main())
"""


def test_programs_and_the_library_run_on_it() -> None:
    """Streams, events, arrays and library functions, though nobody has heard of it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SOURCE.parent)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
