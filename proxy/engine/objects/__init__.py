"""Knows whose the objects of the provider's account are, and who pays for those that are not finished yet.

An exchange comes in. The right to use an object, or a refusal, and the bill that waits with the object go out.
"""
