"""Prompts of the operator. A set of prompts, terms and a context come in; the system text and the texts around the
newest user message go out. Nothing here reads files, compiles templates, or knows about upstreams.

``prompt`` has the values of the registry, the errors, and the terms, which combine the levels of a configuration and
the wishes of a client. ``assembler`` reads these wishes, chooses and orders the prompts, evaluates their ``conditions``
in a context, and joins the texts into a composition. ``steadiness`` finds prompts that change within conversations,
decides whether texts of earlier turns are sent again, and has the checks of ``stratiform prompts lint``.
"""
