"""The commands of ``python -m aiodev``."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import aiodev
from aiodev._cli.info import describe
from aiodev._cli.refusals import refuse, unusable_device, unusable_directory
from aiodev._cli.top import add_arguments as add_top_arguments, top
from aiodev._cli.warm_up import add_arguments, warm_up

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "demo":
        return _demo(options.output, options.device, options.quick)
    if options.command == "top":
        return top(options)
    if options.command == "warm-up":
        return asyncio.run(warm_up(options))
    print(describe())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aiodev", description="An asyncio-native accelerator runtime.")
    parser.add_argument("--version", action="version", version=f"aiodev {aiodev.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("info", help="show backends, devices, versions, executor, threads and settings")
    add_arguments(commands.add_parser("warm-up", help="compile kernels before a program needs them"))
    add_top_arguments(commands.add_parser("top", help="show devices and streams of running processes, live"))
    demo = commands.add_parser("demo", help="tokens of a small transformer, by aiodev and by NumPy in threads")
    demo.add_argument("--output", type=Path, default=Path("demo-output"), metavar="DIRECTORY", help="for the timeline")
    demo.add_argument("--device", default="cpu", help="where to compute (default: cpu)")
    demo.add_argument("--quick", action="store_true", help="a second of work; its figures say little")
    return parser


def _demo(directory: Path, device: str, quick: bool) -> int:
    reason = unusable_device(device) or unusable_directory(directory)
    if reason is not None:
        return refuse(reason)
    from aiodev._demo.program import FULL, QUICK, demo  # which only this command needs

    directory.mkdir(parents=True, exist_ok=True)
    return asyncio.run(demo(directory, QUICK if quick else FULL, device))
