"""What no kernel can be or do: each is refused with its place, and the stream goes on."""

from __future__ import annotations

import copy
import functools
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_entry import needs_compiler

import aiodev
from aiodev import CompileError, DependencyError, LaunchError

drawn = random.random
generator = np.random.default_rng()


def noise() -> float:
    return np.random.normal(0.0, 1.0)


def put(i: int, x: Any) -> None:
    x[i] = 2


@aiodev.kernel
def fill(i: int, x: Any) -> None:
    x[i] = 1


@aiodev.kernel
def element(i: int, x: Any) -> None:
    if x[i] > 0:
        return
    return x[i]


@aiodev.kernel
def chosen(i: int, x: Any) -> None:
    x[i] = 0
    return x[i] if i else None


@aiodev.kernel
def constant(i: int, x: Any) -> None:
    x[i] = 0
    return 1


@aiodev.kernel
def ends_early(i: int, x: Any) -> None:
    if i == 0:
        return
    if i == 1:
        return None
    x[i] = 3
    return put(i, x)


@aiodev.kernel
def of_numpy(i: int, x: Any) -> None:
    x[i] = 1
    x[i] = np.random.random()


@aiodev.kernel
def of_python(i: int, x: Any) -> None:
    x[i] = 1
    x[i] = random.random()


@aiodev.kernel
def by_name(i: int, x: Any) -> None:
    x[i] = 1
    x[i] = drawn()


@aiodev.kernel
def of_a_generator(i: int, x: Any) -> None:
    x[i] = 1
    x[i] = generator.random()


@aiodev.kernel
def in_what_it_calls(i: int, x: Any) -> None:
    x[i] = noise()


@aiodev.kernel
def in_a_function_of_its_own(i: int, x: Any) -> None:
    def seed(value: int) -> None:
        np.random.seed(value)

    seed(i)


def refused(launched: aiodev.Kernel, stream: aiodev.Stream) -> CompileError:
    """Why a kernel is, as whoever waits learns; what is launched then runs."""
    x = aiodev.zeros(3, dtype="f4", device="cpu")
    with pytest.raises(CompileError) as caught:
        launched[3, stream](x).synchronize_blocking(60)
    fill[3, stream](x).synchronize_blocking(60)
    assert x.numpy_blocking().tolist() == [1, 1, 1]
    return caught.value


@pytest.mark.parametrize(("body", "line"), [(element, 4), (chosen, 3), (constant, 3)])
def test_a_body_that_returns_a_value(body: aiodev.Kernel, line: int) -> None:
    """It would be lost. The error names the line of the return."""
    error = refused(body, aiodev.Stream("cpu"))
    assert "the body returns a value" in str(error) and error.kernel == body.name
    assert error.location == f"{__file__}:{body.py_func.__code__.co_firstlineno + line}"


def test_a_bare_return_ends_a_body_early() -> None:
    """So does the return of what gives nothing."""
    x = aiodev.zeros(4, dtype="f4", device="cpu")
    ends_early[4](x)
    assert x.numpy_blocking().tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("body", "within", "line"),
    [
        (of_numpy, of_numpy, 3),
        (of_python, of_python, 3),
        (by_name, by_name, 3),
        (of_a_generator, of_a_generator, 3),
        (in_what_it_calls, noise, 1),
        (in_a_function_of_its_own, in_a_function_of_its_own, 3),
    ],
)
def test_random_numbers_of_the_host(body: aiodev.Kernel, within: Callable[..., Any], line: int) -> None:
    """Each thread would draw from a state of its own. The error says where, and what draws on every device."""
    error = refused(body, aiodev.Stream("cpu"))
    assert "aiodev.kernels.random" in str(error)
    code = getattr(within, "py_func", within).__code__
    assert error.location == f"{__file__}:{code.co_firstlineno + line}"


@aiodev.kernel
def unknown(i: int, x: Any) -> None:
    x[i] = not_there(i)  # noqa: F821


def _wait(done: aiodev.Completion, stream: aiodev.Stream, x: aiodev.Array) -> None:
    done.synchronize_blocking(60)


def _synchronize(done: aiodev.Completion, stream: aiodev.Stream, x: aiodev.Array) -> None:
    stream.synchronize_blocking(60)


def _read(done: aiodev.Completion, stream: aiodev.Stream, x: aiodev.Array) -> None:
    x.numpy_blocking(60)


@needs_compiler
@pytest.mark.parametrize("wait", [_wait, _synchronize, _read])
def test_a_failed_compilation_is_the_launch_s_own_failure(wait: Callable[..., None]) -> None:
    """At its completion, at its stream, at who reads what it was to write; what follows tells of it, in its first line."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    x, y = aiodev.zeros(3, device="cpu"), aiodev.zeros(3, device="cpu")
    done, elsewhere = unknown[3, stream](x), [unknown[3, other](y)]
    behind = fill[3, stream](y)
    with pytest.raises(CompileError) as caught:
        wait(done, stream, x)
    line = unknown.py_func.__code__.co_firstlineno + 2
    place = test_a_failed_compilation_is_the_launch_s_own_failure.__code__.co_firstlineno + 6
    first = f"unknown: does not compile (at {__file__}:{line}; launched at {__file__}:{place}): NameError"
    assert str(caught.value).startswith(first) and "not_there" in caught.value.log
    with pytest.raises(DependencyError) as later:
        behind.synchronize_blocking(60)
    assert f"CompileError: {first}" in str(later.value)
    with pytest.raises(CompileError):
        elsewhere[0].synchronize_blocking(60)
    fill[3, stream](x).synchronize_blocking(60)


def test_kernels_are_pickled_and_copied_by_reference() -> None:
    """As functions are; one that no module has by its name is refused as a function is."""

    @aiodev.kernel
    def local(i: int, x: Any) -> None:
        x[i] = 1

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(fill, protocol)) is fill
    assert copy.copy(fill) is copy.deepcopy(fill) is fill
    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(local)


class _Holder:
    def method(self, i: int, x: Any) -> None:
        x[i] = 1

    def __call__(self, i: int, x: Any) -> None:
        x[i] = 1


@functools.wraps(put)
def wrapper(*args: Any) -> None:
    put(*args)


def test_what_is_no_plain_function() -> None:
    """Methods, callable objects, kernels, and what only looks like a function of other parameters."""
    for wrong in (_Holder().method, _Holder(), functools.partial(put), fill, staticmethod(put), np.sin, len):
        with pytest.raises(TypeError, match="a kernel is made of a plain function"):
            aiodev.kernel(wrong)
    with pytest.raises(TypeError, match=r"parameter \*args: a kernel's parameters are plain ones"):
        aiodev.kernel(wrapper)


@pytest.mark.parametrize("options", [{"ndim": True}, {"ndim": 1.0}, {"boundscheck": "no"}, {"uniform": 1}])
def test_options_of_a_wrong_type(options: dict[str, Any]) -> None:
    """None is taken for what it may have been meant as."""
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        aiodev.kernel(**options)(put)


@pytest.mark.parametrize("shape", [2**63, (2**32, 2**31), (2**63, 0), (2**70, 1)])
def test_shapes_that_are_too_large(shape: Any) -> None:
    """A shape has fewer than 2**63 indices, and says so itself."""
    stream = aiodev.Stream("cpu")
    x = aiodev.zeros(3, device="cpu")
    kernel = fill if isinstance(shape, int) else plane
    with pytest.raises(LaunchError, match=r"argument shape: expected fewer than 2\*\*63 indices") as caught:
        kernel[shape, stream](x)
    assert caught.value.argument == "shape"
    fill[3, stream](x).synchronize_blocking(60)


@aiodev.kernel(ndim=2)
def plane(i: int, j: int, x: Any) -> None:
    pass


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 2**63 - 1), (4, 2**61 - 3), (2**40, 0)])
def test_shapes_of_any_size_run(shape: tuple[int, int]) -> None:
    """Where the body does nothing, the compiler leaves nothing of it, and no number overflows."""
    x = aiodev.zeros(3, device="cpu")
    for _ in range(3):
        plane[shape](x).synchronize_blocking(60)


table = [1, 2, 3]


@aiodev.kernel
def of_a_global(i: int, x: Any) -> None:
    x[i] = table[i]


def taking(values: Any) -> Any:
    """A kernel of something from outside."""

    def look_up(i: int) -> Any:
        return values[i]

    @aiodev.kernel
    def closed_over(i: int, x: Any) -> None:
        x[i] = look_up(i)

    return closed_over


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (of_a_global, "table is a list"),
        (taking([1, 2, 3]), "values is a list"),
        (taking({0: 1}), "values is a dict"),
        (taking(bytearray(3)), "values is a bytearray"),
    ],
)
def test_containers_from_outside(kernel: Any, text: str) -> None:
    """It is said what can be taken instead, and where that is; a tuple and an array of NumPy can."""
    x = aiodev.zeros(3, device="cpu")
    with pytest.raises(CompileError, match=f"{text}, which a kernel cannot take from outside: make it a tuple") as caught:
        kernel[3](x).synchronize_blocking(60)
    assert caught.value.location is not None and caught.value.location.startswith(__file__)
    for values in ((1, 2, 3), np.array([1, 2, 3])):
        taking(values)[3](x).synchronize_blocking(60)
        assert x.numpy_blocking().tolist() == [1, 2, 3]
