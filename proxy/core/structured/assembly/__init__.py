"""The making of messages from a context.

The input is a context whose items have their places. The output is the items as messages: in tiers that end at markers,
flat, or in pieces for the planner to order. This package never decides where an item stands.
"""
