"""Prompts of the operator: a set of prompts, terms and a context come in; the system text and the texts around the
newest user message go out. Nothing here reads files, compiles templates, or knows of upstreams.

``prompt`` has the values of the registry, and the errors. ``terms`` puts the levels of a configuration and the wishes
of a client on top of each other; ``form`` reads these wishes. ``assembler`` chooses and orders the prompts, asks their
``conditions`` in a ``context``, and puts the texts together to a ``composition``. ``steadiness`` finds prompts that
change within conversations, and ``turn_texts`` decides whether texts of earlier turns are sent again. ``contradiction``
and ``volatile_content`` are what ``stratiform prompts lint`` looks for.
"""
