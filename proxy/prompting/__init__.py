"""The registry of prompts around the pure core: what comes in are folders, plugins and requests; what comes out are
composed requests. It reads files beside the event loop and never changes a snapshot that a request is using.
"""
