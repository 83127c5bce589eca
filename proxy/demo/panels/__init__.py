"""Coding sessions with live panels: the same turns as plain messages, as unsorted context messages, and as panels.

A panel is a view of the user's project that the client keeps up to date: the tree of files, a file, the state of the
repository, a console. The client sends all of its panels with every request, because the model shall see their current
state. A fixed seed determines the changes of each turn; they are not chosen to suit a form.
"""
