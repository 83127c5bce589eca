"""Chooses which deployments are asked, and how often.

A request and the deployments that may serve it come in. The order in which they are asked, the waits between two
attempts and what is sent instead of a plan that was refused go out. Nothing here reads an answer.
"""
