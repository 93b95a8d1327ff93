"""Draws: arguments, bounds, rounding, and recorded draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import DRAWS, Draw, generator

import aiodev
from aiodev._generator.recording import Recording
from aiodev.kernels import random

# Arguments


@pytest.mark.parametrize("name", DRAWS)
def test_out_is_filled_and_returned(name: str) -> None:
    """Whatever its layout; what lies between stays as it was."""
    draw = DRAWS[name]
    fresh = draw((3, 4), generator=generator())
    out = aiodev.empty((3, 4), fresh.dtype, "cpu")
    assert draw(out=out, generator=generator()) is out
    np.testing.assert_array_equal(out.numpy_blocking(), fresh.numpy_blocking())
    base = aiodev.zeros((6, 8), fresh.dtype, "cpu")
    view = base[::2, ::2]
    assert draw((3, 4), out=view, generator=generator()) is view
    expected = np.zeros((6, 8), fresh.dtype)
    expected[::2, ::2] = fresh.numpy_blocking()
    np.testing.assert_array_equal(base.numpy_blocking(), expected)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(), 0, (2, 0, 3), (2, 3, 4), None])
def test_shapes(name: str, shape: Any) -> None:
    """Of any number of dimensions; an array of nothing takes no words, and None is an array of no dimensions."""
    g = generator()
    found = DRAWS[name](shape, generator=g)
    assert found.shape == (() if shape is None else (shape,) if isinstance(shape, int) else shape)
    assert found.numpy_blocking().shape == found.shape
    assert (g.get_offset() == 0) == (found.size == 0)


def test_draws_without_a_generator_use_the_default_one() -> None:
    """Of the array's device."""
    with aiodev.fork_rng():
        aiodev.manual_seed(5)
        np.testing.assert_array_equal(
            random.random(10, device="cpu").numpy_blocking(), random.random(10, generator=generator()).numpy_blocking()
        )
        assert aiodev.default_generator("cpu").get_offset() == 20


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (
            lambda: random.random(3, dtype="int32", device="cpu"),
            TypeError,
            "dtype: expected float16, (bfloat16, )?float32 or float64",
        ),
        (lambda: random.random(3, out=np.zeros(3)), TypeError, "out: expected an aiodev.Array, got ndarray"),
        (lambda: random.random(3, out=aiodev.zeros(4, device="cpu")), ValueError, "out: expected the shape 3"),
        (lambda: random.random(out=aiodev.zeros(4, device="cpu"), dtype="f4"), TypeError, "out: expected float32"),
        (lambda: random.random(3, device="cpu", generator=5), TypeError, "generator: expected an aiodev.Generator"),
        (lambda: random.random_raw(out=aiodev.zeros(4, "u8", "cpu")), TypeError, "expected uint32"),
        (lambda: random.uniform(1, 1, 3, device="cpu"), ValueError, "low < high"),
        (lambda: random.uniform(0, float("inf"), 3, device="cpu"), ValueError, "finite bounds"),
        (lambda: random.uniform(-3e38, 4e38, 3, dtype="f4", device="cpu"), ValueError, "finite bounds"),
        (lambda: random.uniform(-3e38, 3e38, 3, dtype="f4", device="cpu"), ValueError, "difference float32 can .* overflows"),
        (lambda: random.uniform(-1.7e308, 1.7e308, 3, device="cpu"), ValueError, "difference float64 can .* overflows"),
        (lambda: random.normal(0, -1, 3, device="cpu"), ValueError, "scale >= 0"),
        (lambda: random.exponential(-1, 3, device="cpu"), ValueError, "scale >= 0"),
        (lambda: random.bernoulli(1.5, 3, device="cpu"), ValueError, "between 0 and 1"),
        (lambda: random.bernoulli(float("nan"), 3, device="cpu"), ValueError, "between 0 and 1"),
        (lambda: random.integers(5, 5, device="cpu"), ValueError, "there is no integer"),
        (lambda: random.integers(0.5, 5, device="cpu"), TypeError, "expected integers as bounds"),
        (lambda: random.integers(0, 300, dtype="u1", device="cpu"), ValueError, "uint8 goes from 0 to 255"),
        (lambda: random.integers(-1, 3, dtype="u8", device="cpu"), ValueError, "uint64 goes from 0"),
        (lambda: random.integers(0, 3, dtype="f4", device="cpu"), TypeError, "dtype: expected"),
    ],
)
def test_wrong_arguments_name_themselves(draw: Any, error: Any, message: str) -> None:
    """At the call, before anything is drawn."""
    with aiodev.fork_rng():
        before = aiodev.get_rng_state("cpu")
        with pytest.raises(error, match=message):
            draw()
        assert aiodev.get_rng_state("cpu") == before


@pytest.mark.parametrize("draw", [random.standard_normal, lambda n, **k: random.exponential(2, n, **k)])
def test_float16_is_rounded_from_float32(draw: Draw) -> None:
    """Of the distributions that are computed."""
    half = draw(1001, dtype="f2", generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(half, draw(1001, dtype="f4", generator=generator()).numpy_blocking().astype("f2"))


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_rejection_is_computed_in_float64(dtype: str) -> None:
    """Gamma numbers are rounded from there; Poisson numbers are what they are in any dtype."""
    found = random.gamma(2.5, 1, 1001, dtype=dtype, generator=generator()).numpy_blocking()
    expected = random.gamma(2.5, 1, 1001, generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(found, expected.astype(dtype))
    counts = random.poisson(30, 1001, dtype=dtype, generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(counts, random.poisson(30, 1001, generator=generator()).numpy_blocking())


def test_uniform_numbers_stay_below_the_upper_bound() -> None:
    """Even where rounding would reach it."""
    half = random.uniform(-60_000, 60_000, 10_000, dtype="f2", generator=generator()).numpy_blocking()
    assert half.min() >= -60_000 and half.max() < 60_000
    half = random.uniform(1, 1 + 2**-10, 10_000, dtype="f2", generator=generator()).numpy_blocking()
    assert (half == 1).all()
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    found = random.uniform(low, high, 10_000, dtype="f4", generator=generator()).numpy_blocking()
    assert (found == low).all()


def test_certain_tosses() -> None:
    """With probability 0 never, with 1 always."""
    assert not random.bernoulli(0, 10_000, generator=generator()).numpy_blocking().any()
    assert random.bernoulli(1, 10_000, generator=generator()).numpy_blocking().all()


async def test_draws_follow_their_stream() -> None:
    """They are submitted to the current one, and are in its order."""
    stream = aiodev.Stream("cpu")
    async with stream:
        x = random.random(1000, generator=generator())
        await x.numpy()  # and the kernel is there: what waits for one waits in an operation of its own
        before = stream.timeline.submitted
        random.random(out=x, generator=generator(6))
        assert stream.timeline.submitted == before + 1
        np.testing.assert_array_equal(await x.numpy(), random.random(1000, generator=generator(6)).numpy_blocking())


# Recorded draws


async def test_a_replay_equals_the_same_calls_made_directly() -> None:
    """Kernels read seed and base offset from device words, which are refilled before each replay."""
    g, direct = generator(11, 40), generator(11, 40)
    stream = aiodev.Stream("cpu")
    async with stream:
        recording = Recording(g)
        arrays = [aiodev.empty(1001, dtype, "cpu") for dtype in ("f4", "f8", "i8", "u4")]

        def calls(generator: aiodev.Generator) -> None:
            random.random(out=arrays[0], generator=generator)
            random.standard_normal(out=arrays[1], generator=generator)
            random.integers(0, 3 << 30, out=arrays[2], generator=generator)
            random.random_raw(out=arrays[3], generator=generator)

        launches: list[tuple[aiodev.Kernel, Any, tuple[Any, ...]]] = []
        with pytest.MonkeyPatch.context() as patch, recording.record():
            launch = aiodev.Kernel.__getitem__
            patch.setattr(
                aiodev.Kernel, "__getitem__", lambda kernel, place: lambda *args: launches.append((kernel, place, args))
            )
            calls(g)
            patch.setattr(aiodev.Kernel, "__getitem__", launch)
        seen = set()
        for _ in range(3):
            stream.copy(recording.words, np.frombuffer(recording.refill(stream), np.uint64))
            for kernel, place, args in launches:
                kernel[place](*args)
            replayed = [await array.numpy() for array in arrays]
            calls(direct)
            for one, other in zip(replayed, arrays, strict=True):
                np.testing.assert_array_equal(one, await other.numpy())
            assert g.get_state() == direct.get_state()
            seen.add(replayed[0].tobytes())
        assert len(seen) == 3


def test_a_recorded_generator_keeps_its_state() -> None:
    """Nothing that a replay could not repeat may happen to it; others are free, and so are other tasks."""
    g, other = generator(), generator()
    recording = Recording(g)
    with recording.record():
        for forbidden in (
            lambda: g.manual_seed(1), g.seed, g.get_state, g.get_offset, g.clone_state,
            lambda: g.set_state(b"\0" * 16), lambda: g.set_offset(0), lambda: g.spawn(1),
        ):  # fmt: skip
            with pytest.raises(aiodev.CaptureError, match="recorded"):
                forbidden()
        with pytest.raises(RuntimeError, match="already"), Recording(g).record():
            pass
        other.manual_seed(3)
        assert g.reserve(5)[:2] == (0, 0)
        assert g.reserve(5)[:2] == (0, 8)
        assert g.reserve(1).words is recording.words
    assert recording.count == 20
    assert g.get_offset() == 0
