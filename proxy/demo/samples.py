"""All sample sessions."""

from proxy.demo.editor_chat import editor_chat
from proxy.demo.sample import Sample
from proxy.demo.support_chat import support_chat
from proxy.demo.tool_agent import clock_agent, tool_agent


def samples() -> list[Sample]:
    """One session of each kind of client."""
    return [editor_chat(), tool_agent(), clock_agent(), support_chat()]
