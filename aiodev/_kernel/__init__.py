"""Kernels: one source, compiled off the loop, launched in a microsecond."""
