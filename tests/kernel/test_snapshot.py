"""Snapshots: what a body depends on, its key, and its twin in another process."""

from __future__ import annotations

import math
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiodev._kernel.snapshot import Snapshot, Uncapturable, capture


def make(source: str, **values: Any) -> Callable[..., None]:
    """The function ``body`` of a module of its own."""
    namespace = {"__name__": "somewhere", **values}
    exec(compile(source, "somewhere.py", "exec"), namespace)
    return namespace["body"]


SOURCE = "def body(i, x):\n    x[i] = helper(x[i]) + CONSTANT\ndef helper(v):\n    return v * FACTOR\n"


def key(**values: Any) -> str:
    return capture(make(SOURCE, **values)).digest()


def test_what_the_body_uses_counts() -> None:
    """Constants count, directly and through what the body calls; others of the module do not."""
    base = key(CONSTANT=1.0, FACTOR=2)
    assert key(CONSTANT=1.0, FACTOR=2, OTHER=3) == base
    assert key(CONSTANT=1.5, FACTOR=2) != base
    assert key(CONSTANT=1, FACTOR=2) != base
    assert key(CONSTANT=1.0, FACTOR=3) != base


def test_closures_and_arrays_count() -> None:
    """So do the contents of cells, and of arrays that the body reads as constants."""

    def scaled(table: np.ndarray[Any, Any]) -> Callable[..., None]:
        def body(i: int, x: Any) -> None:
            x[i] = table[i]

        return body

    base = capture(scaled(np.arange(3))).digest()
    assert capture(scaled(np.arange(3))).digest() == base
    assert capture(scaled(np.arange(4))).digest() != base
    assert capture(scaled(np.arange(3.0))).digest() != base


def test_code_counts() -> None:
    """Another operation is another key."""
    assert (
        capture(make("def body(i, x):\n    x[i] = 1\n")).digest()
        != capture(make("def body(i, x):\n    x[i] = 2\n")).digest()
    )


def test_digest_is_the_same_in_every_process() -> None:
    """Whatever the hash seed, and however often the code has run."""
    code = (
        "from aiodev._kernel.snapshot import capture\n"
        "import math\n"
        "TABLE = (1, 2.5, 'x', frozenset('abc'))\n"
        "def helper(v): return math.sqrt(v) + TABLE[0] if v in {'p', 'q', 'r'} else 1\n"
        "def body(i, x): x[i] = helper(x[i])\n"
        "print(capture(body).digest())\n"
    )
    run = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert run[0].stdout == run[1].stdout


def test_rebuilt_function_does_the_same() -> None:
    """Functions, modules, constants and recursion survive the trip; the user's module is not imported."""
    body = make(
        "def body(i, x):\n    x[i] = math.floor(down(3) * FACTOR)\n"
        "def down(n):\n    return 0.5 if n == 0 else down(n - 1) + 1\n",
        math=math,
        FACTOR=2.0,
    )
    twin = Snapshot.rebuild(capture(body).to_bytes())
    x = [0.0]
    twin(0, x)
    assert x == [7.0]
    assert "somewhere" not in sys.modules
    assert isinstance(twin, types.FunctionType) and twin.__code__.co_filename == "somewhere.py"


def test_what_cannot_be_sent_is_said() -> None:
    """A body that refers to something without bytes of its own is compiled in this process."""
    snapshot = capture(make("def body(i, x):\n    x[i] = THING\n", THING=sys._getframe()))
    with pytest.raises(Uncapturable):
        snapshot.digest()
    with pytest.raises(Uncapturable):
        snapshot.to_bytes()
