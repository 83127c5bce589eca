"""Engines of the store port (``proxy.storage.port``): memory, a SQLite file; and the spool for when a store is away."""
