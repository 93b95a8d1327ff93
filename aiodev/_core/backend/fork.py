"""After a fork, the child forgets threads, descriptors, streams and loops of its parent."""

from __future__ import annotations

from aiodev._core.at_fork import first_in_child, in_child
from aiodev._core.cache_directory import cache
from aiodev._core.errors import BadForkError
from aiodev._core.streams import current, host_calls
from aiodev._core.waiting import blocking, callbacks, reactor
from aiodev._core.waiting.watcher import watcher


def install() -> None:
    """Register what a forked child forgets."""
    first_in_child(_lose)
    in_child(current.drop_streams_after_fork)


def _lose() -> None:
    error = BadForkError(
        "this stream, or the stream of this array,",
        "make streams and arrays after the fork, give the child NumPy arrays, or start processes with the 'spawn' method",
    )
    callbacks.forget_adding_after_fork()
    current.lose_streams_after_fork(error)
    watcher.forget_after_fork()
    host_calls.host_threads.forget_after_fork()
    blocking.forget_places_after_fork()
    reactor.forget_reactors_after_fork()
    cache.forget_after_fork()
