"""Finds out why caches missed in logs of other programs, what the misses cost, and what would help.

Logs come in; the worst culprits of each client, prices and sentences with advice go out. Nothing here uses the
network, and no text of a prompt is kept, shown or stored.
"""
