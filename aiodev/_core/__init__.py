"""The runtime: timelines, streams, events, waiting, and the registry of backends. Nothing here knows a kind of device."""
