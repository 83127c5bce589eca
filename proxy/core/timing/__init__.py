"""Measures time where clocks cannot be trusted.

Readings of clocks come in; the time that budgets use goes out. This package reads no clock itself.
"""
