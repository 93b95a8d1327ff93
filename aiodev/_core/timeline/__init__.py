"""Timelines: streams as counters, what follows what, and what failed."""
