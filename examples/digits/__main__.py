"""``python examples/digits``: train a network, and show on a page how it goes. On a free port, or ``--port``."""

from __future__ import annotations

import argparse
import contextlib
import socket

import uvicorn
from app import make_app

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python examples/digits", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    config = uvicorn.Config(make_app(options.epochs), log_level="critical", timeout_graceful_shutdown=1)
    with contextlib.suppress(KeyboardInterrupt):  # the server has ended in good order, and passes the signal on
        uvicorn.Server(config).run(sockets=[listening])
