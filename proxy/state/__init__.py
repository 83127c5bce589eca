"""Engines of the store port (``proxy.store``): memory, a SQLite file; and the spool for when a store is away."""
