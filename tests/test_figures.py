"""What the benchmarks make of their measurements; the measurements themselves run in ``tests/bench``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parent / "bench"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    import harness

    yield harness
    sys.modules.pop("harness")


async def test_a_ratio_is_the_median_of_the_rounds(harness: Any) -> None:
    """A machine that changes halfway changes both sides of a round: neither median of a case says what the ratio is."""
    ours, peers = iter([9.0, 1.0, 4.0, 2.0]), iter([9.0, 2.0, 2.0, 4.0])  # the first round warms up
    values = await harness.Run(smoke=False, repeats=3).medians({"aiodev": lambda: next(ours), "peer": lambda: next(peers)})
    bar, above = harness.Bar("peer", at_most=0.5), harness.Bar("peer", within=0.0)
    figure = harness.Figure("either", "µs", values, [bar, above])
    assert values == {"aiodev": 2.0, "peer": 2.0}
    assert figure.measured(bar) == 0.5 and figure.measured(above) == -1.0
    assert bar.met(figure.measured(bar)) and not harness.Bar("peer", at_least=0.6).met(figure.measured(bar))


def test_a_value_without_rounds_is_compared_as_it_is(harness: Any) -> None:
    """Such as a limit, or the longest of several."""
    values = harness.Medians(aiodev=3.0)
    values.rounds, values["limit"] = {"aiodev": [2.0, 3.0, 4.0]}, 2.0
    bars = [harness.Bar("limit", at_most=1.0), harness.Bar("limit", within=2.0)]
    figure = harness.Figure("either", "bytes", values, bars)
    assert [figure.measured(bar) for bar in bars] == [1.5, 1.0]
    assert [bar.met(figure.measured(bar)) for bar in bars] == [False, True]


def test_of_several_passes_the_median_counts(harness: Any) -> None:
    """Each with its own ratio: one quarter of an hour with loud neighbours moves neither values nor bars."""
    bar = harness.Bar("peer", at_least=1.0)
    passes = []
    for ours, peer in ((12.0, 10.0), (2.0, 4.0), (22.0, 20.0)):
        values = harness.Medians(aiodev=ours, peer=peer)
        values.rounds = {"aiodev": [ours], "peer": [peer]}
        passes.append(harness.Figure("sum", "GB/s", values, [bar]))
    figure = harness.Figure.over(passes)
    assert figure.values == {"aiodev": 12.0, "peer": 10.0}
    assert figure.measured(bar) == 1.1 and bar.met(figure.measured(bar))
    assert figure.formatted(bar) == "1.1 [0.5 to 1.2]"
    assert passes[0].formatted(bar) == "1.2"


async def test_what_cannot_be_measured_here_is_left_out(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """With its reason; the others are measured, in one pass or several."""

    async def one(run: Any) -> Any:
        return harness.Figure("one", "µs", {"aiodev": 1.0})

    async def none(run: Any) -> Any:
        raise harness.LeftOut("no control group can be made")

    for passes in (1, 2):
        found = await harness.measure({"none": none, "one": one}, harness.Run(True, 1, passes))
        assert list(found) == ["one"] and found["one"].values == {"aiodev": 1.0}
    assert capsys.readouterr().out.count("none: left out: no control group can be made\n") == 3


def test_a_table_is_made_of_the_document_alone(harness: Any) -> None:
    """So that it can be made where the figures were not measured; missed bars are marked, several passes have their spread."""
    bars = [harness.Bar("peer", at_most=2.0), harness.Bar("peer", at_least=3.0)]
    passes = [harness.Figure("sum", "µs", {"aiodev": ours, "peer": 1.0}, bars, "of rows") for ours in (1.0, 1.5, 2.5)]
    found = json.loads(json.dumps(harness.document([harness.Figure.over(passes)], harness.Run(False, 5, 3))))
    found["machine"] |= {"processor": "a processor", "cores": 7, "load": None}
    found |= {"when": "2026-11-26T23:59:12Z", "versions": {"python": "3.12.3"}}
    table = harness.rst_of(found, "a card, driver 1")
    assert "\na card, driver 1; a processor, 7 cores, 2026-11-26; python 3.12.3; medians of 3 passes of 5 rounds.\n" in table
    assert table.endswith(
        "   * - sum (of rows)\n     - 1.5 µs\n     - peer: 1 µs\n"
        "     - 1.5 [1 to 2.5] (≤ 2 × peer; met); 1.5 [1 to 2.5] (≥ 3 × peer; **missed**)\n"
    )


def test_a_gpus_table_has_its_parts(tmp_path: Path, harness: Any) -> None:
    """In the order in which they are measured, those that are there."""
    parts = {}
    for name in ("waiting", "launching", "probe"):
        figure = harness.Figure(f"of {name}", "µs", {"aiodev": 1.0})
        parts[name] = harness.document([figure], harness.Run(False, 5)) if name != "probe" else {"driver": 13000}
    (tmp_path / "figures.json").write_text(json.dumps(parts))
    command = [sys.executable, str(BENCH / "gpu_table.py"), str(tmp_path / "figures.json"), "a card"]
    beside = os.environ | {"PYTHONPATH": str(BENCH)}  # a script's folder is no place for modules where paths are to be safe
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=beside)
    assert [line for line in done.stdout.splitlines() if line.startswith("   * - of")] == [
        "   * - of launching", "   * - of waiting"
    ]  # fmt: skip
    assert "\na card; " in done.stdout
