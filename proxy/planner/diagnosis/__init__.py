"""Finds out why a prompt was not read from the cache: which piece of a request differs from the previous request, and
what that costs. It works on the pieces of a prompt in the order in which a provider renders them, whatever the wire
format is.
"""
