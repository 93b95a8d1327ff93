"""Tiles through streams: copy in, blur, gradient and hillshade, copy out, each tile's steps ordered by events.

One stream copies in, two compute, one copies out. There are as many slots (sets of device arrays) as streams that
compute, so that while one tile is computed the next one is copied in and the last one copied out::

    copy in    | tile 0 | tile 1 |        | tile 2 |        | tile 3 |
    compute 0           | tile 0           |        | tile 2          |
    compute 1                    | tile 1           |        | tile 3         |
    copy out                               | tile 0 | tile 1 |        | tile 2 |

The host never takes part in that order: it submits, and waits only so as not to run arbitrarily far ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from itertools import cycle

import numpy as np

import aiodev
from aiodev._demo.kernels import blur_columns, blur_rows, gradient, hillshade
from aiodev._demo.scene import Scene, Tile

__all__ = ["Pipeline", "Wait"]

#: How the host waits for a completion; what the demo compares.
Wait = Callable[[aiodev.Completion[None]], Awaitable[None]]

SLOTS = 2


class Slot:
    """The device arrays of one tile in flight, and the events that say when they may be written again."""

    def __init__(self, scene: Scene, compute: aiodev.Stream) -> None:
        size, halo = scene.size, scene.halo
        device = compute.device

        def room(rows: int, columns: int) -> aiodev.Array:
            return aiodev.empty((rows, columns), dtype=np.float32, device=device)

        self.compute = compute
        self.source = room(size + 2 * halo, size + 2 * halo)
        self.half = room(size + 2 * halo, size + 2)
        self.smooth = room(size + 2, size + 2)
        self.gx, self.gy = room(size, size), room(size, size)
        self.slope, self.shade = room(size, size), room(size, size)
        self.filled = aiodev.Event(device)  # source holds the tile
        self.emptied = aiodev.Event(device)  # source has been read
        self.computed = aiodev.Event(device)  # slope and shade hold the results
        self.fetched = aiodev.Event(device)  # slope and shade have been read


class Pipeline:
    """Streams and arrays for the tiles of one scene.

    Args:
        scene: what to compute; results are written into it.
        device: where.
    """

    def __init__(self, scene: Scene, device: aiodev.Device) -> None:
        self.scene = scene
        self.copy_in = aiodev.Stream(device)
        self.compute = [aiodev.Stream(device) for _ in range(SLOTS)]
        self.copy_out = aiodev.Stream(device)
        with aiodev.stream(self.copy_in):
            self.slots = [Slot(scene, stream) for stream in self.compute]
            self.weights = aiodev.asarray(scene.weights, device=device)
        for stream in (*self.compute, self.copy_out):
            stream.wait_stream(self.copy_in)  # memory belongs first to the stream that allocated it

    @property
    def streams(self) -> dict[int, str]:
        """What each stream is for, by its id."""
        names = {self.copy_in.stream_id: "copy in"}
        names |= {stream.stream_id: f"compute {n}" for n, stream in enumerate(self.compute)}
        return names | {self.copy_out.stream_id: "copy out"}

    async def run(self, wait: Wait, advance: Callable[[], object], limit: int | None = None) -> None:
        """Send the scene's tiles through, at most ``limit`` of them.

        Args:
            wait: waits for a completion.
            advance: called once for each tile that is done.
            limit: how many tiles; all when None.
        """
        flying: deque[aiodev.Completion[None]] = deque()
        for n, (tile, slot) in enumerate(zip(self.scene.tiles(), cycle(self.slots), strict=False)):
            if n == limit:
                break
            flying.append(self.submit(tile, slot))
            if len(flying) > SLOTS:
                await wait(flying.popleft())
                advance()
        while flying:
            await wait(flying.popleft())
            advance()

    def submit(self, tile: Tile, slot: Slot) -> aiodev.Completion[None]:
        """Queue every step of one tile; returns the completion of the last."""
        size, halo, scene = self.scene.size, self.scene.halo, self.scene
        compute = slot.compute

        self.copy_in.wait_event(slot.emptied)
        self.copy_in.copy(slot.source, tile.source)
        slot.filled.record(self.copy_in)

        compute.wait_event(slot.filled)
        blur_rows[(size + 2 * halo, size + 2), compute](slot.source, self.weights, slot.half)
        slot.emptied.record(compute)
        blur_columns[(size + 2, size + 2), compute](slot.half, self.weights, slot.smooth)
        compute.wait_event(slot.fetched)
        gradient[(size, size), compute](slot.smooth, *scene.scale, slot.gx, slot.gy, slot.slope)
        hillshade[(size, size), compute](slot.gx, slot.gy, *scene.light, slot.shade)
        slot.computed.record(compute)

        self.copy_out.wait_event(slot.computed)
        self.copy_out.copy(tile.slope, slot.slope)
        done = self.copy_out.copy(tile.shade, slot.shade)
        slot.fetched.record(self.copy_out)
        return done

    async def aclose(self) -> None:
        """Close the streams."""
        for stream in (self.copy_in, *self.compute, self.copy_out):
            await stream.aclose()
