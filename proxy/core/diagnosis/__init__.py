"""Why a prompt was not read from the cache: which piece of a request differs from the one before it, and what that
costs. It works on pieces of a prompt in the order in which a provider renders them, whatever the wire format was.
"""
