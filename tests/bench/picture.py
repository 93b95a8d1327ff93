"""Figures as pictures: one for the README, one for each group's table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from harness import Figure, format_value

__all__ = ["draw_group", "draw_readme"]

OURS, THEIRS = "tab:blue", "0.6"
#: Of each peer, the same in every picture.
COLOURS = ("tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan")


def draw_readme(waiting: Figure, busy: Figure, path: Path) -> None:
    """What a wait costs; and what is left of a kernel's rate when the loop is busy, as part of a bar that is all of it."""
    plt = _pyplot()
    picture, charts = plt.subplots(1, 2, figsize=(11, 2.5), layout="constrained", gridspec_kw={"wspace": 0.06})
    left, right = charts

    names = sorted(waiting.values, key=lambda name: waiting.values[name], reverse=True)
    values = [waiting.values[name] for name in names]
    bars = left.barh(names, values, 0.62, color=[OURS if name == "aiodev" else THEIRS for name in names])
    left.bar_label(bars, [f"{format_value(value)} {waiting.unit}" for value in values], padding=4)
    left.set_title("Launch a kernel and await it (less is better)", loc="left", fontsize=11)
    left.set(xticks=[], xlim=(0, 1.2 * max(values)))

    names = ["Python worker thread", "aiodev"]
    whole = [busy.values[f"{name}, loop idle"] for name in names]
    kept = [busy.values[name] for name in names]
    right.barh(names, whole, 0.5, color="0.92")
    right.barh(names, kept, 0.5, color=[OURS if name == "aiodev" else THEIRS for name in names])
    for row, (part, all_of_it) in enumerate(zip(kept, whole, strict=True)):
        text = f"{part:,.0f} {busy.unit}\n{part / all_of_it:.0%} of an idle loop's"
        right.text(1.02 * max(whole), row, text, va="center")
    right.set_title("Kernels run while the loop is busy in Python", loc="left", fontsize=11)
    right.set(xticks=[], xlim=(0, 1.5 * max(whole)), ylim=(-0.6, 1.6))

    for chart in charts:
        chart.spines[["top", "right", "bottom"]].set_visible(False)
        chart.tick_params(left=False)
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)


def draw_group(figures: list[Figure], path: Path) -> None:
    """How many times as long as aiodev each peer takes, a row for each figure, on a logarithmic axis.

    Peers of one figure alone are left to the table.
    """
    plt = _pyplot()
    counts = Counter(name for figure in figures for name in figure.values if name != "aiodev")
    peers = [name for name, count in counts.items() if count > 1]
    figures = [figure for figure in figures if any(peer in figure.values for peer in peers)]
    height = 0.9 + (0.36 if len(figures) < 20 else 0.24) * len(figures)
    picture, chart = plt.subplots(figsize=(11, height), layout="constrained")
    chart.axvline(1, color=OURS, linewidth=2)
    for number, peer in enumerate(peers):
        points = [(_times(figure, peer), row) for row, figure in enumerate(figures) if peer in figure.values]
        chart.scatter(*zip(*points, strict=True), s=42, color=COLOURS[number % len(COLOURS)], label=peer, zorder=3)
    chart.set_yticks(range(len(figures)), [figure.name for figure in figures])
    chart.set(xscale="log", ylim=(len(figures) - 0.4, -0.6), xlabel="a peer's time, as a multiple of aiodev's")
    lowest, highest = chart.get_xlim()
    digits = (1, 2, 5) if highest < 30 * lowest else (1, 3) if highest < 1000 * lowest else (1,)
    ticks = [digit * 10.0**power for power in range(-4, 6) for digit in digits]
    chart.set_xticks([tick for tick in ticks if lowest <= tick <= highest], minor=False)
    chart.set_xticks([], minor=True)
    chart.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    chart.grid(axis="y", color="0.92")
    chart.spines[["top", "right", "left"]].set_visible(False)
    chart.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)


def _times(figure: Figure, peer: str) -> float:
    """The peer's time in units of ours; of rates the inverse."""
    ours, theirs = figure.values["aiodev"], figure.values[peer]
    return ours / theirs if figure.unit.startswith("G") or figure.unit.endswith("/s") else theirs / ours


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "aiodev"  # the same figures give the same file
    import matplotlib.pyplot as plt

    return plt
