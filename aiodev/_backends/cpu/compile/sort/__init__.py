"""Sorting networks of vectors."""
