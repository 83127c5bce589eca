"""Measures time where clocks cannot be trusted.

Readings of clocks come in; the time that budgets go by, and the time that an event loop has attended, go out. This
package reads no clock itself.
"""
