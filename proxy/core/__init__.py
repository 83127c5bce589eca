"""The pure core: no asyncio, no clock, no logging, no environment, no I/O, no litellm."""
