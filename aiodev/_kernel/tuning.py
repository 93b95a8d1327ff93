"""Tuning of kernels: the constants that trade one cost for another."""

from __future__ import annotations

from typing import Final

# Operations

#: Most launches of one call that are remembered. Larger: larger generated functions; smaller: long operations run their body at
#: every call.
MOST_STEPS: Final = 16
#: Calls that an operation remembers, 1 to 3 KB each. Larger: more memory for programs of many shapes; smaller: what is
#: submitted is found out again, which takes ten to forty times as long. A sequence that grows meets a shape a step.
MOST_CALLS: Final = 1 << 13
#: Calls that differ in lengths alone and find out each what to submit, before one plan is made for all, in two or three
#: milliseconds; then twice as many before the next. Larger: a sequence that grows is slow for longer; smaller: plans for shapes
#: that are few.
RECURRING: Final = 4
#: Such calls before the next try, at most. Larger: a program whose lengths change late is slow for longer; smaller: bodies that
#: have no plan are run in vain more often.
MOST_PATIENCE: Final = 1 << 10
#: Calls that plans have to serve for the next to be tried as soon as the first was. Larger: lengths that change now and then
#: are found out one by one; smaller: more time goes into plans than they save.
WORTH_A_PLAN: Final = 32
#: Calls among which one is looked for that differs little from the next. Larger: calls hold more, and take longer to compare;
#: smaller: a plan is made of more lengths than grow, where several sequences take turns, and decides by them.
TURNS: Final = 8
#: Plans for the lengths that differ from one call to the next, before one is made for all that have ever differed. Larger:
#: more plans are made where there are arrays of many widths; smaller: plans have more conditions, where few lengths grow.
NARROW_PLANS: Final = 2
#: Of so many calls that plans serve one is looked at. If it was before, its lengths recur, and what it submits is found out for
#: them: that takes as long as a hundred such calls, and saves half a microsecond in each later one. Larger: what recurs costs
#: that for longer; smaller: bodies are run for lengths that do not come often enough.
RECURS: Final = 128
#: Lines of a plan at most: conditions, and quotients. Larger: plans that take longer to look at than a body to run; smaller:
#: bodies that decide much have none.
MOST_LINES: Final = 200
#: Terms, and factors of one, of what takes the place of a length that is equal to it. Larger: expressions that take long to
#: compute; smaller: more conditions that follow from others.
MOST_TERMS: Final = 8
#: Plans of calls that differ in lengths alone. Larger: more of them are tried in vain, which takes a microsecond each; smaller:
#: where launches are chosen by the length, some lengths have none.
MOST_PLANS: Final = 32

# Compiling

#: Seconds after which a worker process without a job ends. Larger: a compiler stays in memory for longer; smaller: more kernels
#: wait until a worker has started.
WORKER_IDLE: Final = 20.0
#: Seconds after which a worker that compiles one kernel counts as hung, and is killed. Larger: launches wait for longer;
#: smaller: kernels that take long never compile.
WORKER_PATIENCE: Final = 300.0
#: Resident bytes from which on a worker gets no further kernel, but a new one does: numba keeps something of each that it has
#: compiled, some megabytes. Larger: more memory is held; smaller: compilers are imported, for a second, more often.
LARGEST_WORKER: Final = 1 << 30

# Loading

#: Seconds that the loading thread sleeps after each step, some tenths of a millisecond of work. To release the GIL for a
#: moment, as each of its system calls does, is not enough: a loop that waits for the GIL is woken too late to take it before
#: this thread has it again, until the interpreter's switch interval, 5 ms, is over. Larger: code is there later; smaller:
#: loops wait.
LOADING_PAUSE: Final = 5e-5
