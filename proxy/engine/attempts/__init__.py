"""Chooses which deployments are called, and how often.

The input is a request and the deployments that may serve it. The output is the order in which they are called, the
waits between two attempts, and the body that is sent instead of a refused plan. Nothing here reads an answer.
"""
