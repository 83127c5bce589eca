"""Live panels: parts of the context that change on their own (a file, a tree, a list of tasks), shown to the model as
results of calls of one tool.

The input is the panels of a request, what the session remembers of them, and the conversation. The output is the
messages that show the panels, each with its place in the conversation, and a new memory. The package never fetches or
refreshes anything: the client does that, and sends each panel as it is now.

The modules work in this order. ``panel`` is one panel, with what its kind says about its changes, how far the client's
conversation has come, and which panels move to its end. ``board`` is the memory. It makes the board of a request from
the board of the request before, decides which panels stand last in each request, and adds up what each panel has cost
once the request has counted. ``inlay`` makes blocks of the panels in one of the two orders, and tells the planner how
likely each panel is to leave its place.
"""
