"""How fast a learnt rate of change follows what is seen."""

RATE_STEP = 0.3
"""The weight of the newest request: the last four or five requests make most of a rate."""

FIRST_RATE = 0.1
"""The rate of change of a piece that was never seen before."""
