"""Calls the providers.

The input is a call; the result is an open answer, or a ``ProxyError``. Each transport is one ``Upstream``
(``proxy.engine.ports``). This package never retries a call, and never chooses which provider to call.
"""
