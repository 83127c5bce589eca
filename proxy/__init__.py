"""Stratiform: a transparent proxy that lays LLM prompts out in stability tiers, so that provider prompt caches hit.

The life of a request, and where each step lives:

    admit ─ recognise ─ track ─ plan ─ render ─ forward ─ stream back ─ settle (exactly once)

``proxy.protocol`` and ``proxy.planner`` are pure: values in, values out; no clock, no I/O, no litellm. ``proxy.engine``
takes an exchange through the steps. It depends on ports, not on Starlette. ``proxy.app.web``, ``proxy.upstream`` and
``proxy.storage`` are the thin rim. Recognisers for single clients are plugins (top-level ``plugins``). They use the
same hooks as third-party plugins.
"""

__version__ = "0.1.0"
