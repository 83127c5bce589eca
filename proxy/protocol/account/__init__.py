"""Reads which objects of the provider's account a call touches.

A path, a body or an answer comes in; the objects that it makes, lists, reads or changes go out. The owner of each
object is kept elsewhere (``proxy.engine.custody``).
"""
