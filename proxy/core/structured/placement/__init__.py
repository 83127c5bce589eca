"""Where each item of a context stands: its tier, what has been learnt of how stable it is, and where it may stand."""
