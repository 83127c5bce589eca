"""``make drill``: what an operator fears is done to a running proxy, and the money is counted afterwards.

Everything is a real process: ``stratiform serve`` with its workers, a Redis, and a provider that writes down every call
that it served and what it cost (``upstream``). A drill breaks something while clients send requests (``clients``), and
then compares, call by call, what was served with what the ledger says and with what the budgets count (``money``).
``drills`` lists them all; each says what it did, which goal it has, and what it found.
"""
