"""Serves HTTP.

Requests arrive as ASGI. The engine's answers are sent as their bytes arrive, and its errors have the form that OpenAI's
clients read. This package decides nothing, and never reads a setting.
"""
