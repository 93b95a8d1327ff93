"""Streams, events and completions, and what is submitted to them from Python."""
