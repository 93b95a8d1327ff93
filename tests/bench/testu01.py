"""``python tests/bench/testu01.py [--seed N] [small|rabbit|crush]…``: TestU01's batteries on the generator's words.

Needs a C compiler and TestU01 (Debian: ``libtestu01-0-dev``, from non-free); ``CFLAGS`` and ``LDFLAGS`` may say where it is.
Each battery reads the words as they come, with their bits reversed, and in turns from 1,000 spawned generators. It prints what
TestU01 finds remarkable: p-values outside [0.001, 0.999].
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import aiodev
from aiodev.kernels import random

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <testu01/unif01.h>
#include <testu01/bbattery.h>
#include <testu01/swrite.h>

static unsigned int buffer[1 << 16];
static size_t filled, used;

static unsigned int next(void) {
    if (used == filled) {
        filled = fread(buffer, 4, 1 << 16, stdin);
        used = 0;
        if (filled == 0) exit(2);
    }
    return buffer[used++];
}

int main(int count, char **arguments) {
    unif01_Gen *words = unif01_CreateExternGenBits(arguments[2], next);
    swrite_Basic = FALSE;
    if (!strcmp(arguments[1], "small")) bbattery_SmallCrush(words);
    else if (!strcmp(arguments[1], "rabbit")) bbattery_Rabbit(words, 1e9);
    else bbattery_Crush(words);
    return 0;
}
"""
PIECE = 1 << 22
BATTERIES = ("small", "rabbit", "crush")


def forward(seed: int) -> Iterator[bytes]:
    """The words of one seed."""
    g = aiodev.Generator("cpu").manual_seed(seed)
    while True:
        yield random.random_raw(PIECE, generator=g).numpy_blocking().tobytes()


def reversed_bits(seed: int) -> Iterator[bytes]:
    """The same, the lowest bit first: batteries look more at the upper ones."""
    for piece in forward(seed):
        bits = np.unpackbits(np.frombuffer(piece, np.uint8), bitorder="little").reshape(-1, 32)
        yield np.packbits(bits, axis=1, bitorder="big").view(">u4").astype("<u4").tobytes()


def interleaved(seed: int) -> Iterator[bytes]:
    """In turns from spawned generators."""
    children = aiodev.Generator("cpu").manual_seed(seed).spawn(1000)
    while True:
        rows = [random.random_raw(4096, generator=child) for child in children]
        yield np.ascontiguousarray(np.stack([row.numpy_blocking() for row in rows]).T).tobytes()


SOURCES = {"words": forward, "reversed": reversed_bits, "interleaved": interleaved}


def run(program: Path, battery: str, name: str, seed: int) -> None:
    """Feed one battery until it has enough."""
    tester = subprocess.Popen([program, battery, f"aiodev {name}, seed {seed}"], stdin=subprocess.PIPE)
    assert tester.stdin is not None
    try:
        for piece in SOURCES[name](seed):
            tester.stdin.write(piece)
    except BrokenPipeError:
        pass
    tester.wait()


def main() -> None:
    """Compile the reader, run what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("batteries", nargs="*", choices=[*BATTERIES, []], help="which; small by default")
    parser.add_argument("--seed", type=int, default=20261121)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "reader.c"), Path(folder, "reader")
        source.write_text(PROGRAM)
        flags = [shlex.split(os.environ.get(name, "")) for name in ("CFLAGS", "LDFLAGS")]
        libraries = ["-ltestu01", "-ltestu01probdist", "-ltestu01mylib", "-lm"]
        subprocess.run(["cc", "-O2", *flags[0], str(source), "-o", str(program), *flags[1], *libraries], check=True)
        for battery in options.batteries or BATTERIES[:1]:
            for name in SOURCES:
                run(program, battery, name, options.seed)


if __name__ == "__main__":
    main()
