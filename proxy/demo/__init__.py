"""Sample sessions for ``stratiform demo``, made here, and what it takes to send them.

Nothing comes from outside: ``source`` writes the code and ``prose`` the documents that the sessions are about,
deterministically; ``chat_editor``, ``tool_agent``, ``clock_agent`` and ``support_chat`` are the clients, ``samples``
lists their sessions. ``client`` sends one through the real ``openai`` SDK, ``tally`` adds up what it came to, beside
the same requests under other policies.
"""
