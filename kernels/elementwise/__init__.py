"""Elementwise functions, from one table."""
