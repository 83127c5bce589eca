"""How messages are made of a context: in tiers, flat, or for the planner to order."""
