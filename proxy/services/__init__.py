"""Connects the pure planner to the running proxy.

Requests come in from the engine and plans go out. This package loads and saves what layouts have learnt, counts tokens,
refreshes prefixes that are about to expire, and has summaries written of long conversations. It decides nothing about
layouts.
"""
