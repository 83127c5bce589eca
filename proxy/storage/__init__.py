"""Keeps everything that outlives a request.

``proxy.storage.port`` defines what a store promises. Its engines are SQLite, in a file or in memory, and Redis. A
worker's spool keeps calls while the store is away. The packages that use this one decide what is stored; nothing here
knows about requests.
"""
