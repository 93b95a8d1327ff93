"""Waiting for timelines: in an event loop, blocking a thread, and spinning."""
