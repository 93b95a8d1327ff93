"""Backends as the rest of the package sees them: their interface, their registry, and starting them."""
