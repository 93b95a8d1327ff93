"""The runtime: timelines, streams, events, waiting, and the registry of backends. Nothing here knows a kind of device."""

from aiodev._core.gil import require_gil
from aiodev._core.sigint import chain_unraisable_hook

require_gil()
chain_unraisable_hook()
