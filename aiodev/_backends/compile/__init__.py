"""The numba front ends' common part: what they refuse, derive, emit and keep alike, for all kinds of devices."""
