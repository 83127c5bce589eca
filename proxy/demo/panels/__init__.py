"""Coding sessions with live panels: the same turns as plain messages, as unsorted context messages, and as panels.

A panel is a view of the user's project that the client keeps up to date: the tree of files, a file, the state of the
repository, a console. The client sends all of its panels with every request, because the model shall see them as they
are now. What changes in which turn follows from a fixed seed, and is not chosen to suit a form.
"""
