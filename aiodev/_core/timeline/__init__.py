"""Streams as counters: what is done, what follows what, and what failed."""
