"""The demo: it computes what NumPy computes, says so by its exit status, and leaves its pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aiodev._demo import reference
from aiodev._demo.scene import Scene, gaussian

pytest.importorskip("matplotlib")


def small_scene() -> Scene:
    """A field that is not a whole number of tiles."""
    rng = np.random.default_rng(1)
    return Scene("small", rng.random((50, 70), np.float32), (0.5, 0.25), gaussian(3), 32)


def test_quick_demo_runs_and_agrees_with_numpy(tmp_path: Path) -> None:
    """The whole program in a process of its own: status 0, the table, the check and every picture."""
    command = [sys.executable, "-m", "aiodev", "demo", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("nothing (idle loop)", "(a) blocking on the loop", "(b) asyncio.to_thread", "(c) aiodev"):
        assert row in done.stdout
    assert "WRONG" not in done.stdout
    assert "100%" in done.stderr  # the progress bar
    assert {path.name for path in tmp_path.iterdir()} == {
        "elevation-relief.png",
        "elevation-slope.png",
        "photograph-relief.png",
        "photograph-slope.png",
        "timeline.png",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


def test_tiles_cover_the_scene_once() -> None:
    """Every cell of the results belongs to exactly one tile, and tiles have one shape with their halo."""
    scene = small_scene()
    scene.shade[:] = 0
    tiles = list(scene.tiles())
    for tile in tiles:
        tile.shade[:] += 1
    assert len(tiles) == len(scene) == 6
    assert {tile.source.shape for tile in tiles} == {(32 + 2 * 4, 32 + 2 * 4)}
    assert (scene.shade == 1).all()


def test_a_wrong_cell_is_noticed() -> None:
    """One wrong cell, or one that was never computed, fails the check."""
    scene = small_scene()
    expected = reference.Expected(scene)
    scene.slope[:], scene.shade[:] = expected.slope, expected.shade
    assert [check.passed for check in expected.check()] == [True, True]
    scene.shade[5, 5] += 0.01
    assert [check.passed for check in expected.check()] == [True, False]
    scene.shade[5, 5] = np.nan
    assert [check.passed for check in expected.check()] == [True, False]
