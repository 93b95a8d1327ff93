"""Elements taken, put and searched for."""
