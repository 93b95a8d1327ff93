"""Draws: the words that they take, and the same bits however they are computed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from draws import CONTINUOUS, DRAWS, generator
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev._generator.philox import philox
from aiodev.kernels import random
from aiodev.kernels.random import sampling
from aiodev.kernels.random.philox import block

LOW = 0xFFFFFFFF


def words_of(seed: int, offset: int, count: int) -> np.ndarray[Any, Any]:
    """The words from an offset on, by the host's Philox."""
    blocks = range(offset // 4, offset // 4 + -(-count // 4))
    key = seed & LOW, seed >> 32
    return np.array([w for c in blocks for w in philox((c & LOW, c >> 32, 0, 0), key)][:count], np.uint32)


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
@settings(deadline=None, max_examples=examples(30))
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
@settings(deadline=None, max_examples=examples(60))
def test_integers_of_any_range(low: int, high: int, count: int, seed: int) -> None:
    """Unbiased: rejected words are replaced by words of further blocks with the same counter."""
    low, high = sorted((low, high))
    found = random.integers(low, high, count, endpoint=True, generator=generator(seed)).numpy_blocking()
    assert found.tolist() == bounded(seed, 0, count, low, high - low + 1)


@given(st.integers(-10, 2**31), st.integers(1, 2**32))
@settings(deadline=None, max_examples=examples(30))
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
@pytest.mark.parametrize("name", CONTINUOUS)
def test_an_element_does_not_depend_on_how_many_there_are(name: str, dtype: str) -> None:
    """Pieces of any size, whole runs of blocks or not, give the same beginning."""
    whole = CONTINUOUS[name](100_003, dtype=dtype, generator=generator()).numpy_blocking()
    for count in (1, 2, 3, 5, 63, 64, 129, 1000):
        np.testing.assert_array_equal(
            CONTINUOUS[name](count, dtype=dtype, generator=generator()).numpy_blocking(), whole[:count]
        )


@pytest.mark.parametrize("name", DRAWS)
def test_an_index_may_be_any_number_of_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, as on devices with a thread for each index, gives the same as a run of them."""
    draw = DRAWS[name]
    runs = draw(1003, generator=generator()).numpy_blocking()
    monkeypatch.setattr(sampling, "_CPU_BLOCKS", 1)
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
