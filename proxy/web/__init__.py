"""Serves HTTP.

Requests come in as ASGI; the engine's answers go out, byte by byte as they arrive, and with the engine's errors in the
form that OpenAI's clients read. This package decides nothing, and never reads a setting.
"""
