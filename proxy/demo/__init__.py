"""Makes sample sessions for ``stratiform demo``, and sends them.

All content is made here, and it is always the same. ``chats`` and ``tool_agent`` are the clients, and ``tool_agent``
writes the code that they see. ``structured`` and ``panels`` make sessions that are sent in several forms. ``sample``
sends a session through the real ``openai`` SDK, adds up its cost, and the cost of the same requests under other
policies, and checks that nothing was lost.
"""
