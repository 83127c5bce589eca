"""What clients, providers and models say: JSON, requests, answers, usage, caches, prices. Nothing is decided here."""
