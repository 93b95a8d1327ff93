"""The demo: a real elevation model and a photograph, tile by tile through streams, under a 1 ms heartbeat.

Like the programs of a user it sees only the public names of ``aiodev``.
"""
