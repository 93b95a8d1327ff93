"""Reductions over the results of tasks, and training that rests on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distributed import Client, Future

from aiodev._core.arguments import instance, integer
from aiodev.dask.graphs import Graph
from aiodev.dask.tuning import ARITY

__all__ = ["all_reduce", "data_parallel", "tree_reduce"]


def tree_reduce(
    client: Client, combine: Callable[[Any, Any], Any], futures: Iterable[Future], *, arity: int = ARITY
) -> Future:
    """Combine the results of futures to one, by a tree of tasks.

    The shape of the tree follows from how many futures there are alone, and their order is kept. So ``combine`` has to be
    associative only as far as one does not mind, and the result is the same, to the bit, for any number of workers.

    Args:
        client: of the cluster.
        combine: of two results; a plain or a coroutine function.
        futures: one or more.
        arity: how many results a task combines. Larger: fewer tasks, and more bytes that one worker receives.

    Returns:
        the future of the whole. Any worker may use it, and Dask copies it to where it is needed.

    Raises:
        ValueError: there are no futures, or ``arity`` is less than 2.
        TypeError: an argument is of another type.

    Example:
        >>> import operator
        >>> async def total(client, futures):
        ...     return await aiodev.dask.tree_reduce(client, operator.add, futures)
    """
    instance("tree_reduce", "client", client, Client, "a client of dask.distributed")
    arity = integer("tree_reduce", "arity", arity, least=2)
    given = list(futures)
    if not given:
        raise ValueError("tree_reduce: futures: expected one or more, got none")
    if len(given) == 1:
        return given[0]
    graph = Graph("tree_reduce", (combine, arity), given)
    (whole,) = graph.submit(client, [_tree(graph, combine, graph.given(), arity)])
    return whole


def _tree(graph: Graph, combine: Callable[[Any, Any], Any], level: list[Any], arity: int) -> Any:
    """Add the tasks of a tree to a graph; returns the result of the last."""
    while len(level) > 1:
        groups = [level[at : at + arity] for at in range(0, len(level), arity)]
        level = [graph.add(_fold, combine, *group) if len(group) > 1 else group[0] for group in groups]
    return level[0]


async def _fold(combine: Callable[[Any, Any], Any], result: Any, *values: Any) -> Any:
    for value in values:
        result = combine(result, value)
        if inspect.isawaitable(result):
            result = await result
    return result


def all_reduce(client: Client, futures: Iterable[Future], *, arity: int = ARITY) -> Future:
    """The sum of the results of futures, for every worker that wants it: of arrays, and of lists and dictionaries of arrays.

    It is :func:`tree_reduce`, whose result Dask hands from worker to worker.

    Example:
        >>> async def mean(client, gradients):
        ...     return aiodev.dask.all_reduce(client, gradients)
    """
    return tree_reduce(client, _add, futures, arity=arity)


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return {name: _add(value, b[name]) for name, value in a.items()}
    if isinstance(a, list | tuple):
        return type(a)(_add(left, right) for left, right in zip(a, b, strict=True))
    return a + b


def data_parallel(
    client: Client,
    gradient: Callable[[Any, Any], Any],
    update: Callable[[Any, Any], Any],
    states: Sequence[Future],
    shards: Sequence[Future],
) -> list[Future]:
    """Submit one step of data-parallel training; gives the futures of the next states.

    Each shard of the data has a replica of the state: ``gradient(state, shard)`` is computed where these are, the gradients
    are summed as by :func:`all_reduce`, and ``update(state, total)`` gives each replica's next state. Neither may write to what
    it is given: copy first, then use an optimizer that does.

    The result depends on the number of shards, and not on that of workers: the same shards on one worker give the same bits.

    Args:
        client: of the cluster.
        gradient: gives arrays, lists or dictionaries of them, or numbers; a plain or a coroutine function.
        update: gives the next state.
        states: a replica of the state for each shard.
        shards: the data, scattered; all of them are used in each step.

    Raises:
        ValueError: there are not as many states as shards, or none.
        TypeError: an argument is of another type.

    Example:
        >>> async def train(client, gradient, update, states, shards):
        ...     for _ in range(100):
        ...         states = aiodev.dask.data_parallel(client, gradient, update, states, shards)
        ...     return await states[0]
    """
    instance("data_parallel", "client", client, Client, "a client of dask.distributed")
    if not states or len(states) != len(shards):
        raise ValueError(f"data_parallel: states: expected one for each of {len(shards)} shards, got {len(states)}")
    graph = Graph("data_parallel", (gradient, update), [*states, *shards])
    given = graph.given()
    pairs = list(zip(given[: len(states)], given[len(states) :], strict=True))
    total = _tree(graph, _add, [graph.add(gradient, *pair) for pair in pairs], ARITY)
    return graph.submit(client, [graph.add(update, state, total) for state, _ in pairs])
