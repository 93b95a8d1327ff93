"""Kernels for CUDA: from a function to a cubin."""
