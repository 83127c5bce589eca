"""Stratiform inside a LiteLLM proxy: a callback that lays each chat request out before LiteLLM sends it.

LiteLLM keeps everything else: keys, budgets, routing, retries, translation. For each attempt it shows the callback the
request and the deployment that is really called, and takes another request in its place. What the answer used comes
back by another hook, and a stream's by a third one. The callback raises nothing into LiteLLM, changes none of its
objects, and stands down where it is in doubt: the request then goes as it came.

    callback.py        Callback: LiteLLM's hooks, contained; the planner, the store and the metrics, built by the first
                       request; the ledger
    work.py            Work: one attempt, from its plan to its settlement
    incoming.py        what LiteLLM's arguments say of a request: its sender, its body, its deployment
    rewriting.py       a plan as arguments for LiteLLM
    attempts.py        attempts that are under way, bounded in number, bytes and time
    share_of_time.py   how much of the process's time planning may take
    host.py            what is read of LiteLLM itself, and the metrics that it serves

``plugins/litellm_hook.py`` is the entry that LiteLLM loads. Nothing here imports a server or a client of HTTP.
"""

from proxy.inside.callback import Callback
from proxy.inside.host import Host
from proxy.inside.work import Work

__all__ = ["Callback", "Host", "Work"]
