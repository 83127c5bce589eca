"""Decides about attempts: which deployment is called, whether another attempt follows, and when.

Outcomes of calls and the process's own time come in; decisions go out. This package calls nothing itself, and it never
asks for a second attempt once a byte has reached the client.
"""
