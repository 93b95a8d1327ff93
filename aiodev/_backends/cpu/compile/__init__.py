"""Kernels for the CPU: from a function to an object file."""
