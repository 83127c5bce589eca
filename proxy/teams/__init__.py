"""Says who a client is, controls what teams may spend, and records what they have spent.

A key, a principal, a deployment and an estimate come in. A reservation goes out, and at the end of the exchange one
entry goes to the ledger. A hard limit holds even when workers die. The operator chooses what happens while the store is
away.
"""
