"""``python examples/service``: serve on a free port of this machine, or on ``--port``."""

from __future__ import annotations

import argparse
import contextlib
import socket

import uvicorn
from app import make_app
from batcher import WAYS_TO_WAIT

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python examples/service", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--wait", choices=sorted(WAYS_TO_WAIT), default="await", help="how to wait for the device")
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    config = uvicorn.Config(make_app(options.wait), log_level="warning", timeout_graceful_shutdown=10)
    with contextlib.suppress(KeyboardInterrupt):  # the server has ended in good order, and passes the signal on
        uvicorn.Server(config).run(sockets=[listening])
