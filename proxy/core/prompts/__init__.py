"""Prompts of the operator: what comes in is a set of prompts and a context; what comes out is the system text and the
texts around the newest user message. Nothing here reads files, renders templates by itself, or knows of requests.
"""
