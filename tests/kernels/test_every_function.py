"""Every public function of the library, called once on each executor: no other test need be run to have seen them all."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from programs import search_path

import aiodev
from aiodev import kernels
from aiodev._kernel.operation import Operation
from aiodev.kernels import fft, linalg, random
from aiodev.testing import Latch

#: What a parameter that has no default is given, by its name.
ARGUMENTS: dict[str, Callable[[], Any]] = {
    "a": lambda: 9,
    "alpha": lambda: 2.5,
    "arrays": lambda: [array(), array()],
    "axes": lambda: (1, 0),
    "condition": lambda: array("?"),
    "destination": lambda: 1,
    "dtype": lambda: "f8",
    "fill_value": lambda: 2.5,
    "from_": lambda: "i4",
    "indices": lambda: indices(),
    "kind": lambda: "real floating",
    "low": lambda: 9,
    "n": lambda: 9,
    "n_rows": lambda: 3,
    "num": lambda: 9,
    "obj": lambda: [1, 2],
    "p": lambda: aiodev.asarray(np.float32([0.25, 0.75]), device="cpu"),
    "pvals": lambda: [0.25, 0.75],
    "repeats": lambda: 2,
    "repetitions": lambda: 2,
    "shape": lambda: (3, 3),
    "shift": lambda: 1,
    "source": lambda: 0,
    "start": lambda: 1,
    "stop": lambda: 5,
    "to": lambda: "f8",
    "values": lambda: 1.0,
    "width": lambda: 1,
    "x": lambda: array(),
    "x1": lambda: array(),
    "x2": lambda: array(),
}


def add_one(x):
    return x + 1


def add_both(x1, x2):
    return x1 + x2


@kernels.fused
def scaled(x, y):
    return 2 * x + y


@aiodev.kernel
def draw_block(i, out):
    words = random.block(i, 1, 2)
    out[i] = words[0]


def block() -> aiodev.Array:
    """The words of blocks, which only kernels can have."""
    out = aiodev.empty(9, "u4", "cpu")
    draw_block[9](out)
    return out


#: Calls of what is not called with these alone.
CALLS: dict[str, Callable[[], Any]] = {
    "avg_pool2d": lambda: kernels.avg_pool2d(array()[None, None], 2),
    "binary_transform": lambda: kernels.binary_transform(add_both, array(), array()),
    "bincount": lambda: kernels.bincount(array("i8")),
    "block": block,
    "broadcast_arrays": lambda: kernels.broadcast_arrays(array(), array()[:1]),
    "embedding": lambda: kernels.embedding(indices(), array()),
    "empty": lambda: kernels.empty(0),
    "empty_like": lambda: kernels.empty_like(array()[:0]),
    "finfo": lambda: kernels.finfo("f4"),
    "fused": lambda: scaled(array(), array()),
    "conv2d": lambda: kernels.conv2d(array()[None, None], regular()[None, None], padding=1),
    "cross_entropy": lambda: kernels.cross_entropy(array(), indices()[:, 0]),
    "cumulative_prod": lambda: kernels.cumulative_prod(array(), axis=0),
    "cumulative_sum": lambda: kernels.cumulative_sum(array(), axis=0),
    "cholesky": lambda: linalg.cholesky(regular()),
    "inv": lambda: linalg.inv(regular()),
    "outer": lambda: linalg.outer(array()[0], array()[1]),
    "slogdet": lambda: linalg.slogdet(regular()),
    "solve": lambda: linalg.solve(regular(), array()),
    "iinfo": lambda: kernels.iinfo("i4"),
    "max_pool2d": lambda: kernels.max_pool2d(array()[None, None], 2, stride=1),
    "meshgrid": lambda: kernels.meshgrid(array()[0], array()[1]),
    "put": lambda: kernels.put(array(), indices(), 1.0),
    "result_type": lambda: kernels.result_type(array(), 2.0),
    "scaled_dot_product_attention": lambda: kernels.scaled_dot_product_attention(array(), regular(), array()),
    "searchsorted": lambda: kernels.searchsorted(array()[0], array()),
    "squeeze": lambda: kernels.squeeze(array()[:1], 0),
    "take_along_axis": lambda: kernels.take_along_axis(array(), indices(), axis=1),
    "unary_transform": lambda: kernels.unary_transform(add_one, array()),
    "warm_up": lambda: kernels.warm_up(["negative"], dtypes=["float32"]),
}


def array(dtype: str = "f4") -> aiodev.Array:
    """Nine numbers between 0 and 1, or small integers that are not negative."""
    numbers = np.arange(9).reshape(3, 3)
    return aiodev.asarray((numbers / 10 if dtype[0] == "f" else numbers % 3).astype(dtype), device="cpu")


def regular() -> aiodev.Array:
    """A symmetric positive definite matrix."""
    return aiodev.asarray(np.float32([[4, 1, 0], [1, 3, 1], [0, 1, 2]]), device="cpu")


def indices() -> aiodev.Array:
    """Of rows, columns, or elements."""
    return aiodev.asarray(np.array([[0], [2], [1]]), device="cpu")


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, with its module's name."""
    for module in (kernels, fft, linalg, random):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found


FUNCTIONS = dict(functions())


def call_of(name: str) -> Callable[[], Any]:
    """A call of a function."""
    short = name.rpartition(".")[2]
    if short in CALLS:
        return CALLS[short]
    required = [p.name for p in inspect.signature(FUNCTIONS[name]).parameters.values() if p.default is p.empty]
    unknown = set(required) - ARGUMENTS.keys()
    assert not unknown, f"ARGUMENTS does not say what {unknown} are given, nor CALLS how {short} is called"
    whole = short.startswith("bitwise")
    return lambda: FUNCTIONS[name](*(array("i8") if whole else ARGUMENTS[parameter]() for parameter in required))


async def call(name: str) -> list[Any]:
    """What a function gives, on the host."""
    made = call_of(name)()
    if inspect.isawaitable(made):
        made = await made
    parts = made if isinstance(made, tuple | list) else [made]
    return [await part.numpy() if isinstance(part, aiodev.Array) else part for part in parts]


async def call_all() -> dict[str, Any]:
    """What each function gives, or raises."""
    found = {}
    for name in FUNCTIONS:
        aiodev.manual_seed(5)
        try:
            found[name] = await call(name)
        except Exception as error:  # whose test says so
            found[name] = error
    return found


PROGRAM = """
import asyncio, pickle, runpy, sys
import aiodev
assert aiodev.get_backend("cpu").executor_kind == sys.argv[2]
found = asyncio.run(runpy.run_path(sys.argv[1])["call_all"]())
pickle.dump(found, sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def given() -> dict[str, dict[str, Any]]:
    """What each function gives, by executor: each in a process of its own, which may have one only."""
    found = {}
    for executor in ("native", "python"):
        environment = {**os.environ, "PYTHONPATH": search_path(os.environ.get("PYTHONPATH", "")), "AIODEV_EXECUTOR": executor}
        command = [sys.executable, "-c", PROGRAM, __file__, executor]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr.decode()
        found[executor] = pickle.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_executors_agree(name: str, given: dict[str, dict[str, Any]]) -> None:
    """The portable executor runs what the native one runs, to the bit."""
    native, portable = given["native"][name], given["python"][name]
    for found in (native, portable):
        if isinstance(found, Exception):
            raise found
    assert len(native) == len(portable) > 0
    for one, other in zip(native, portable, strict=True):
        np.testing.assert_array_equal(one, other)


# Bounded streams

#: Calls of several operations, or that draw, beyond those above.
COMPOSED_CALLS: dict[str, Callable[[], Any]] = {
    "assignment of a number to a view": lambda: gaps().__setitem__(slice(None), 1.5),
    "assignment of another dtype": lambda: gaps().__setitem__(indices()[:, 0], array("i8")),
    "assignment at masks": lambda: gaps().__setitem__(array("?"), 0.5),
    "assignment at indices of both dimensions": lambda: gaps().__setitem__(([0, 1], [1, 2]), 0.5),
    "choice by weights": lambda: random.choice(3, 2, replace=False, p=array()[1]),
    "choice of few": lambda: random.choice(1000, 2, replace=False, device="cpu"),
    "choice of rows": lambda: random.choice(array(), 2, p=[0.25, 0.5, 0.25]),
    "cross_entropy with labels to ignore": lambda: kernels.cross_entropy(array(), indices()[:, 0], ignore_index=2),
    "draw to a view": lambda: random.uniform(out=gaps()),
    "draw of whole numbers to a view": lambda: random.poisson(2.5, out=gaps()),
    "elements at masks and slices": lambda: array()[1:, [0, 2]],
    "matrix_norm of singular values": lambda: linalg.matrix_norm(regular(), ord="nuc"),
    "matrix_power of the inverse": lambda: linalg.matrix_power(regular(), -5),
    "permutation of many": lambda: random.permutation(50_000, device="cpu"),
    "shuffle along another axis": lambda: random.shuffle(gaps(), axis=1),
    "slices of another dtype": lambda: gaps().__setitem__((slice(None), [0, 2]), array("i8")[:, :2]),
}


def gaps() -> aiodev.Array:
    """Three rows of three numbers that lie apart."""
    return aiodev.zeros((3, 6), "f4", "cpu")[:, ::2]


@pytest.fixture
def arguments_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls are given is made once, and is there: on a bounded stream only they submit."""
    for function in (array, regular, indices, gaps):
        monkeypatch.setitem(globals(), function.__name__, functools.cache(function))
    for name, make in ARGUMENTS.items():
        monkeypatch.setitem(ARGUMENTS, name, functools.cache(make))


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.usefixtures("arguments_made_before")
@pytest.mark.parametrize("name", [*(name for name in FUNCTIONS if not name.endswith("warm_up")), *COMPOSED_CALLS])
def test_functions_are_submitted_whole_or_refused_whole(name: str) -> None:
    """With room for one operation they are submitted; with none they submit, and draw, nothing."""
    function = COMPOSED_CALLS.get(name) or call_of(name)
    function()  # which makes what it is given
    generator = aiodev.default_generator("cpu")
    aiodev.default_stream("cpu").synchronize_blocking(60)
    stream = aiodev.Stream("cpu", maxsize=2)
    with stream, Latch(stream):
        function()
        assert stream.qsize() <= 2
        if not stream.full():
            return  # a view, or nothing of the device's
        before, state = stream.timeline.submitted, generator.get_state()
        with pytest.raises(aiodev.StreamFullError):
            function()
        assert stream.timeline.submitted == before
        assert np.array_equal(generator.get_state(), state)


# Views

#: What calls other operations, each of which is remembered by itself.
COMPOSED = {"scaled_dot_product_attention", "attention_weights", "ihfft", "pinv"}


def with_gaps(x: aiodev.Array) -> aiodev.Array:
    """A view of the same elements whose rows lie apart."""
    host = x.numpy_blocking(60)
    wide = np.zeros((*host.shape[:-1], host.shape[-1] + 2), host.dtype)
    wide[..., 1:-1] = host
    return aiodev.asarray(wide, device="cpu")[..., 1:-1]


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations whose bodies run; what functions are given are views with gaps."""
    ran: list[str] = []
    run = Operation._pass

    def noted(self: Operation, call: aiodev.Call, *args: Any) -> Any:
        ran.append(self.name)
        return run(self, call, *args)

    monkeypatch.setattr(Operation, "_pass", noted)
    for own in (array, regular, indices):
        monkeypatch.setitem(globals(), own.__name__, lambda *args, own=own: with_gaps(own(*args)))
    return ran


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.endswith("warm_up")])
async def test_calls_with_views_are_remembered(name: str, bodies: list[str]) -> None:
    """Soon no body runs any more: the copies that a view with gaps needs are launches of the call, or were copied so before."""
    for _ in range(4):
        bodies.clear()
        await call(name)
    assert set(bodies) <= COMPOSED


ALONG = ["max", "sum", "var", "argmax", "cumulative_sum", "concat", "stack", "roll", "repeat", "softmax"]


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("axis", [0, 1])
async def test_calls_along_an_axis_with_views_are_remembered(name: str, axis: int, bodies: list[str]) -> None:
    """So it is along every axis, and where the elements are too many to be gathered one by one."""
    x = with_gaps(aiodev.ones((90, 80), "f4", "cpu"))
    given: dict[str, tuple[Any, ...]] = {"concat": ([x, x],), "stack": ([x, x],), "roll": (x, 1), "repeat": (x, 2)}
    for _ in range(3):
        bodies.clear()
        getattr(kernels, name)(*given.get(name, (x,)), axis=axis)
        await aiodev.synchronize("cpu")
    assert not bodies


@pytest.mark.parametrize("name", ["max", "cumulative_sum", "concat", "take", "roll", "pad", "sort", "softmax", "layer_norm"])
async def test_calls_that_write_to_views_are_remembered(name: str, bodies: list[str]) -> None:
    """What is written instead of a result with gaps is copied there by a launch of the call, too."""
    x, places = array(), aiodev.arange(3, device="cpu")
    given: dict[str, tuple[Any, ...]] = {"concat": ([x, x],), "take": (x, places), "roll": (x, 1), "pad": (x, 1)}
    options = {"axis": 1} if name in ("max", "cumulative_sum", "take") else {}
    function = functools.partial(getattr(kernels, name), *given.get(name, (x,)), **options)
    expected = await function().numpy()
    out = with_gaps(aiodev.zeros(expected.shape, expected.dtype, "cpu"))
    for _ in range(3):
        bodies.clear()
        function(out=out)
        await aiodev.synchronize("cpu")
    assert not bodies
    np.testing.assert_array_equal(await out.numpy(), expected)
