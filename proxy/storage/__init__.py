"""Keeps everything that outlives a request.

``proxy.storage.port`` says what a store promises. Its engines are SQLite, in a file or in memory, and Redis. A worker's
spool keeps calls while the store is away. The packages above decide what is stored; nothing here knows of requests.
"""
