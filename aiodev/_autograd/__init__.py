"""Reverse-mode differentiation whose backward pass is submitted, as all work is, and follows the streams of its forward.

**Problem.** Differentiation has to see every operation; those who never differentiate must pay nothing for that. A backward
pass is as many launches as the forward one: it must not wait for any of them, must not hold the event loop while it submits a
hundred thousand, and must order its streams against each other with as few events as the forward pass needs.

**Where the graph is.** A :class:`~aiodev._autograd.variable.Variable` is an array, of a subclass. Operations look up an array
by its class anyway (:mod:`aiodev._kernel.operation`, invariant 5): a variable is not found there, and comes to
:mod:`~aiodev._autograd.recording`. Plain arrays carry nothing, and no operation asks them for anything. A variable that an
operation has made knows its *edge*, ``(node, output)``; a node knows the edges of its operands. So a graph points from results
to leaves only, lives as long as a result of it, and has no cycle.

**Invariants.**

1.  A leaf is its own end of an edge. It refers to no graph, so no graph outlives its results because of a parameter, and no
    stream of an earlier pass is found at a parameter.
2.  A node keeps plain arrays, never variables: what it keeps of its operands is related to their edges again, what of its own
    results to itself, when a gradient is to be differentiated again.
3.  The numbers of nodes grow, and the edges of a node lead to lower ones. So to sort by them is to order topologically.
4.  The version of an array that is kept is the last write of its buffer, which every launch, copy and fill notes already.
    Where the buffer has been written to since, the backward pass fails.
5.  A node runs on the stream that was current at its forward; a leaf's gradient is added up on that of its first use in the
    graph. Between two streams there is an event only if a gradient passes from one to the other
    (:mod:`~aiodev._autograd.delivery`); on one stream there is none.
6.  The pass submits and does not wait. It yields to the loop once a millisecond is over, so that no graph holds that longer;
    nothing recurses.
7.  The gradients of leaves are stored at the end, at one go: an error, or a cancellation, leaves them as they were. Only leaves
    with a post-accumulate hook get theirs as soon as it is complete, which is what the hook is for. The sums that are stored
    are submitted before that, with turns in between; what has changed since its sum was made is summed up again.
8.  A gradient that is stored is never written to by a later pass, which stores another array. So passes of several tasks add
    to one leaf, without an order between their streams other than that of the sums. Only replays write to one:
    a captured pass adds in place to what a leaf had before the capture, since the host stores nothing at a replay.
9.  A pass that is over, in whatever way, has released the nodes that it went through, unless it was to retain them.
10. A pass is captured as a whole, with the forward that it is of, or not at all: the streams of all nodes are looked at before
    anything is submitted. What leaves get then is memory of the graph, at an address that replays do not change.
11. What a pass submits follows from the structure of its graph, if that has nothing but operations of the library on one
    stream. Such a pass may be submitted without the engine (:mod:`~aiodev._autograd.remembered`); to the bit it is the same.
12. No finalizer frees more than one node: what is dropped is taken apart in portions (:mod:`~aiodev._autograd.disposal`).
"""
