"""Snapshots: what a body depends on, its key, and its twin in another process."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
import types
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from aiodev._kernel.compile.snapshot import Snapshot, Uncapturable, capture


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
        "from aiodev._kernel.compile.snapshot import capture\n"
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


Pair = namedtuple("Pair", "low high")


class Colour(enum.IntEnum):
    RED = 3
    BLUE = 4


class BadRow(ValueError):
    pass


def module(name: str, **values: Any) -> types.ModuleType:
    """A module of the user's that is nowhere on the path."""
    made = types.ModuleType(name)
    vars(made).update(values)
    return made


def test_what_the_body_takes_from_modules_counts() -> None:
    """Constants, tuples, arrays and functions, and those of modules in them; nothing else that a module has."""
    source = "def body(i, x):\n    x[i] = user.inner.FACTOR * user.helper(user.TABLE[0])\n"

    def user_key(factor: float = 2.0, table: Any = (1, 2), text: str = "def body(v): return v\n", **more: Any) -> str:
        inner = module("user.inner", FACTOR=factor, **more)
        user = module("user", inner=inner, TABLE=table, helper=make(text), **more)
        inner.user = user  # they name each other
        return capture(make(source, user=user)).digest()

    assert user_key() == user_key(OTHER=sys._getframe())
    others = [
        user_key(3.0),
        user_key(table=(2, 2)),
        user_key(table=np.arange(2)),
        user_key(text="def body(v): return 2\n"),
    ]
    assert len({user_key(), *others}) == 5


def test_a_global_is_not_an_attribute() -> None:
    """A name after a dot is none of the globals' business."""
    body = make("def body(i, x):\n    x[i] = x.size\n", size=sys._getframe())
    assert capture(body).digest() == capture(make("def body(i, x):\n    x[i] = x.size\n", size=1)).digest()
    many = "def body(i, x):\n    x[i] = " + " + ".join(f"V{n}" for n in range(300)) + "\n"
    values = {f"V{n}": n for n in range(300)}
    assert capture(make(many, **values)).functions[0].globals.keys() == values.keys()


def test_values_of_classes_of_one_s_own_are_sent_by_content() -> None:
    """Records, enumerations, exceptions and modules that no other process has."""
    user = module("user", scale=make("def body(v):\n    return 2 * v\n"))
    body = make(
        "def body(i, x):\n    if x[i]:\n        raise BadRow(i)\n"
        "    x[i] = user.scale(PAIR.high) + Colour.BLUE + Pair(1, 2).low + (RED is Colour.RED)\n",
        user=user, PAIR=Pair(10, 20), Pair=Pair, Colour=Colour, RED=Colour.RED, BadRow=BadRow,
    )  # fmt: skip
    data = capture(body).to_bytes()
    twin = Snapshot.rebuild(data)
    x = [0, 1]
    twin(0, x)
    assert x[0] == 46
    with pytest.raises(Exception, match="1") as caught:
        twin(1, x)
    assert caught.type.__aiodev_class__ == (__name__, "BadRow")
    assert __name__.encode() in data and twin.__globals__["Pair"] is not Pair


def test_jitted_functions_are_sent_with_their_options() -> None:
    """numba, which has them say what is so anyway, has nothing to warn of."""
    fast = numba.njit(fastmath=True)(make("def body(v):\n    return v + 1\n"))
    data = capture(make("def body(i, x):\n    x[i] = fast(x[i])\n", fast=fast)).to_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = Snapshot.rebuild(data).__globals__["fast"]
    assert twin.targetoptions["fastmath"] is True and twin.py_func(1) == 2


def test_they_count_by_content() -> None:
    """An enumeration's values, the order of a record's fields."""

    def of(value: Any) -> str:
        return capture(make("def body(i, x):\n    x[i] = VALUE\n", VALUE=value)).digest()

    assert of(enum.IntEnum("E", "A B")) == of(enum.IntEnum("E", "A B")) != of(enum.IntEnum("E", "B A"))
    assert of(enum.IntEnum("E", "A B").A) != of(enum.IntEnum("E", "A B").B)
    first, second = (enum.IntEnum("E", names) for names in ("A B", "B A"))

    def default_of(value: Any) -> str:
        helper = make("def body(v, way=WAY):\n    return v if way == WAY else 0\n", WAY=value)
        return capture(make("def body(i, x):\n    x[i] = helper(x[i])\n", helper=helper)).digest()

    assert default_of(first.A) == default_of(first.A) != default_of(second.A)
    assert of(namedtuple("R", "a b")(1, 2)) != of(namedtuple("R", "b a")(1, 2))


def test_modules_that_load_what_is_asked_for_are_asked() -> None:
    """What a module has only when it is asked for counts, and comes along."""
    lazy = module("lazy", __getattr__=lambda name: {"FACTOR": 3}[name] if name == "FACTOR" else _absent(name))
    body = make("def body(i, x):\n    x[i] = lazy.FACTOR * x.size\n", lazy=lazy)
    assert Snapshot.rebuild(capture(body).to_bytes()).__globals__["lazy"].FACTOR == 3


def _absent(name: str) -> Any:
    raise AttributeError(name)


def test_enumerations_of_equal_members_are_told_apart() -> None:
    """A worker that has met A = 1 makes one of A = 1.0, which equals it, all the same."""
    source = "def body(i, x):\n    x[i] = E.A.value\n"
    for member in (1, 1.0, True, 0.0, -0.0):
        body = Snapshot.rebuild(capture(make(source, E=enum.Enum("E", {"A": member}))).to_bytes())
        out = [None]
        body(0, out)
        assert repr(out[0]) == repr(member)
