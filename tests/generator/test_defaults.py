"""The default generators: made once, seeded before anything starts, forked for a block."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import anyio
import pytest

import aiodev

CPU = aiodev.Device("cpu")


@pytest.fixture(autouse=True)
def seeded():
    """Each test in a block of its own, so that none leaves the process's state changed."""
    with aiodev.fork_rng():
        aiodev.manual_seed(1)
        yield


def offset() -> int:
    """Of the CPU's default generator."""
    return aiodev.default_generator("cpu").get_offset()


def draw(count: int = 4) -> tuple[int, int]:
    """Seed and offset that a draw gets."""
    return aiodev.default_generator("cpu").reserve(count)[:2]


def test_there_is_one_for_each_device() -> None:
    """The same object for whoever asks, in blocks too."""
    g = aiodev.default_generator("cpu")
    assert g is aiodev.default_generator(CPU) is aiodev.default_generator("cpu:0")
    with aiodev.fork_rng():
        assert aiodev.default_generator("cpu") is g
    found: list[aiodev.Generator] = []
    thread = threading.Thread(target=lambda: found.append(aiodev.default_generator("cpu")))
    thread.start()
    thread.join()
    assert found == [g]
    with aiodev.device("cpu"):
        assert aiodev.default_generator() is g


def test_manual_seed_and_states_of_devices() -> None:
    """They reach the default generators."""
    aiodev.manual_seed(9)
    state = aiodev.get_rng_state("cpu")
    first = draw()
    assert first == (9, 0)
    aiodev.set_rng_state(state, "cpu")
    assert draw() == first
    explicit = aiodev.Generator("cpu")
    explicit.set_state(state)
    assert explicit.reserve(4)[:2] == first


def test_seed_all_gives_every_device_a_fresh_seed() -> None:
    """And says which."""
    seeds = {aiodev.seed_all() for _ in range(4)}
    assert len(seeds) == 4
    assert draw()[0] in seeds


def run_python(code: str) -> str:
    """What code prints in a fresh interpreter."""
    command = [sys.executable, "-c", f"import aiodev\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_seeds_before_the_start_wait_and_the_last_one_wins() -> None:
    """Nothing starts for them; what is drawn after the start is of the last seed."""
    code = (
        "from aiodev.kernels import random\n"
        "aiodev.manual_seed(1); aiodev.seed_all(); aiodev.manual_seed(2); aiodev.manual_seed(0)\n"
        "assert not aiodev.is_initialized('cpu')\n"
        "print(hex(random.random_raw(1, device='cpu').numpy_blocking()[0]))\n"
    )
    assert run_python(code) == "0x6627e8d5"


def test_the_first_seed_is_the_operating_systems() -> None:
    """Another one in each process; no backend starts for it."""
    code = "print(aiodev.default_generator('cpu').initial_seed(), aiodev.is_initialized('cpu'))"
    first, second = run_python(code), run_python(code)
    assert first != second
    assert first.endswith("False")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_goes_on_with_the_same_words() -> None:
    """Although another thread of its parent was just taking some; what it takes is not taken from its parent."""
    code = (
        "import os, threading, warnings\n"
        "from aiodev._generator.state import guard\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"  # of threads; that is what is tested
        "aiodev.manual_seed(1)\n"
        "g = aiodev.default_generator('cpu'); g.reserve(8)\n"
        "held, over = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with guard():\n"
        "        held.set(); over.wait(30)\n"
        "thread = threading.Thread(target=hold); thread.start(); held.wait(30)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if g.reserve(4)[:2] == (1, 8) else 1)\n"
        "over.set(); thread.join()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(*g.reserve(4)[:2])\n"
    )
    assert run_python(code) == "1 8"


# Blocks


def test_draws_in_a_block_leave_what_is_outside() -> None:
    """They begin where that stands, and so does what comes after."""
    draw(8)
    with aiodev.fork_rng():
        assert draw() == (1, 8)
        aiodev.manual_seed(3)
        assert draw() == (3, 0)
        with aiodev.fork_rng():
            assert draw() == (3, 4)
            aiodev.default_generator("cpu").set_offset(400)
        assert draw() == (3, 4)
    assert draw() == (1, 8)


def test_a_block_that_fails_is_left() -> None:
    """What is outside is back."""
    with pytest.raises(KeyError), aiodev.fork_rng():
        draw()
        raise KeyError
    assert offset() == 0


def test_a_block_ends_where_it_began() -> None:
    """Not inside another one's."""
    outer, inner = aiodev.fork_rng(), aiodev.fork_rng()
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__(None, None, None)


def test_generators_given_explicitly_move_on() -> None:
    """Only defaults are forked."""
    g = aiodev.Generator("cpu")
    with aiodev.fork_rng():
        g.reserve(4)
    assert g.get_offset() == 4


@pytest.mark.anyio
async def test_a_block_is_its_tasks_own() -> None:
    """Another task draws from what is outside meanwhile; one that is made inside shares the block."""
    inside, drawn = anyio.Event(), anyio.Event()
    seen: dict[str, tuple[int, int]] = {}

    async def child() -> None:
        seen["child"] = draw()

    async def forked() -> None:
        async with aiodev.fork_rng():
            aiodev.manual_seed(7)
            inside.set()
            await drawn.wait()
            seen["forked"] = draw()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child)
        seen["after"] = draw()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forked)
        await inside.wait()
        seen["outside"] = draw()
        drawn.set()
    assert seen == {"outside": (1, 0), "forked": (7, 0), "child": (7, 4), "after": (1, 4)}


@pytest.mark.anyio
async def test_tasks_that_draw_at_once_share_a_sequence() -> None:
    """Each gets words of its own."""
    offsets: list[int] = []

    async def work() -> None:
        for _ in range(50):
            offsets.append(draw()[1])
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(work)
    assert sorted(offsets) == list(range(0, 8 * 50 * 4, 4))
