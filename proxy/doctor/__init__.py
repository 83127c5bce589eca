"""Why caches missed in logs that others have written, what it costs, and what would help.

Logs come in; the worst culprits of each client, prices and sentences to act upon go out. Nothing here uses the
network, and no text of a prompt is kept, shown or stored.
"""
