"""Makes sample sessions for ``stratiform demo``, and sends them.

All content is made here, and it is always the same. ``source`` writes code. ``editor_chat``, ``tool_agent`` and
``support_chat`` are the clients, and ``samples`` lists their sessions. ``structured`` and ``panels`` make sessions that
are sent in several forms. ``sample`` sends a session through the real ``openai`` SDK. ``tally`` adds up its cost, and
the cost of the same requests under other policies, and checks that nothing was lost.
"""
