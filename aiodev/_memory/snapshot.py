"""Draws a memory snapshot: which blocks lie where."""

from __future__ import annotations

from typing import Any

from aiodev._core.arguments import refusal
from aiodev._core.backend.registry import DeviceLike
from aiodev._memory.report import memory_snapshot

__all__ = ["draw_snapshot"]

_COLORS = {"active_allocated": "#3b7dd8", "active_pending_free": "#e0a030", "inactive": "#d9dde3"}
_NAMES = {"active_allocated": "in use", "active_pending_free": "freed, work not done", "inactive": "cached"}
_KEYS = {"blocks", "device", "segment_pool_id", "segment_type", "total_size"}
_WIDTH, _HEIGHT, _GAP, _MARGIN = 900, 22, 8, 12


def draw_snapshot(snapshot: list[dict[str, Any]] | None = None, device: DeviceLike | None = None) -> str:
    """An SVG picture of a snapshot: a bar for each segment, its length that of its memory, with its blocks.

    The blocks of a segment are drawn side by side, without the addresses that have no memory. Pointing at a block shows its
    size and state, and where it was allocated if :func:`record_memory_history` was on.

    Args:
        snapshot: of :func:`memory_snapshot`; one of now by default.
        device: whose memory, for that; the current device by default.

    Raises:
        TypeError: it is no snapshot.

    Example:
        >>> import aiodev
        >>> x = aiodev.empty(1000, "uint8", "cpu")
        >>> aiodev.memory.draw_snapshot(device="cpu").startswith("<svg")
        True
    """
    from html import escape  # costly to import, and hardly ever needed

    if snapshot is None:
        snapshot = memory_snapshot(device)
    elif not isinstance(snapshot, list) or not all(isinstance(s, dict) and s.keys() >= _KEYS for s in snapshot):
        raise refusal("draw_snapshot", "snapshot", "what memory_snapshot gives", snapshot)
    segments = [segment for segment in snapshot if segment["total_size"]]
    scale = (_WIDTH - 2 * _MARGIN) / max((s["total_size"] for s in segments), default=1)
    lines: list[str] = []
    top = _MARGIN
    for number, state in enumerate(_COLORS):
        left = _MARGIN + 190 * number
        lines.append(f'<rect x="{left}" y="{top}" width="12" height="12" fill="{_COLORS[state]}"/>')
        lines.append(f'<text x="{left + 18}" y="{top + 11}">{_NAMES[state]}</text>')
    top += 26
    for segment in segments:
        pool = f", pool {segment['segment_pool_id']}" if segment["segment_pool_id"] else ""
        title = f"{segment['device']}, {segment['segment_type']}{pool}: {segment['total_size'] / 2**20:.1f} MiB"
        lines.append(f'<text x="{_MARGIN}" y="{top + 11}">{escape(title)}</text>')
        top += 16
        x = float(_MARGIN)
        for block in segment["blocks"]:
            width = block["size"] * scale
            text = f"{block['size']:,} bytes at {block['address']:#x}, {_NAMES[block['state']]}"
            text += f", {block['site']}" if block["site"] else ""
            lines.append(
                f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{_HEIGHT}" fill="{_COLORS[block["state"]]}" '
                f'stroke="white" stroke-width="0.5"><title>{escape(text)}</title></rect>'
            )
            x += width
        top += _HEIGHT + _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{top}" fill="white"/>', *lines, "</svg>", ""])
