"""Steps: the commands of a buffer, one behind the other in native memory, with blocks in place of branches."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiodev._backends.cuda.structs import BLOCKS_DEEP, OP_BLOCK, OP_END
from aiodev._core.backend.interface import Command
from aiodev._native.fields import WORD

__all__ = ["Steps"]

#: A step's words, those of its parameters included; its arguments follow.
_STEP = struct.Struct("<8q")
_CONDITION = struct.Struct("<qQ")
_IF, _WHILE = 0, 1  # CU_GRAPH_COND_TYPE_…


class Steps:
    """The steps that a buffer's commands become, as these are added in order.

    Attributes:
        places: where the arguments of each command are, in bytes behind the first step.
        count: how many steps there are.
        blocks: how many of them begin a block.
        depth: how many blocks are within each other, at most.
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        self.places: list[int] = []
        self.count = self.blocks = self.depth = 0
        self._commands = commands
        self._parts: list[bytes] = []
        self._end = 0  # of the parts, in bytes
        self._ends: list[tuple[int, int]] = []  # of each block the part that is its end, and where it begins
        self._open: list[tuple[int, int]] = []  # of blocks that have not ended the first command, and where they begin
        self._is_guarded = False

    def add(self, operation: int, entry: int, size: int, arguments: bytes, site: int, guarded: bool = False) -> None:
        """Add a command that does not branch; one that is guarded is not to run if a kernel ahead of it has failed."""
        if guarded and not self._is_guarded:
            self._begin_block(-1, _IF, 0, 0, site)
        elif not guarded:
            self._end_guarded()
        self._is_guarded = guarded
        self.places.append(self._lay(operation, entry, size, arguments, site))

    def branch(self, number: int, site: int) -> None:
        """Add a command that branches: it is the beginning of a block, or its end.

        Raises:
            NotImplementedError: it is neither, or the block is within too many others.
        """
        self._end_guarded()
        target = self._commands[number].size
        word, mask = _CONDITION.unpack(self._commands[number].arguments)
        self.places.append(self._end + _STEP.size)
        if mask != 0:
            if not number + 1 < target <= len(self._commands):
                raise NotImplementedError(f"{number} branch: to {target}, where no block ends")
            if len(self._open) == BLOCKS_DEEP - 1:  # the last one is for what is guarded
                raise NotImplementedError(f"{number} branch: within {BLOCKS_DEEP - 1} blocks")
            kind = _WHILE if self._commands[target - 1].size == number else _IF
            if kind == _IF and target == number + 2:  # there is nothing in it
                self._open.append((number, -1))
            else:
                self._begin_block(number, kind, word, mask, site)
            return
        first, begin = self._open.pop() if self._open else (-1, 0)
        if first < 0 or self._commands[first].size != number + 1 or target not in (first, number + 1):
            raise NotImplementedError(f"{number} branch: to {target}, where no block begins or ends")
        if begin >= 0:
            self._end_block(begin, site)

    def at(self, address: int) -> bytes:
        """What is to be in native memory, if the first step is at an address."""
        self._end_guarded()
        if self._open:
            raise NotImplementedError(f"{self._open[-1][0]} branch: to where no block ends")
        for part, begin in self._ends:
            self._parts[part] = _STEP.pack(OP_END, address + begin, *_STEP.unpack(self._parts[part])[2:])
        return b"".join(self._parts)

    def _lay(self, operation: int, entry: int, size: int, arguments: bytes, site: int) -> int:
        arguments += bytes(-len(arguments) % WORD)
        self._parts += [_STEP.pack(operation, entry, size, site, len(arguments), 0, 0, 0), arguments, arguments]
        place = self._end + _STEP.size
        self._end = place + 2 * len(arguments)
        self.count += 1
        return place

    def _begin_block(self, first: int, kind: int, word: int, mask: int, site: int) -> None:
        self._open.append((first, self._end))
        self.blocks += 1
        self.depth = max(self.depth, len(self._open))
        self._lay(OP_BLOCK, kind, 0, _CONDITION.pack(word, mask), site)

    def _end_block(self, begin: int, site: int) -> None:
        self._ends.append((len(self._parts), begin))
        self._lay(OP_END, 0, 0, b"", site)

    def _end_guarded(self) -> None:
        if self._is_guarded:
            self._end_block(self._open.pop()[1], 0)
        self._is_guarded = False
