"""Graphs: what streams were given while a block ran, recorded, to be submitted again as one operation.

**Problem.** A step of a program that is submitted again and again costs Python as much every time: some µs for each operation,
while the event loop does nothing else. What is submitted is nearly always the same, but for a few addresses and numbers.

**How.** While a stream is captured, its timeline is another one, whose executor is the :class:`~.recorder.Recorder`: whatever
submits, it submits to that, as it would to a device that has not started. Nothing runs. Streams that wait for a captured one
are captured, too, each with a timeline of its own, so that order between them is found, and elided, as ever.

When the block ends, the recording becomes a *schedule*: runs of operations without a wait between them, each of which is a
*command buffer* of the executor, with the waits of streams for each other and the calls of the host between them. Most
recordings are of one stream: then a replay is one native submission. The executor's worker walks the commands, and shares large
ones, as it does operations. An executor that has no command buffers is given the operations one by one.

**Invariants.**

1.  While a stream is captured, nothing is submitted to its queue by what goes through the stream. When the block is left,
    however that is, every captured stream has its own timeline again, and generators and allocators are as they were.
2.  Operations of a recorded timeline never complete: who waits for one, or asks for it, gets CaptureError. After the
    block the timeline is lost, with that error.
3.  Memory that captured operations use stays at its address for as long as the graph lives, or a replay runs. What was there
    before the capture is held. What the capture makes comes from a pool that serves captures only; what is free there again
    serves later operations of the same capture, in the order of their streams, as for any allocator.
4.  A recorded timeline is noted only in buffers that the capture has made, and not after it. Buffers that are held or that
    outlive the block get the notes of a replay: who reads them waits for it, and who writes them is written after it.
5.  Replays of the graphs that share a pool never overlap: each is ordered after the last one, or refused.
6.  What changes between replays (addresses of inputs and results, numbers, the words that generators draw from) is written by
    the device, in stream order, at the beginning of the replay that is to see it. So it never changes under one that runs.
    Where it is in memory of the pool, no captured operation has had that memory: one ahead would overwrite it.
7.  Every path from the beginning of a schedule to an operation, and from there to the end, is ordered by waits: a stream that
    was captured because it waited, and that nothing waits for, is refused.
8.  A block whose condition is on the device is a part of one run: commands between two branches, on one stream. Memory that
    was there when it begins is not used anew within it, since the next round may read it.
9.  What a replay draws is what the same calls would have drawn then: before each, words are taken from each generator.
10. A round that hands on a row signals that when it has written it, on a queue of the replay's own, which the replay's stream
    keeps until the replay is done. Readers only read: none holds up the device, and none outlives the array that it reads.
"""
