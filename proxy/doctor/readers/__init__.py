"""Reads logs of model calls, record by record. The content of a record tells which product has written it."""
