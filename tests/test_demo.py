"""The demo: what it writes is what NumPy finds, and it says so by its exit status; it leaves a timeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import aiodev
from aiodev._demo.measure import check, threaded
from aiodev._demo.program import CAPTURED, NUMPY, SUBMITTED
from aiodev._demo.transformer import FIRST, LENGTH, DeviceText, DeviceWeights, NumPyText, make_weights


def test_quick_demo_runs_and_agrees_with_numpy(tmp_path: Path) -> None:
    """The whole program in a process of its own: status 0, the tables, the check and the timeline."""
    command = [sys.executable, "-m", "aiodev", "demo", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for row, count in (("nothing (idle loop)", 1), (NUMPY, 3), (SUBMITTED, 3), (CAPTURED, 3)):
        assert done.stdout.count(row) == count
    assert "in double precision: ok" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.svg"]
    assert (tmp_path / "timeline.svg").read_text().startswith("<svg")


async def test_all_ways_write_the_same_text() -> None:
    """Captured or not, several times over, a text has the tokens that NumPy finds, of which double precision approves."""
    weights = make_weights(1)
    async with aiodev.device("cpu") as device:
        there = DeviceWeights(weights, device)
        steps = [DeviceText(there).step, (await DeviceText(there).capture()).step, threaded(NumPyText(weights))]
        texts = []
        for step in (*steps, steps[1]):
            text = [FIRST]
            for place in range(LENGTH):
                text.append(await step(text[-1], place))
            texts.append(text)
    assert all(text == texts[0] for text in texts) and len(set(texts[0])) > 2
    assert check(weights, texts[0])


def test_a_wrong_token_is_noticed() -> None:
    """One token that has not the best score fails the check."""
    weights, text = make_weights(1), [FIRST]
    reference = NumPyText(weights.astype("float64"))
    for place in range(8):
        text.append(reference.step(text[-1], place))
    assert check(weights, text)
    text[-1] = int(np.argsort(NumPyText(weights).scores(text[-2], 0))[0])
    assert not check(weights, text)
