"""Coding sessions that follow a git history, in two forms: as an editor chat sends them, and as structured context.

A history comes in: the files of a package or of a repository, and commits. The same turns in several forms, and the
cost of each form, go out. Only the commits determine which files are selected in which turn, what the user asks for,
and what the model answers. Nothing is chosen to suit a form.
"""
