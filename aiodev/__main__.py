"""``python -m aiodev``."""

from __future__ import annotations

import sys

from aiodev._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
