"""The runtime: timelines, streams, events, waiting, and the registry of backends. Nothing here knows a kind of device."""

from aiodev._core.gil import require_gil

require_gil()
