"""Decides what is sent, and says what it costs.

Values come in and values go out. This package never reads a clock, an environment or a file, never logs, and knows no
event loop, no framework and no litellm. ``README.md`` explains how the planner decides.
"""
