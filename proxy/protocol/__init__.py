"""Reads what clients, providers and models say: JSON, requests, answers, usage, cache facts. Nothing is decided
here."""
