"""Indexing: take, put, search and select elements."""
