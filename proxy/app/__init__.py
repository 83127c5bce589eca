"""Puts the proxy together, and serves it.

Validated settings come in; a running engine with its store, upstreams and web endpoints goes out. No other package
reads settings and connects parts. Commands (``proxy.cli``) call this package; nothing else imports it.
"""
