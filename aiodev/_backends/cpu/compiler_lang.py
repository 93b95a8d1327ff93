"""What :mod:`aiodev.lang` means on the CPU."""

from __future__ import annotations


def install() -> None:
    """Tell numba of it; again is harmless."""
