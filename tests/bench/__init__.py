"""``make bench``: what it costs to have the proxy in the path, side by side with a bare forwarder.

Processes: a provider that answers at once (``provider``), a bare Starlette + aiohttp forwarder (``bare``), the proxy in
mode ``passthrough``, the proxy in mode ``tier``; the load client runs in this process. Sessions grow as real ones do:
every request repeats the one before it and appends a turn (``bodies``). Rounds are interleaved over the targets, so
that a machine that gets slower meanwhile gets slower for all of them.
"""
