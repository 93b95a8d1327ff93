"""The runtime: timelines, streams, events, waiting, and the registry of backends. Nothing here knows a kind of device."""

from aiodev._core.interpreter import require_gil, require_main_interpreter

require_gil()
require_main_interpreter()

from aiodev._core.sigint import chain_unraisable_hook  # noqa: E402  (it leaves things to be done at the process' end)

chain_unraisable_hook()
