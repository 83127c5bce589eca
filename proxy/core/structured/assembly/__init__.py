"""Makes messages of a context.

A context whose items have their places comes in; the items go out as messages, in tiers that end at markers, flat, or
in pieces for the planner to order. This package never decides where an item stands.
"""
