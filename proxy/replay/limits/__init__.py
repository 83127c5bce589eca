"""How cheap a recorded session could have been: bounds of what any policy reaches, and the best that a search finds.

``free`` <= ``fixed`` and ``free`` <= ``search`` <= every policy: the first two are proven bounds, the third a heuristic
search with knowledge of the future.
"""
