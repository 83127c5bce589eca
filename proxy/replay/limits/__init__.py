"""Says how cheap a recorded session could have been.

A trace and the rules of a provider come in; bounds of what any policy can reach go out, and the best that a search
finds. ``free`` <= ``fixed`` and ``free`` <= ``search`` <= every policy: the first two are proven bounds, the third is
a heuristic search that knows the future. Nothing here is ever used to plan a request.
"""
