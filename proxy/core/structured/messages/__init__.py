"""The messages of a request: those of the client, the markers on them, and those that the proxy writes."""
