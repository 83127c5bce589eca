"""Estimates how likely each piece of a prompt changes.

What a request says about its files and documents, and what earlier requests showed, come in; rates of change go out.
Each estimate starts from a prior and follows the client's own history. This package knows nothing of prices or orders.
"""
