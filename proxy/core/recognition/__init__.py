"""Cuts texts into pieces.

One text of a message comes in; pieces that cover it exactly once go out: files, documents, blocks, changed lines. Each
recogniser is linear in the length of the text, and a text that it does not understand stays whole.
"""
