"""Kernels: one source for every device, compiled off the loop, launched in a microsecond."""
