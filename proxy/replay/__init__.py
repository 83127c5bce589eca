"""Replays of recorded sessions: the same planner, a provider that really caches, virtual time, no network."""
