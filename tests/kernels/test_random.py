"""Draws: the words that they take, the same bits however they are computed, arguments, and recorded draws."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import aiodev
from aiodev._generator.philox import philox
from aiodev._generator.recording import Recording
from aiodev.kernels import random
from aiodev.kernels.random import drawing
from aiodev.kernels.random.philox import block

LOW = 0xFFFFFFFF
Draw = Callable[..., aiodev.Array]

#: Every function whose elements are made of one block's words, or of blocks of their own, ready to be given a shape.
DRAWS: dict[str, Draw] = {
    "random": random.random,
    "uniform": lambda shape=None, **k: random.uniform(-3, 5, shape, **k),
    "normal": lambda shape=None, **k: random.normal(1, 2, shape, **k),
    "standard_normal": random.standard_normal,
    "exponential": lambda shape=None, **k: random.exponential(3, shape, **k),
}
DISCRETE: dict[str, Draw] = {
    "random_raw": random.random_raw,
    "integers": lambda shape=None, **k: random.integers(-3, 2**31, shape, **k),
    "integers_wide": lambda shape=None, **k: random.integers(-(2**62), 2**63, shape, **k),
    "bernoulli": lambda shape=None, **k: random.bernoulli(0.3, shape, **k),
}


def generator(seed: int = 5, offset: int = 0) -> aiodev.Generator:
    """One for the CPU."""
    g = aiodev.Generator("cpu").manual_seed(seed)
    g.set_offset(offset)
    return g


def words_of(seed: int, offset: int, count: int) -> np.ndarray[Any, Any]:
    """The words from an offset on, by the host's Philox."""
    blocks = range(offset // 4, offset // 4 + -(-count // 4))
    key = seed & LOW, seed >> 32
    return np.array([w for c in blocks for w in philox((c & LOW, c >> 32, 0, 0), key)][:count], np.uint32)


# Words


def test_the_kernels_philox_gives_the_known_answers() -> None:
    """Random123's published vectors, through the very function that kernels are compiled of."""
    answers = {
        (0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (2**64 - 1,) * 3: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }

    @aiodev.kernel
    def philox_blocks(i, arguments, out):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = block(arguments[i, 0], arguments[i, 1], arguments[i, 2])

    arguments = aiodev.asarray(np.array(list(answers), np.uint64), device="cpu")
    out = aiodev.empty((len(answers), 4), np.uint32, "cpu")
    philox_blocks[len(answers)](arguments, out)
    np.testing.assert_array_equal(out.numpy_blocking(), np.array(list(answers.values()), np.uint32))
    with np.errstate(over="ignore"):
        for given_, expected in answers.items():
            assert tuple(int(word) for word in block(*map(np.uint64, given_))) == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**61), st.integers(0, 300))
@settings(deadline=None, max_examples=30)
def test_words_come_in_the_counters_order(seed: int, blocks: int, count: int) -> None:
    """Element i is word i % 4 of the block with the counter offset / 4 + i // 4; the draw takes whole blocks."""
    g = generator(seed, 4 * blocks)
    found = random.random_raw(count, generator=g).numpy_blocking()
    np.testing.assert_array_equal(found, words_of(seed, 4 * blocks, count))
    assert g.get_offset() == 4 * (blocks + -(-count // 4))


def test_the_counter_carries_into_its_second_word() -> None:
    """The 2**32-th block follows the one before."""
    offset = 4 * (2**32 - 8)
    np.testing.assert_array_equal(
        random.random_raw(64, generator=generator(3, offset)).numpy_blocking(), words_of(3, offset, 64)
    )


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_floats_are_the_upper_bits_of_words(count: int) -> None:
    """11 or 24 of one word, 53 of two; exactly."""
    words = words_of(5, 0, 2 * count).astype(np.uint64)
    single = random.random(count, dtype="float32", generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(single, ((words[:count] >> 8) * 2.0**-24).astype(np.float32))
    half = random.random(count, dtype="float16", generator=generator()).numpy_blocking()
    np.testing.assert_array_equal(half, ((words[:count] >> 21) * 2.0**-11).astype(np.float16))
    double = random.random(count, generator=generator()).numpy_blocking()
    pairs = words[::2] | words[1::2] << np.uint64(32)
    np.testing.assert_array_equal(double, (pairs >> np.uint64(11)) * 2.0**-53)


def bounded(seed: int, offset: int, count: int, low: int, span: int) -> list[int]:
    """What ``integers`` gives, word by word."""
    bits, per_block = (64, 2) if span > 1 << 32 else (32, 4)
    found = []
    for i in range(count):
        counter, attempt = offset // 4 + i // per_block, 0
        while True:
            w = philox((counter & LOW, counter >> 32, attempt, 0), (seed & LOW, seed >> 32))
            k = i % per_block
            product = (w[k] if bits == 32 else w[2 * k] | w[2 * k + 1] << 32) * span
            if product % (1 << bits) >= (1 << bits) % span:
                break
            attempt += 1
        found.append(low + (product >> bits))
    return found


@given(
    st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 150), st.integers(0, 2**64 - 1)
)
@settings(deadline=None, max_examples=60)
def test_integers_of_any_range(low: int, high: int, count: int, seed: int) -> None:
    """Unbiased: rejected words are replaced by words of further blocks with the same counter."""
    low, high = sorted((low, high))
    found = random.integers(low, high, count, endpoint=True, generator=generator(seed)).numpy_blocking()
    assert found.tolist() == bounded(seed, 0, count, low, high - low + 1)


@given(st.integers(-10, 2**31), st.integers(1, 2**32))
@settings(deadline=None, max_examples=30)
def test_integers_of_narrow_ranges(low: int, span: int) -> None:
    """One word for each."""
    g = generator()
    assert random.integers(low, low + span, 100, generator=g).numpy_blocking().tolist() == bounded(5, 0, 100, low, span)
    assert g.get_offset() == 100


@pytest.mark.parametrize("dtype", ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_do_not_depend_on_the_dtype(dtype: str) -> None:
    """It only says how they are stored."""
    expected = random.integers(0, 2, 100, generator=generator()).numpy_blocking()
    found = random.integers(2, dtype=dtype, shape=100, generator=generator()).numpy_blocking()
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, expected.astype(dtype))


# The same bits


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", DRAWS)
def test_an_element_does_not_depend_on_how_many_there_are(name: str, dtype: str) -> None:
    """Pieces of any size, whole runs of blocks or not, give the same beginning."""
    whole = DRAWS[name](100_003, dtype=dtype, generator=generator()).numpy_blocking()
    for count in (1, 2, 3, 5, 63, 64, 129, 1000):
        np.testing.assert_array_equal(
            DRAWS[name](count, dtype=dtype, generator=generator()).numpy_blocking(), whole[:count]
        )


@pytest.mark.parametrize("name", [*DRAWS, *DISCRETE])
def test_an_index_may_be_any_number_of_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, as on devices with a thread for each index, gives the same as a run of them."""
    draw = {**DRAWS, **DISCRETE}[name]
    runs = draw(1003, generator=generator()).numpy_blocking()
    monkeypatch.setattr(drawing, "_CPU_BLOCKS", 1)
    np.testing.assert_array_equal(draw(1003, generator=generator()).numpy_blocking(), runs)


async def test_draws_at_once_do_not_overlap() -> None:
    """Tasks that draw from one generator on streams of their own get, all together, the sequence."""
    g = generator()

    async def work() -> list[np.ndarray[Any, Any]]:
        found = []
        async with aiodev.Stream("cpu"):
            for count in (1000, 4, 20_000):
                words = random.random_raw(count, generator=g)
                await asyncio.sleep(0)
                found.append(await words.numpy())
        return found

    everyone = await asyncio.gather(*(work() for _ in range(8)))
    pieces = {piece[:4].tobytes(): piece for mine in everyone for piece in mine}
    assert len(pieces) == 24
    sequence = random.random_raw(8 * 21_004, generator=generator()).numpy_blocking()
    place = 0
    while place < sequence.size:
        piece = pieces.pop(sequence[place : place + 4].tobytes())
        np.testing.assert_array_equal(sequence[place : place + piece.size], piece)
        place += piece.size
    assert not pieces


PROGRAM = """
import hashlib, aiodev, numpy as np
from aiodev.kernels import random
g = aiodev.Generator("cpu").manual_seed(2026)
digest = hashlib.sha256()
for dtype in ("f4", "f8"):
    for draw in (random.random, random.standard_normal):
        digest.update(draw(1_000_001, dtype=dtype, generator=g).numpy_blocking().tobytes())
    digest.update(random.integers(0, 3 << 30, 300_001, generator=g).numpy_blocking().tobytes())
print(digest.hexdigest())
"""


def test_the_number_of_threads_changes_nothing() -> None:
    """One worker or many, and the executor without native code: the same bits."""
    digests = set()
    for settings_ in ({"AIODEV_CPU_THREADS": "1"}, {"AIODEV_CPU_THREADS": "4"}, {"AIODEV_EXECUTOR": "python"}):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **settings_}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def ulps(found: np.ndarray[Any, Any], true: np.ndarray[Any, Any]) -> float:
    """The greatest distance in units in the last place of ``true``."""
    return float(np.max(np.abs(found.astype(np.longdouble) - true) / np.spacing(np.abs(true).astype(found.dtype))))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_transformed_numbers_are_accurate(dtype: str) -> None:
    """To 3 units in the last place for exponential numbers, 4 for normal ones, against extended precision."""
    count = 20_000
    per = 2 if dtype == "f8" else 1
    words = words_of(5, 0, per * count).astype(np.longdouble)
    if per == 2:
        words = words[::2] + words[1::2] * np.longdouble(2**32)
    bits = 32 * per
    unit, half = np.longdouble(2.0) ** -bits, np.longdouble(0.5)
    # Near 1 from the other side, which loses nothing.
    rest = (np.longdouble(2.0) ** bits - words - half) * unit
    logs = np.where(rest < half, np.log1p(-rest), np.log((words + half) * unit))
    found = random.exponential(shape=count, dtype=dtype, generator=generator()).numpy_blocking()
    assert ulps(found, -logs) <= 3
    integers = [int(word) for word in words[1::2]]
    radius = np.sqrt(-2 * logs[::2])
    rest = np.array([(word << 2 & 2**bits - 1) >> 2 for word in integers])
    rest = np.where(rest >> (bits - 3), rest.astype(object) - 2 ** (bits - 2), rest)
    angle = np.array([2 * int(r) + 1 for r in rest], np.longdouble) * (
        np.longdouble("3.14159265358979323846") / 2**bits
    )
    swap = np.array([word >> (bits - 1) for word in integers], bool)
    sign = np.array([1 - 2 * (word >> (bits - 2) & 1) for word in integers])
    cosine, sine = radius * sign * np.cos(angle), radius * sign * np.sin(angle)
    expected = np.stack([np.where(swap, sine, cosine), np.where(swap, cosine, sine)], 1).ravel()
    found = random.standard_normal(count, dtype=dtype, generator=generator()).numpy_blocking()
    assert ulps(found, expected) <= 4


# Arguments


@pytest.mark.parametrize("name", [*DRAWS, *DISCRETE])
def test_out_is_filled_and_returned(name: str) -> None:
    """Whatever its layout; what lies between stays as it was."""
    draw = {**DRAWS, **DISCRETE}[name]
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


@pytest.mark.parametrize("name", [*DRAWS, *DISCRETE])
@pytest.mark.parametrize("shape", [(), 0, (2, 0, 3), (2, 3, 4), None])
def test_shapes(name: str, shape: Any) -> None:
    """Of any number of dimensions; an array of nothing takes no words, and None is an array of no dimensions."""
    g = generator()
    found = {**DRAWS, **DISCRETE}[name](shape, generator=g)
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
            "dtype: expected float16, float32 or float64",
        ),
        (lambda: random.random(3, out=np.zeros(3)), TypeError, "out: expected an aiodev.Array, got ndarray"),
        (lambda: random.random(3, out=aiodev.zeros(4, device="cpu")), ValueError, "out: expected the shape 3"),
        (lambda: random.random(out=aiodev.zeros(4, device="cpu"), dtype="f4"), TypeError, "out: expected float32"),
        (lambda: random.random(3, device="cpu", generator=5), TypeError, "generator: expected an aiodev.Generator"),
        (lambda: random.random_raw(out=aiodev.zeros(4, "u8", "cpu")), TypeError, "expected uint32"),
        (lambda: random.uniform(1, 1, 3, device="cpu"), ValueError, "low < high"),
        (lambda: random.uniform(0, float("inf"), 3, device="cpu"), ValueError, "finite bounds"),
        (lambda: random.uniform(-3e38, 3e38, 3, dtype="f4", device="cpu"), ValueError, "finite bounds"),
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
            recording.refill(stream)
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
