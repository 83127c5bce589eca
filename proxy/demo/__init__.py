"""Makes sample sessions for ``stratiform demo``, and sends them.

All content is made here. ``source`` writes code and ``prose`` writes documents for the sessions, always the same
ones. ``editor_chat``, ``tool_agent``, ``clock_agent`` and ``support_chat`` are the clients, and ``samples`` lists their
sessions. ``client`` sends a session through the real ``openai`` SDK. ``cost_table`` adds up its cost, and the cost of
the same requests under other policies.
"""
