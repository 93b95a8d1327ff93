"""The demo: texts of a small transformer, each token awaited, by aiodev and by NumPy in threads, under a 1 ms heartbeat.

Like the programs of a user it sees only the public names of ``aiodev``.
"""
