"""What the engine asks for: plans, structured context, windows, prompts and plugins.

Requests come in from the engine; plans and texts go out. This package loads and saves what layouts have learnt, counts
tokens, refreshes prefixes that are about to expire, and has summaries written of long conversations. It decides nothing
about layouts.
"""
