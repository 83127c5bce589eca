"""Connects the pure planner to the running proxy.

Requests come in from the engine and plans go out. This package loads and saves what layouts have learnt, counts tokens,
and refreshes prefixes that are about to expire. It decides nothing about layouts.
"""
