"""Tracks what the provider's cache is believed to hold.

Prompts as they were sent and the usage that the provider reports come in; the tokens that the next prompt would read
and write go out, once for what was really sent and once for the client's own requests. The difference between the two
costs is the realised regret. This package corrects its rules by reports and never decides anything.
"""
