"""``python examples/generate``: serve on a free port of this machine, or on ``--port``."""

from __future__ import annotations

import argparse
import contextlib
import socket

import uvicorn
from app import make_app

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python examples/generate", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="begin with a model that knows nothing, and train it meanwhile")
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    config = uvicorn.Config(make_app(options.train), log_level="warning", timeout_graceful_shutdown=10)
    with contextlib.suppress(KeyboardInterrupt):  # the server has ended in good order, and passes the signal on
        uvicorn.Server(config).run(sockets=[listening])
