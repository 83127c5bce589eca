"""The parts of an assembled request.

The input is items. The output is sections of items, blocks of sections, the messages that carry them, and a breakdown
of the tokens in them. This package never changes the order of its input.
"""
