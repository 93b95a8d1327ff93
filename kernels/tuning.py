"""Tuning of the kernels: the constants by which launches are planned, in elements unless they say otherwise.

A launch's index is worth some µs of work: what it costs to claim one is little next to that, and workers even out. Constants
that bodies are made with are beside the bodies. Values were measured on two to four cores with caches of 32 KiB, 1 to 2 MiB
and 32 MiB, next to NumPy.
"""

from __future__ import annotations

from typing import Final

# Kernels of a length of their own

#: Longest rows that have kernels of their own. Larger: more compilations; and rows of more elements than a vector has are apart
#: so far that they are read more slowly side by side than one after the other. Smaller: rows are not taken in vectors.
LONGEST: Final = 8
#: Calls of a length after which it has recurred. Larger: rows are not taken in vectors for longer; smaller: compilations for
#: lengths that do not come again.
RECURRING: Final = 16

# Elementwise functions

#: Bytes of an operand from which on it is put into the order of the result before it is read. Larger: elements are read at a
#: distance for longer; smaller: what a core's cache holds is copied for nothing.
ACROSS: Final = 1 << 19
#: Elements at least along both dimensions. Larger and smaller: as ``ACROSS``.
ACROSS_LENGTH: Final = 16

# Teams of threads, on devices that have them

#: Elements of a lane before a team gets twice as many lanes. Larger: fewer threads, each of which waits for memory longer;
#: smaller: more steps that put lanes together.
TEAM_EACH: Final = 8
#: Teams that a launch should have if there is enough to do. Larger: pieces are smaller, and a second launch sums up more of
#: them; smaller: multiprocessors are idle.
TEAMS: Final = 1 << 10
#: Elements of a team's piece of a row, at least. Larger: long rows have fewer teams; smaller: teams end before their threads
#: have had enough to wait for.
TEAM_PIECE: Final = 1 << 11

# Reductions and running totals

#: Rows from which on each is reduced by one index, however long. Larger: more launches of two steps; smaller: cores wait for
#: the one that has the last long row.
MANY_REDUCED: Final = 256
#: Blocks of a row up to which one index reduces it whole, in the same order. Larger: one core works where several could;
#: smaller: a second launch, which takes as long as so many blocks do.
WHOLE_BLOCKS: Final = 8
#: Elements of an array whose columns are reduced by one index each. Larger: columns are read one by one that vectors would
#: take side by side; smaller: a second launch, which takes longer than vectors save.
FEW_REDUCED: Final = 1 << 12
#: Most elements of a row that is reduced in order. Larger: each sum waits for the one before it; smaller: short rows are cut.
IN_ORDER: Final = 15
#: Most columns beside each other whose elements are reduced in order. Larger and smaller: as ``IN_ORDER``.
IN_ORDER_BESIDE: Final = 32
#: Elements that an index counts in bins of its own, at least. Larger: fewer cores share a histogram; smaller: more bins to add
#: up.
COUNTED_EACH: Final = 1 << 16
#: Most bins of all indices together. Larger: more scratch memory; smaller: histograms of many bins have few indices.
MOST_BINS: Final = 1 << 22
#: Bytes of rows whose columns are summed up four at a time, if there are more than four. Larger: totals do not fit into
#: registers; smaller: narrow rows leave lanes empty.
NARROW_SCANNED: Final = 40
#: Elements of an array whose columns are all summed up four at a time. Larger and smaller: as ``NARROW_SCANNED``.
FEW_SCANNED: Final = 1 << 12
#: Elements for an index of a scan, about. Larger: cores wait for the last one; smaller: more is spent on claiming them.
SCANNED_EACH: Final = 1 << 13

# Indexing

#: Elements for an index that puts, about. Larger: cores wait for the last one; smaller: more is spent on claiming them.
PUT_EACH: Final = 1 << 12
#: Blocks of items that are summed apart, in all. Larger: more results to add up; smaller: fewer cores share one place.
PUT_BLOCKS: Final = 64
#: How many times as many items as places a block has, at least. Larger: fewer cores share what goes to few places; smaller:
#: adding up blocks takes as long as adding items.
PUT_TIMES: Final = 4
#: Elements that are added side by side, at least. Larger: fewer cores share an item; smaller: each goes through all indices
#: again for little.
PUT_WIDTH: Final = 16
#: Elements for an index that takes, about. Larger and smaller: as ``PUT_EACH``.
TAKEN_EACH: Final = 1 << 12
#: Rows of which an index takes elements together, at least, as it looks places up once. Larger: fewer cores share few rows;
#: smaller: places are looked up again.
TAKEN_ROWS: Final = 16
#: Groups that few rows are made into, at least. Larger: places are looked up again; smaller: fewer cores share them.
TAKEN_GROUPS: Final = 8

# Joining, padding and repeating

#: Most elements of a result that an index table makes by one launch. Larger: tables that are computed and kept on the host;
#: smaller: a launch for each array that is joined.
GATHERED: Final = 1 << 12
#: Elements for an index that moves rows, about. Larger: cores wait for the last one; smaller: more is spent on claiming them.
MOVED_EACH: Final = 1 << 12
#: Longest rows of which an index moves several. Larger: one core moves what several could; smaller: an index for little.
SHORT_MOVED: Final = 1 << 6
#: Calls of one function that are remembered, with a table each. Larger: more memory; smaller: tables are computed again.
TABLES_KEPT: Final = 256

# Sorting

#: Bytes of the longest row that one worker sorts by radix sort, however few there are. Larger: other cores idle; smaller: more
#: launches to split a row.
WHOLE_BYTES: Final = 1 << 19
#: Rows from which on each is sorted by one worker. Larger: rows are split that would keep all cores busy; smaller: cores idle.
MANY_SORTED: Final = 8
#: Keys of a row from which on radix sort takes wider digits, with more counters. Larger: more passes; smaller: counters that
#: are more than keys.
WIDE_FROM: Final = 1 << 14
#: Bytes of such rows at most. Larger: keys that are not in the caches go to more places at once; smaller: more passes.
WIDE_BYTES: Final = 1 << 22
#: Elements of a matrix whose columns are sorted where they are. Larger: columns are read at a distance; smaller: a copy that
#: has them as rows.
FEW_TURNED: Final = 1 << 12
#: Groups of rows, each of which has scratch memory. Larger: more of it; smaller: cores wait for the last group.
SORT_GROUPS: Final = 64
#: Keys of a bucket, about, and buckets at most, where a network sorts buckets: by the bytes of a key. Larger buckets do not fit
#: into a core's cache; smaller ones are more to find for each key.
NETWORK_BUCKETS: Final = {4: (4_000, 1 << 11), 8: (4_000, 1 << 9)}
#: As ``NETWORK_BUCKETS``, where radix sort does. Larger and smaller: as there.
RADIX_BUCKETS: Final = (20_000, 1 << 11)
#: Buckets at least. Larger: short rows have buckets of few keys; smaller: cores wait for the last one.
FEWEST_BUCKETS: Final = 32
#: Buckets for each core, at least. Larger and smaller: as ``FEWEST_BUCKETS``.
CORE_BUCKETS: Final = 16
#: Keys of the sample for each bucket. Larger: more to sort first; smaller: buckets differ more in size.
SAMPLED: Final = 32
#: Keys of a block that an index distributes, at least. Larger: cores wait for the last one; smaller: more counters to sum up.
SHORTEST_BLOCK: Final = 1 << 12
#: Keys of such a block at most. Larger and smaller: as ``SHORTEST_BLOCK``.
LONGEST_BLOCK: Final = 1 << 20
#: Blocks for each core. Larger: more counters to sum up; smaller: cores wait for the last one.
CORE_BLOCKS: Final = 8
#: Groups of buckets for each core, of which an index sorts one. Larger: more indices to claim; smaller: cores wait for the last
#: one.
CORE_GROUPS: Final = 32

# Linear algebra

#: Multiplications for an index of a product of matrices, at least: some tens of µs. Larger: cores wait for the last panel;
#: smaller: small products are shared, which takes longer than they do.
MULTIPLIED_EACH: Final = 1 << 22
#: Elements of a matrix that an index multiplies with a vector. Larger and smaller: as ``MULTIPLIED_EACH``; each is read from
#: memory, so fewer take as long.
VECTOR_EACH: Final = 1 << 18
#: Columns that a vector is multiplied with side by side, at least. Larger: fewer indices; smaller: rows are read in pieces that
#: are shorter than what a processor reads ahead.
VECTOR_STRIP: Final = 1 << 9
#: A panel's rows and columns, at least. Larger: fewer panels to share; smaller: packing operands takes as long as multiplying.
PANEL_SIDE: Final = 64
#: Panels of a product, at most, but for its length; not for each core, since the same panels give the same bits. Larger: more
#: packing, since each packs its operands: products of 50 to 1,000 million multiplications take 1 to 5 % longer in 16 than in
#: 4, and 6 to 12 % in 32, on one core; smaller: many cores have nothing to do.
PANELS: Final = 16
#: Multiplications in each, at least. Larger: cores wait for the last one; smaller: more packing.
PANEL_EACH: Final = 1 << 23
#: Longest side of a panel that is not cut for its length alone. Larger: what is packed does not fit into caches; smaller: more
#: packing.
LONG_SIDE: Final = 1 << 9
#: Elements of a result from which on integers are multiplied in tiles. Larger: products of matrices read an operand again for
#: each element; smaller: too few tiles to share.
TILED: Final = 1 << 16
#: Elements for an index of a product with a vector. Larger: cores wait for the last one; smaller: more is spent on claiming
#: them.
GEMV_EACH: Final = 1 << 14
#: Rows of a slab whose columns are summed, at least. Larger: fewer cores share a matrix; smaller: more sums to add up.
GEMV_SLAB: Final = 1 << 6
#: Elements of a matrix from which on loops of ours multiply it with a vector, and workers share it. Larger: BLAS computes on
#: one core; smaller: sharing takes longer than it saves.
GEMV_LEAST: Final = 1 << 18
#: Shortest rows that such loops take. Larger: BLAS computes more; smaller: rows are shorter than the loops' vectors.
GEMV_SHORTEST: Final = 1 << 6
#: Rows from which on each is an index's whole. Larger: more rows are cut into blocks, and summed up by another launch; smaller:
#: cores idle where rows are few and long.
GEMV_ROWS: Final = 1 << 6
#: Bytes of rows up to which some ahead are asked for. Larger: requests where the processor foresees them itself; smaller: waits
#: for the beginning of each row.
GEMV_NARROW: Final = 1 << 13
#: Elements of vectors that one index multiplies whole. Larger: one core works where several could; smaller: a second launch,
#: which takes as long as so many elements do.
DOT_WHOLE: Final = 1 << 17
#: Vectors from which on each is multiplied whole. Larger: more launches of two steps; smaller: cores wait for the last one.
MANY_DOTS: Final = 1 << 8
#: Multiplications for an index that factorises matrices of a stack, at least: some tens of µs of LAPACK's, which is slow at
#: small ones. Larger: cores wait for the last one; smaller: more is spent on claiming them.
FACTORISED_EACH: Final = 1 << 15
#: Indices for each core, each of which has scratch memory. Larger: more memory; smaller: cores wait for the last one.
FACTORISED_SHARES: Final = 4
#: Elements of a matrix above which there is one index for each core. Larger: more scratch memory; smaller: cores wait.
FACTORISED_LARGE: Final = 1 << 14
#: Rows of a matrix, at most, of a stack that one call of a CUDA library factorises. Larger: fewer calls; smaller: large
#: matrices are factorised by functions that keep the device busier with each. 64 matrices of 512 rows, on an H100: Cholesky
#: factors 1.3 ms by one call, 24 by 64; solutions 10 and 72; inverses 39 and 79.
BATCHED_ROWS: Final = 512
#: The same of eigenvalues, by Jacobi's method. Larger: its sweeps take longer than the other one; smaller: more calls. 64
#: matrices of 256 rows: 25 ms by one call, 128 by 64.
JACOBI_ROWS: Final = 256
#: Rows, at most, for each matrix of such a stack: one call factorises each on one multiprocessor, and a call for each has all
#: of them. Larger: few large matrices leave most of the device idle; smaller: more calls.
BATCHED_ROWS_EACH: Final = 16
#: Handles of cuSOLVER for each device, as many as threads call at once. Larger: some MiB of the device's memory each; smaller:
#: functions that wait for the device hold up others.
SOLVER_HANDLES: Final = 2
#: Shapes whose workspace is known, at most. Larger: more memory; smaller: cuSOLVER is asked again, in a thread.
SOLVER_SIZES: Final = 4096

# Fourier transforms

#: Elements for an index of transforms, at least: some tens of µs. Larger: cores wait for the last one; smaller: more is spent
#: on claiming them.
TRANSFORMED_EACH: Final = 1 << 12
#: Indices for each core. Larger: more factors that are computed again; smaller: cores wait for the last one.
TRANSFORMED_SHARES: Final = 4
#: Bytes that a transform's loop may take without the kernel having asked for them. Larger: one that has no memory leaves its
#: result as it was; smaller: an allocation for nothing.
UNASKED: Final = 1 << 20
#: Plans of cuFFT for each device that are kept. Larger: more of the device's memory, which plans have for their factors;
#: smaller: programs with many lengths make them again and again, for milliseconds each.
PLANS_KEPT: Final = 128

# Neural networks

#: Elements of planes for an index that pools, about. Larger: cores wait for the last one; smaller: more is spent on claiming
#: them.
POOLED_EACH: Final = 1 << 13
#: Elements of scores for an index of attention, about. Larger and smaller: as ``POOLED_EACH``.
ATTENDED_EACH: Final = 1 << 12
#: Elements for an index of an embedding, about. Larger and smaller: as ``POOLED_EACH``.
EMBEDDED_EACH: Final = 1 << 12
#: Elements of the columns of windows, at most, where matrices of them are multiplied. Larger: more scratch memory; smaller:
#: fewer images at a time.
WINDOW_COLUMNS: Final = 1 << 26
#: Elements of a tile's signals, about: half of a second-level cache. Larger: they do not stay there; smaller: more lines that
#: tiles have in common are copied.
TILE_SIGNALS: Final = 1 << 17
#: Positions of a tile, at least, where there are as many. Larger: signals that do not stay in the cache; smaller: loops that
#: are too short for vectors.
TILE_POSITIONS: Final = 64
#: Tiles that there should be, if images are that many. Larger: more is copied; smaller: cores wait for the last one.
TILES: Final = 8
#: Multiplications for an index of a gradient of weights: some tens of µs. Larger: cores wait for the last one; smaller: more
#: parts to add up.
CORRELATED_EACH: Final = 1 << 20
#: Indices of such a gradient at most, each of which has a part. Larger: more memory; smaller: cores wait for the last one.
CORRELATED_MOST: Final = 64
#: Elements of all parts, about, at most. Larger: more memory, and more to add up; smaller: fewer indices.
CORRELATED_PARTS: Final = 1 << 22
#: Elements for an index that normalises, about. Larger: cores wait for the last one; smaller: more is spent on claiming them.
NORMALISED_EACH: Final = 1 << 13
#: Indices of gradients of normalised rows, at most; each has sums of its own for weights. Larger: more to add up in the
#: end; smaller: fewer cores have work.
NORMALISED_PARTS: Final = 64
#: Columns that are normalised side by side, at least. Larger: fewer indices; smaller: less than what a processor reads at once.
NORMALISED_WIDTH: Final = 64
#: Lanes at most in which several rows of fewer columns are side by side. Larger: more scratch memory for each index; smaller:
#: shorter loops.
NORMALISED_LANES: Final = 256
#: Bytes of rows that are turned into columns for a while, where the array is in the caches. Larger: turning takes longer than
#: loops without vectors; smaller: short rows have no vectors.
TURNED: Final = 127
#: As ``TURNED``, where the array is not in the caches. Larger and smaller: as there.
TURNED_FAR: Final = 32
#: Rows that are turned at a time. Larger: they do not stay in the first-level cache; smaller: shorter loops.
TURNED_ROWS: Final = 128
#: Indices at most, each of which has room for rows that are turned. Larger: more memory; smaller: cores wait for the last one.
TURNED_ROOMS: Final = 64
#: Elements of a matrix whose columns are normalised where they are. Larger: columns are read at a distance; smaller: copies,
#: which take longer.
FEW_NORMALISED: Final = 1 << 12
#: Elements at most of which the host counts those that an index or a set operation asks for, where they are there. Larger: the
#: caller is held for longer than the device would take; smaller: it waits for the device, which counts.
COUNTED_HERE: Final = 1 << 14
#: As ``COUNTED_HERE``, of what has to be sorted for it: the device is ahead of NumPy sooner. Larger: the caller is held
#: for longer than the device would take; smaller: it waits for the device.
SORTED_HERE: Final = 1 << 9
