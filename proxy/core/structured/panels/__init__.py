"""Live panels: parts of the context that change on their own (a file, a tree, a list of tasks), shown to the model as
results of calls of one tool.

What comes in is the panels of a request, what the session remembers of them, and the conversation. What goes out is the
messages that show the panels, each with its place in the conversation, and a new memory. The package never fetches or
refreshes anything: the client does that, and sends each panel as it is now.
"""
