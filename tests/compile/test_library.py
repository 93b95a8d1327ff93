"""Code that launches kernels on its callers' behalf."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import KernelError
from aiodev._core import callsites

pytestmark = pytest.mark.anyio


@aiodev.kernel
def refuse(i: int, x: Any) -> None:
    if x[i] > 2:
        raise ValueError("bad row", i)


async def test_an_error_names_the_place_that_called_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first launch, which waits for the compiler, and of later ones."""
    monkeypatch.setattr(callsites, "_libraries", callsites._libraries | {"shelf"})
    namespace: dict[str, Any] = {"__name__": "shelf", "refuse": refuse}
    exec(compile("def check(x):\n    return refuse[x.size](x)\n", "shelf.py", "exec"), namespace)
    for _ in range(3):
        line, done = sys._getframe().f_lineno, namespace["check"](aiodev.asarray(np.arange(8.0)))
        with pytest.raises(KernelError) as caught:
            await done
        assert caught.value.submitted_at == f"{__file__}:{line}"
