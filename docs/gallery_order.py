"""The order in which the gallery shows the examples."""

from __future__ import annotations

ORDER = [
    "quickstart",
    "waiting",
    "overlap",
    "gate",
    "deadlines",
    "backpressure",
    "batching",
    "spectrogram",
    "monte_carlo",
    "dask_heat",
]


class ReadingOrder:
    """The first ones to read first; those that ORDER does not name come last, by name."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __call__(self, filename: str) -> tuple[int, str]:
        stem = filename.removesuffix(".py")
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)

    def __repr__(self) -> str:
        return "<ReadingOrder>"
