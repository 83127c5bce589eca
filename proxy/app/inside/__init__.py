"""Stratiform inside a LiteLLM proxy: a callback that lays each chat request out before LiteLLM sends it.

LiteLLM does everything else: keys, budgets, routing, retries, translation. For each attempt it gives the callback the
request and the deployment that is really called, and sends the request that the callback returns. The usage of an
answer comes back by another hook, and the usage of a stream by a third one. The callback raises no error into LiteLLM,
changes none of its objects, and stands down in doubt: then the request is sent as it came.

    callback.py        Callback: LiteLLM's hooks, contained; the planner, the store and the metrics, built by the first
                       request; the ledger. Work: one attempt, from its plan to its settlement; attempts under way,
                       bounded in number, bytes and time; how much of the process's time planning may take
    incoming.py        a request read from LiteLLM's arguments: its sender, its body, its deployment; a plan as
                       LiteLLM's arguments; data that is read from LiteLLM itself, and the metrics that it serves

``plugins/litellm_hook.py`` is the entry that LiteLLM loads. Nothing here imports an HTTP server or client.
"""

from proxy.app.inside.callback import Callback, Work
from proxy.app.inside.incoming import Host

__all__ = ["Callback", "Host", "Work"]
