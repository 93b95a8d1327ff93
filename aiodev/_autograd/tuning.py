"""Tuning of differentiation: the constants that trade one cost for another."""

from __future__ import annotations

from typing import Final

# Passes that are remembered

#: Launches of a pass that is remembered: submitting them takes no more than a fraction of a millisecond, without a turn of the
#: loop. Larger: longer stretches; smaller: less is remembered.
MOST_COMMANDS: Final = 512
#: Bytes in between. Larger: memory that the engine would free on its way is kept longer; smaller: less is remembered.
MOST_SCRATCH: Final = 1 << 24
#: Structures with one kind of root. Larger: more is compared where structures change all the time; smaller: fewer take turns.
MOST_PROGRAMS: Final = 8
#: Kinds of roots. Larger: more memory for programs of many shapes; smaller: the engine has passes that come again.
MOST_ROOTS: Final = 256
#: Passes in which nothing that is remembered fits, beyond those in which something does, after which a root is left to the
#: engine. Larger: more passes compare in vain where structures change; smaller: fewer structures may take turns.
CREDIT: Final = 64
