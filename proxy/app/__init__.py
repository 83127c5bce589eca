"""Puts the parts of the proxy together, and serves them."""
