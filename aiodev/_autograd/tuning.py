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

# Yielding

#: Nodes between two looks at the clock. Larger: a pass may yield late; smaller: a look costs about a fiftieth of a node.
NODES_A_LOOK: Final = 8
#: Nodes that are sorted at a time; those of all are merged. Larger: the loop is held for longer, a millisecond at this size;
#: smaller: there is more to merge.
NODES_SORTED: Final = 1 << 10
#: Pieces that are dropped between two looks at the clock. Larger: a graph that is dropped may yield late; smaller: more
#: looks.
PIECES_A_LOOK: Final = 32
#: Parameters of one operation. Larger: what is launched is found out anew where one of more has no gradient, and an operation
#: remembers no more than 16 launches; smaller: more calls.
PARAMETERS_TOGETHER: Final = 16
