"""Halo exchange: stencils over a domain whose blocks are on several workers.

**Problem.** A step of a stencil needs the rows next to a block, which another worker has. To move whole blocks costs too
much, and so does a message for each step of a small block.

**How.** The domain is cut along its first axis. Before a round, each block gives its outermost rows to its neighbours, as
arrays of their own; a round makes several steps on the block and these halos, of which every step uses up ``depth`` rows. So
the rows near the border are computed twice, in return for fewer messages. Where the domain ends, rows stay as they are.

Every element comes from the same values by the same kernel, wherever its block ends: the result has the same bits for any
number of blocks and workers.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client, Future

from aiodev import Array, kernels
from aiodev._core.arguments import instance, integer
from aiodev.dask.graphs import Graph

__all__ = ["stencil"]


def stencil(
    client: Client,
    step: Callable[[Array], Any],
    blocks: Sequence[Future],
    *,
    steps: int,
    depth: int = 1,
    exchange: int = 1,
    periodic: bool = False,
) -> list[Future]:
    """Submit the steps of a stencil over blocks of a domain; gives the futures of the blocks afterwards.

    Args:
        client: of the cluster.
        step: takes rows, and gives the next values of all but the first and the last ``depth`` of them; a plain or a
            coroutine function. It must not write to what it is given.
        blocks: parts of the domain, in the order of its first axis, each of at least ``depth * exchange`` rows.
        steps: how many.
        depth: how many rows on either side a row's next value depends on.
        exchange: steps between two exchanges. Larger: fewer tasks and messages, and more rows that are computed twice.
        periodic: the domain's last row is next to its first. Otherwise its first and last ``depth`` rows keep their values.

    Raises:
        ValueError: there are no blocks, or a number is out of bounds.
        TypeError: an argument is of another type.

    Example:
        >>> def average(u):  # of three neighbours
        ...     return (u[:-2] + u[1:-1] + u[2:]) / 3
        >>> async def blurred(client, blocks):
        ...     return await client.gather(aiodev.dask.stencil(client, average, blocks, steps=10))
    """
    instance("stencil", "client", client, Client, "a client of dask.distributed")
    steps, depth, exchange = (
        integer("stencil", name, value, least=least)
        for name, value, least in (("steps", steps, 0), ("depth", depth, 1), ("exchange", exchange, 1))
    )
    instance("stencil", "periodic", periodic, bool, "True or False")
    given = list(blocks)
    if not given:
        raise ValueError("stencil: blocks: expected one or more, got none")
    if not steps:
        return given
    graph = Graph("stencil", (step, steps, depth, exchange, periodic), given)
    current: list[Any] = graph.given()
    for done in range(0, steps, exchange):
        now = min(exchange, steps - done)
        above: list[Any] = [graph.add(_last, block, now * depth) for block in current]
        below: list[Any] = [graph.add(_first, block, now * depth) for block in current]
        above, below = [above[-1], *above[:-1]], [*below[1:], below[0]]
        if not periodic:
            above[0] = below[-1] = None
        current = [
            graph.add(_advance, step, block, over, under, now, depth)
            for block, over, under in zip(current, above, below, strict=True)
        ]
    return graph.submit(client, current)


def _first(block: Array, rows: int) -> Array:
    return copy.copy(_enough(block, rows)[:rows])


def _last(block: Array, rows: int) -> Array:
    return copy.copy(_enough(block, rows)[-rows:])


def _enough(block: Array, rows: int) -> Array:
    if block.shape[0] < rows:
        raise ValueError(f"stencil: a block of {block.shape[0]} rows gives its neighbours {rows}; have fewer blocks")
    return block


async def _advance(step: Any, block: Array, above: Array | None, below: Array | None, steps: int, depth: int) -> Array:
    padded = [part for part in (above, block, below) if part is not None]
    rows = kernels.concat(padded) if len(padded) > 1 else block
    for _ in range(steps):
        inner = step(rows)
        if inspect.isawaitable(inner):
            inner = await inner
        parts = [*([rows[:depth]] if above is None else []), inner, *([rows[-depth:]] if below is None else [])]
        rows = kernels.concat(parts) if len(parts) > 1 else inner
    return rows
