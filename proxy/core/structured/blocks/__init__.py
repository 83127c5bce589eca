"""Says what an assembled request consists of.

Items come in; sections of items, blocks of sections and the messages that carry them go out, and a breakdown of the
tokens in them. This package never changes the order of what it is given.
"""
