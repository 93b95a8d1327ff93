"""NVTX: submissions to CUDA devices as ranges in the timelines of NVIDIA's tools."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from aiodev._core.streams import trace

__all__ = ["NvtxRanges"]


class NvtxRanges:
    """Marks submissions, by the package ``nvtx``.

    Raises:
        ModuleNotFoundError: it is not installed.
    """

    def __init__(self) -> None:
        try:
            self._nvtx = importlib.import_module("nvtx")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("nvtx=True needs the package nvtx: pip install nvtx", name="nvtx") from error

    def attach(self, stream: trace.Traced) -> None:
        """Mark what is submitted to a stream from now on."""
        stream._launch = self._ranged(stream._launch, lambda args: trace.kernel_name(args[0]))
        stream._copy = self._ranged(stream._copy, lambda args: "copy")
        stream._fill = self._ranged(stream._fill, lambda args: "fill")

    def _ranged(self, submit: Callable[..., int], name: Callable[[tuple[Any, ...]], str]) -> Callable[..., int]:
        push, pop = self._nvtx.push_range, self._nvtx.pop_range

        def submit_ranged(*args: Any) -> int:
            push(name(args), domain="aiodev")
            try:
                return submit(*args)
            finally:
                pop(domain="aiodev")

        return submit_ranged
