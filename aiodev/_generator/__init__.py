"""Random number generators: states on the host that kernels draw from."""
