"""The prompt texts that Stratiform ships, as package data: read them with ``importlib.resources.files("prompts")``."""
