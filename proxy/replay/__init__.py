"""Replays recorded sessions.

A trace comes in; bills, violations of fidelity, comparisons and explanations go out. The planner is the product's own,
the provider really caches, and time is virtual. This package never uses the network.
"""
