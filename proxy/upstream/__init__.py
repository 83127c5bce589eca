"""Calls the providers.

A call comes in; an open answer goes out, or a ``ProxyError``. Each transport is one ``Upstream`` (``proxy.ports``).
This package never tries a call again, and never chooses whom to call.
"""
