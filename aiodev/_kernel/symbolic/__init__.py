"""Symbolic shapes: what a body does with lengths that are not known, so that one run of it serves all that it decides alike."""
