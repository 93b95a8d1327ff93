"""Seeds, offsets, states, children: what a generator is, before anything is drawn."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import aiodev
from aiodev._generator.philox import child_seed, philox
from aiodev.kernels import random

SEEDS = st.integers(0, 2**64 - 1)

#: From ``kat_vectors``, which Random123's authors publish with it: counter, key, words.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def generator(seed: int = 5) -> aiodev.Generator:
    """One for the CPU."""
    return aiodev.Generator("cpu").manual_seed(seed)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_the_hosts_philox_gives_the_known_answers(counter, key, words) -> None:
    """Philox4x32-10 as Random123 has it."""
    assert philox(counter, key) == words


def test_a_new_generator_has_the_fixed_seed() -> None:
    """Two that were given no seed draw the same; nothing was drawn from them."""
    first, second = aiodev.Generator("cpu"), aiodev.Generator("cpu:0")
    assert first.get_state() == second.get_state()
    assert first.get_offset() == 0
    assert first.device == aiodev.Device("cpu")


@given(SEEDS)
def test_manual_seed_sets_the_seed_and_goes_to_the_beginning(seed: int) -> None:
    """Whatever was drawn before."""
    g = generator()
    g.reserve(10)
    assert g.manual_seed(seed) is g
    assert (g.initial_seed(), g.get_offset()) == (seed, 0)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (2**64, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_what_is_no_seed_is_refused(seed, error) -> None:
    """And nothing changes."""
    g = generator()
    with pytest.raises(error, match="seed"):
        g.manual_seed(seed)
    with pytest.raises(error, match="seed"):
        aiodev.manual_seed(seed)
    assert g.initial_seed() == 5


def test_seed_takes_one_from_the_operating_system() -> None:
    """A new one each time, which can be used again."""
    g = generator()
    seeds = {g.seed() for _ in range(8)}
    assert len(seeds) == 8
    assert g.initial_seed() in seeds


# Offsets


@given(st.lists(st.integers(0, 1000), max_size=30))
def test_each_draw_takes_whole_blocks_behind_the_last(counts: list[int]) -> None:
    """A multiple of 4, no fewer than asked for, fewer than 4 more."""
    g = generator()
    expected = 0
    for count in counts:
        seed, offset, words = g.reserve(count)
        assert (seed, offset, words) == (5, expected, None)
        expected += -(-count // 4) * 4
    assert g.get_offset() == expected


@pytest.mark.parametrize(("count", "error"), [(-1, ValueError), (2.0, TypeError), (None, TypeError)])
def test_what_is_no_number_of_words_is_refused(count, error) -> None:
    """And nothing is taken."""
    g = generator()
    with pytest.raises(error):
        g.reserve(count)
    assert g.get_offset() == 0


def test_draws_of_many_threads_do_not_overlap() -> None:
    """Every block goes to one of them."""
    g = generator()
    taken: list[list[int]] = [[] for _ in range(8)]
    begin = threading.Barrier(8)

    def draw(mine: list[int]) -> None:
        begin.wait(30)
        for _ in range(2000):
            mine.append(g.reserve(5).offset)

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(taken, [])) == list(range(0, 8 * 2000 * 8, 8))
    assert all(mine == sorted(mine) for mine in taken)


def test_set_offset_continues_there() -> None:
    """In words from the beginning."""
    g = generator()
    g.set_offset(40)
    assert g.reserve(1).offset == 40


@pytest.mark.parametrize(
    ("offset", "error"), [(2, ValueError), (-4, ValueError), (2**64, ValueError), (4.0, TypeError), (None, TypeError)]
)
def test_what_is_no_offset_is_refused(offset, error) -> None:
    """A multiple of 4 is; and nothing changes."""
    g = generator()
    g.reserve(4)
    with pytest.raises(error, match="offset"):
        g.set_offset(offset)
    assert g.get_offset() == 4


def test_a_seed_has_an_end() -> None:
    """After 2**64 - 4 words, which no draw may cross; nothing is taken then, and no fewer are left than is said."""
    g = generator()
    g.set_offset(2**64 - 16)
    with pytest.raises(ValueError, match="13 words asked for, 12 are left under seed 5"):
        g.reserve(13)
    assert g.reserve(12).offset == 2**64 - 16
    other = generator()
    other.set_state(g.get_state())
    for used_up in (g, other):
        assert used_up.get_offset() == 2**64 - 4
        assert used_up.reserve(0).offset == 2**64 - 4
        for take in (used_up.reserve, used_up.spawn, lambda n, g=used_up: random.random_raw(n, generator=g)):
            with pytest.raises(ValueError, match="asked for, 0 are left"):
                take(1)


# States


@given(SEEDS, st.integers(0, 2**62 - 1))
def test_a_state_goes_through_pickle_and_files(seed: int, blocks: int) -> None:
    """As bytes, and as the generator itself."""
    g = generator(seed)
    g.set_offset(4 * blocks)
    state = pickle.loads(pickle.dumps(g.get_state()))
    assert isinstance(state, bytes) and len(state) == 16
    other = generator()
    other.set_state(state)
    for same in (other, pickle.loads(pickle.dumps(g)), copy.copy(g), copy.deepcopy(g), g.clone_state()):
        assert (same.initial_seed(), same.get_offset(), same.device) == (seed, 4 * blocks, g.device)


def test_a_state_in_a_file(tmp_path: Path) -> None:
    """Written as it is, read as it was."""
    g = generator()
    g.reserve(100)
    path = tmp_path / "state"
    path.write_bytes(g.get_state())
    other = generator(6)
    other.set_state(path.read_bytes())
    assert other.reserve(1) == g.reserve(1)


def test_a_seed_alone_is_a_state() -> None:
    """8 bytes, as older ones have: from the beginning."""
    g = generator()
    g.reserve(4)
    g.set_state((77).to_bytes(8, "little"))
    assert (g.initial_seed(), g.get_offset()) == (77, 0)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (b"", ValueError, "got 0 bytes"),
        (b"\0" * 15, ValueError, "got 15 bytes"),
        (b"\0" * 17, ValueError, "got 17 bytes"),
        (b"\1" * 16, ValueError, "not a multiple of 4"),
        ("0" * 16, TypeError, "got str"),
        (5, TypeError, "got int"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_a_malformed_state_is_refused(state, error, message) -> None:
    """With what was expected and found; nothing changes."""
    g = generator()
    before = g.get_state()
    with pytest.raises(error, match=message):
        g.set_state(state)
    assert g.get_state() == before


def test_a_clone_goes_its_own_way() -> None:
    """Draws from the one leave the other."""
    g = generator()
    clone = g.clone_state()
    clone.reserve(100)
    assert g.get_offset() == 0
    assert g.reserve(4) == (5, 0, None)


# Children


def test_children_depend_on_the_state_alone() -> None:
    """The same, in one call or several; more of them later are others."""
    g, same = generator(), generator()
    children = g.spawn(3)
    again = [*same.spawn(1), *same.spawn(2)]
    seeds = [child.initial_seed() for child in children]
    assert seeds == [child.initial_seed() for child in again]
    assert g.get_state() == same.get_state()
    assert {child.initial_seed() for child in g.spawn(3)}.isdisjoint(seeds)
    assert [child.device for child in children] == [g.device] * 3
    assert [child.get_offset() for child in children] == [0] * 3


@given(SEEDS, st.sets(SEEDS, min_size=2, max_size=20))
def test_siblings_never_have_one_seed(seed: int, indices: set[int]) -> None:
    """The children's seeds are a bijection of their numbers."""
    assert len({child_seed(seed, index) for index in indices}) == len(indices)


def test_the_bits_of_childrens_seeds_are_even() -> None:
    """Neighbours differ in half of their bits, within five standard deviations."""
    seeds = [child_seed(1, index) for index in range(500)] + [child_seed(seed, 0) for seed in range(500)]
    for bit in range(64):
        ones = sum(seed >> bit & 1 for seed in seeds)
        assert abs(ones - 500) < 5 * 1000**0.5 / 2
    flips = [(one ^ other).bit_count() for one, other in zip(seeds, seeds[1:], strict=False)]
    assert abs(sum(flips) / len(flips) - 32) < 5 * 4 / len(flips) ** 0.5


@pytest.mark.parametrize(("n", "error"), [(-1, ValueError), (1.5, TypeError)])
def test_what_is_no_number_of_children_is_refused(n, error) -> None:
    """Negative, or no integer."""
    with pytest.raises(error):
        generator().spawn(n)
    assert generator().spawn(0) == []


def test_a_generator_says_what_it_is() -> None:
    """Device, seed and offset."""
    assert repr(generator()) == "<aiodev.Generator on cpu:0, seed 5, offset 0>"


def test_a_device_that_is_not_there_is_refused() -> None:
    """When the generator is made."""
    with pytest.raises(aiodev.InvalidDeviceError):
        aiodev.Generator("cpu:99")
