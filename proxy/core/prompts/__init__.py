"""Prompts of the operator: what comes in is a set of prompts, terms and a context; what comes out is the system text
and the texts around the newest user message. Nothing here reads files, compiles templates, or knows of upstreams.

Values: ``prompt``, ``position``, ``terms`` (what a request gets, and what its client asks for), ``context``,
``composition`` and ``inset`` (what comes out). Who gets what: ``rules`` and ``layers`` for the configuration,
``form`` for what a request says. Composing: ``selection`` chooses and orders, ``conditions`` (with ``equality`` and
``pattern``) and ``variables`` decide about single prompts, ``assembler`` puts them together; ``failures`` are its
errors. Caches: ``steadiness`` finds prompts that change within conversations, ``turn_texts`` decides whether texts of
earlier turns are sent again. For people: ``contradiction`` and ``volatile_content`` are what ``stratiform prompts
lint`` looks for.
"""
