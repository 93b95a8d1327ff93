"""Compiling off the loop: the service, its worker processes, and the keys of the disk cache."""
