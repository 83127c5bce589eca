"""Tracks the entries that the provider's cache is believed to hold.

The inputs are the prompts as they were sent and the usage that the provider reports. The outputs are the tokens that
the next prompt would read and write, once after the requests that were really sent and once after the client's own
requests. The difference between the two costs is the realised regret. This package corrects its rules by the reports
and never decides anything.
"""
