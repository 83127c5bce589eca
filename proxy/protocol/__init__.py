"""What clients, providers and models say: JSON, requests, answers, usage, caches and prices. Nothing is decided here."""
