"""Tuning of the profiler: the constants that trade one cost for another.

Each says its unit, and what a larger and a smaller value costs.
"""

from __future__ import annotations

from typing import Final

#: Seconds between two beats of the loop's timer while it is profiled. Larger: short blocks are not seen; smaller: more of the
#: loop's time.
LAG_PERIOD: Final = 0.001
#: Beats that are kept: the last quarter of an hour, at one in a millisecond. Larger: more memory, 100 bytes
#: each; smaller: less of the past.
BEATS_KEPT: Final = 1 << 20
#: Looks a threshold. Larger: the loop's thread is looked at, and beats, more often; smaller: a block is seen later.
LOOKS: Final = 4
#: Blocks that are kept. Larger: more memory, some kB each; smaller: less of the past.
CALLS_KEPT: Final = 1000
#: Seconds for which one side waits for the other. Larger: a client that hangs holds up others for longer;
#: smaller: a busy process looks dead.
PATIENCE: Final = 1.0
#: Streams of a snapshot, those with most to do first. Larger: more to send and to read; smaller: fewer are shown.
STREAMS_SHOWN: Final = 200
#: Bytes of a snapshot that a client reads, at most. Larger: more memory for a process that does not stop sending; smaller:
#: large snapshots are cut off.
SNAPSHOT_BYTES: Final = 1 << 22
