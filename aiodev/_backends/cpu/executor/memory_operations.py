"""Entries that need no compiler at run time: copy and fill."""

from __future__ import annotations

from aiodev._native.compile import entry
from aiodev._native.fields import WORD
from aiodev._native.intrinsics import copy_memory, get, put


@entry
def copy_entry(arguments: int, lo: int, hi: int) -> int:
    """Copy bytes [lo, hi); arguments: destination, source."""
    copy_memory(get(arguments) + lo, get(arguments + WORD) + lo, hi - lo)
    return 0


@entry
def fill_entry(arguments: int, lo: int, hi: int) -> int:
    """Write items [lo, hi) of a pattern; arguments: destination, bytes an item (a divisor of 16), two words of pattern."""
    destination = get(arguments)
    nbytes = get(arguments + WORD)
    pattern = arguments + 2 * WORD
    if nbytes == 16:
        for i in range(lo, hi):
            put(destination + 16 * i, get(pattern))
            put(destination + 16 * i + WORD, get(pattern + WORD))
        return 0
    # The pattern's first word repeats every 8 bytes; whole words in the middle, single items at both ends.
    begin, end = destination + nbytes * lo, destination + nbytes * hi
    while begin < end and begin & 7 != 0:
        copy_memory(begin, pattern, nbytes)
        begin += nbytes
    words = (end - begin) // WORD
    word = get(pattern)
    for i in range(words):
        put(begin + WORD * i, word)
    begin += WORD * words
    while begin < end:
        copy_memory(begin, pattern, nbytes)
        begin += nbytes
    return 0
