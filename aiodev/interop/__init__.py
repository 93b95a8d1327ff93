"""What connects aiodev with other libraries: a module for each, which needs that library."""

from __future__ import annotations

__all__: list[str] = []
