"""What teams may spend, and what they have spent.

A subject, a deployment and an estimate come in; a reservation goes out, and at the end of the exchange one entry in the
ledger. A hard limit holds also when workers die; what happens while the store is away is the operator's choice.
"""
