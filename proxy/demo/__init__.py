"""Sample sessions for ``stratiform demo``, made here, and what it takes to send them.

Nothing comes from outside. ``source`` writes code and ``prose`` writes documents for the sessions, always the same
ones. ``editor_chat``, ``tool_agent``, ``clock_agent`` and ``support_chat`` are the clients, and ``samples`` lists their
sessions. ``client`` sends a session through the real ``openai`` SDK, and ``cost_table`` adds up its cost beside the
cost of the same requests under other policies.
"""
