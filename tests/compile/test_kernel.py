"""Kernels from the decorator to the result, on the CPU."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import numpy as np
import pytest
from kernel_fakes import FakeArray, arrays

import aiodev
from aiodev import KernelError, LaunchError
from aiodev._kernel.dispatch import specializations
from aiodev._kernel.kernel import kernel


@kernel
def saxpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@kernel(ndim=2)
def transpose(i: int, j: int, x: Any, out: Any) -> None:
    out[j, i] = x[i, j]


@kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


@kernel
def defaulted(i: int, x: Any, scale: float = 2.0) -> None:
    x[i] = scale


def operands(count: int = 8, dtype: str = "f4") -> tuple[FakeArray, FakeArray, FakeArray]:
    x, y, out = arrays(np.arange(count, dtype=dtype), np.ones(count, dtype), np.zeros(count, dtype))
    return x, y, out


@pytest.mark.anyio
async def test_launch() -> None:
    """The first launch, the second, and one on a given stream; in every order of awaiting."""
    x, y, out = operands()
    first = saxpy[8](2.0, x, y, out)
    second = saxpy[8](3.0, x, y, out)
    await second
    await first
    assert (out.host == 3 * x.host + 1).all()
    await saxpy[np.int64(8)](3.0, x, y, out)
    await saxpy[(8,), aiodev.current_stream()](3.0, x, y, out)
    await saxpy[8, aiodev.Stream("cpu")](4.0, x, y, out)
    assert (out.host == 4 * x.host + 1).all()
    await aiodev.Stream("cpu").launch(saxpy, 8, 5.0, x, y, out)
    assert (out.host == 5 * x.host + 1).all()


@pytest.mark.anyio
async def test_two_dimensions_and_empty_shapes() -> None:
    """A shape is a tuple; with a length of 0 nothing runs and the launch completes."""
    x, out = arrays(np.arange(6.0).reshape(2, 3), np.zeros((3, 2)))
    await transpose[2, 3](x, out)
    assert (out.host == x.host.T).all()
    await transpose[(2, 3), aiodev.current_stream()](x, out)
    await transpose[0, 3](x, out)
    await saxpy[0](1.0, *operands())


@pytest.mark.anyio
async def test_types_may_alternate() -> None:
    """A kernel keeps what was compiled for each combination of types, more of them than it has branches for."""
    for _ in range(3):
        for dtype in ("f4", "f8", "i4", "i8", "u1", "c16"):
            x, y, out = operands(dtype=dtype)
            for a in (2, 2.0):
                await saxpy[8](a, x, y, out)
                assert (out.host == (2 * x.host + 1)).all()


@pytest.mark.anyio
async def test_a_launcher_that_is_kept_is_as_quick_as_a_new_one() -> None:
    """Whenever it was made: none looks through arguments again whose types were launched once their code was there."""

    @kernel
    def fill(i: int, value: float, x: Any) -> None:
        x[i] = value

    def refuse_it(*given: Any) -> None:
        raise AssertionError(f"the slow way: {given}")

    x = aiodev.zeros(4, "f4", "cpu")
    kept = [fill[4], fill[4, aiodev.Stream("cpu")]]
    await kept[0](1.0, x)
    kept.append(fill[4])
    await fill[4](2.0, x)
    fill._caller._own.slow = refuse_it
    for number, launch in enumerate(kept):
        await launch(float(number), x)
        assert (await x.numpy() == number).all()


def test_launches_while_a_kernel_learns_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """In several threads, by a launcher that all have: what one of them has it learn is never taken for another's type."""
    monkeypatch.setattr(specializations, "_MOST_PATIENCE", 1)

    @kernel
    def increment(i: int, x: Any, out: Any) -> None:
        out[i] = x[i] + 1

    launch, failures = increment[8], list[BaseException]()
    given = {dtype: aiodev.full(8, 3, dtype, "cpu") for dtype in ("f4", "f8", "i4", "i8", "u1", "c16")}
    for x in given.values():
        launch(x, aiodev.empty_like(x)).synchronize_blocking()

    def run(seed: int) -> None:
        choose = random.Random(seed)
        try:
            with aiodev.Stream("cpu"):
                for _ in range(200):
                    x = given[choose.choice(list(given))]
                    launch(x, out := aiodev.empty_like(x))
                    found = out.numpy_blocking()
                    assert found.dtype == x.dtype and (found == 4).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=[seed]) for seed in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures


def test_uses_are_noted_in_the_buffers() -> None:
    """By the first launch and by later ones, of every array: as written, or as read where the body surely only reads."""
    x, y, out = operands()
    for _ in range(3):
        done = saxpy[8](2.0, x, y, out)
        done.synchronize_blocking()
        assert (out._buffer._writer, out._buffer._written) == (done.timeline, done.value)
        for array in (x, y):
            assert (array._buffer._reader, array._buffer._read) == (done.timeline, done.value)
            assert array._buffer._writer is None


@pytest.mark.anyio
async def test_kernel_error() -> None:
    """What a body raises is the cause; the error names kernel, line and place of launch; then the stream works again."""
    (x,) = arrays(np.arange(8.0))
    for _ in range(2):
        with pytest.raises(KernelError) as caught:
            await refuse[8](x)
        error = caught.value
        assert isinstance(error.__cause__, ValueError)
        assert error.__cause__.args in [("bad row", row) for row in range(3, 8)]  # in whatever order they ran
        assert error.location == f"{__file__}:{refuse.py_func.__code__.co_firstlineno + 3}"
        assert error.submitted_at is not None and error.submitted_at.startswith(__file__)
    await refuse[2](x)


def test_wrong_launches_name_what_is_wrong() -> None:
    """Each at the call, not later."""
    x, y, out = operands()
    cases: list[tuple[Any, tuple[Any, ...], str | None, str]] = [
        (8, (2.0, x, y), "out", r"expected 4 arguments \(a, x, y, out\), got 3"),
        (8, (2.0, x, y, out, out), None, "got 5"),
        (8, (2.0, x, None, out), "y", "expected a number or an array"),
        (8, (2.0, x.host, y, out), "x", "NumPy array"),
        (8, (1e300, x, y, out), "a", "a number that fits f4"),
        (-1, (2.0, x, y, out), "shape", "lengths of 0 or more"),
        ((-1, aiodev.current_stream()), (2.0, x, y, out), "shape", "lengths of 0 or more"),
        (np.int64(-1), (2.0, x, y, out), "shape", "lengths of 0 or more"),
        ((2, 3), (2.0, x, y, out), "shape", "expected an int"),
        ("8", (2.0, x, y, out), "shape", "expected an int"),
        (2.0, (2.0, x, y, out), "shape", "expected an int"),
    ]
    for _ in range(2):
        for shape, args, argument, message in cases:
            with pytest.raises(LaunchError, match=message) as caught:
                saxpy[shape](*args)
            assert caught.value.argument == argument
        saxpy[8](2.0, x, y, out).synchronize_blocking()
    with pytest.raises(LaunchError, match="a tuple of 2 ints"):
        transpose[8](x, out)


def test_names_and_defaults() -> None:
    """Arguments may be given by name; the body's defaults hold."""
    x, y, out = operands()
    saxpy[8](2.0, x, out=out, y=y).synchronize_blocking()
    assert (out.host == 2 * x.host + 1).all()
    for _ in range(2):
        defaulted[8](x).synchronize_blocking()
        assert (x.host == 2).all()
        defaulted[8](x, scale=4.0).synchronize_blocking()
        assert (x.host == 4).all()


def test_a_kernel_is_launched_not_called() -> None:
    """A call without an index, or with device arrays, says how to launch; another runs the plain function for its index."""
    with pytest.raises(TypeError, match=r"launch it over a shape, which goes in brackets: saxpy\[shape\]"):
        saxpy(2.0, [1.0], [3.0], [0.0])
    x = aiodev.ones(8, device="cpu")
    for call, launch in (
        (lambda: saxpy(8, 2.0, x, x, x), r"saxpy\[8\]\(a, x, y, out\)"),
        (lambda: saxpy((8,), 2.0, x, x, x), r"saxpy\[\(8,\)\]\(a, x, y, out\)"),
        (lambda: transpose(2, 4, x, x), r"transpose\[2, 4\]\(x, out\)"),
        (lambda: transpose((2, 4), x, x), r"transpose\[shape\]\(x, out\)"),
    ):
        with pytest.raises(TypeError, match=f"goes in brackets: {launch}"):
            call()
    for call in (saxpy, saxpy.py_func):
        out = [0.0]
        call(0, 2.0, [1.0], [3.0], out)
        assert out == [5.0]
    assert saxpy.__name__ == "saxpy" and "saxpy(a, x, y, out)" in repr(saxpy)


async def _coroutine(i: int, x: Any) -> None:
    x[i] = 0


def _generator(i: int, x: Any) -> Any:
    yield x[i]


def test_refused_at_decoration() -> None:
    """What no kernel can be."""
    with pytest.raises(ValueError, match="1, 2 or 3"):
        kernel(ndim=4)
    with pytest.raises(TypeError, match="2 indices first"):
        kernel(ndim=2)(lambda i: None)
    with pytest.raises(TypeError, match="use def"):
        kernel(lambda i, x: None)
    for wrong in (_coroutine, _generator, int, "name"):
        with pytest.raises(TypeError, match="a kernel is made of a plain function"):
            kernel(wrong)
    with pytest.raises(TypeError, match="plain ones"):
        kernel(lambda i, *args: None)


def test_methods_are_refused_at_decoration() -> None:
    """Nobody would give a method its ``self``. A function of indices may stand in a class, and ``self`` may be an index."""
    for of in ("self", "cls"):
        namespace: dict[str, Any] = {"kernel": kernel}
        with pytest.raises(TypeError, match=rf"Scale\.run: .* is a method, whose first parameter is {of}: a kernel's first is"):
            exec(f"class Scale:\n    @kernel\n    def run({of}, i, x): x[i] = 1", namespace)

    class Scale:
        @kernel
        def run(i: int, x: Any) -> None:  # type: ignore[misc]
            x[i] = 1

    @kernel
    def of_self(self: int, x: Any) -> None:
        x[self] = 1

    assert [len(one._parameters) for one in (Scale.run, of_self)] == [1, 1]


@pytest.mark.anyio
async def test_implementation() -> None:
    """A hand-written body is used on its type of device, and is visible; it must take the same parameters."""

    @kernel
    def one(i: int, x: Any) -> None:
        x[i] = 1

    @one.implementation("cpu")
    def one_cpu(i: int, x: Any) -> None:
        x[i] = 2

    assert dict(one.implementations) == {"cpu": one_cpu}
    (x,) = arrays(np.zeros(4))
    await one[4](x)
    assert (x.host == 2).all()
    with pytest.raises(ValueError, match="already launched"):
        one.implementation("cpu")(one_cpu)
    with pytest.raises(TypeError, match="the cuda body takes"):
        one.implementation("cuda")(lambda i, y: None)


@pytest.mark.anyio
async def test_a_kernel_may_call_another() -> None:
    """As a plain function of its index and arguments."""

    @kernel
    def set_to(i: int, x: Any, value: float) -> None:
        x[i] = value

    @kernel
    def twice(i: int, x: Any) -> None:
        set_to(i, x, 2.0 * i)

    (x,) = arrays(np.zeros(4))
    await twice[4](x)
    assert x.host.tolist() == [0, 2, 4, 6]


@pytest.mark.anyio
async def test_boundscheck() -> None:
    """An index out of bounds is an IndexError where that was asked for."""

    @kernel(boundscheck=True)
    def over(i: int, x: Any) -> None:
        x[2 * i] = 0

    with pytest.raises(KernelError) as caught:
        await over[4](*arrays(np.zeros(4)))
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_kernel_is_not_iterated() -> None:
    """Its brackets take every number, so that there would be no end."""
    for iterate in (list, tuple, lambda kernel: 3 in kernel):
        with pytest.raises(TypeError, match="iterable|container"):
            iterate(saxpy)
