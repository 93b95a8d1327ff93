"""Static analyses of a kernel's source: what it writes, how far it indexes, whether it has loops."""
