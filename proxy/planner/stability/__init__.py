"""Estimates how likely each piece of a prompt changes.

The inputs are the signs that a request gives of its files and documents, and the changes that earlier requests showed.
The outputs are rates of change. Each estimate starts from a prior and follows the client's own history. This package
knows nothing of prices or orders.
"""
