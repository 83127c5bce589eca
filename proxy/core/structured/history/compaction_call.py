"""The body of the call that asks a model for the summary of a conversation."""

import orjson

from proxy.core.structured.history.compaction_question import CompactionQuestion
from proxy.core.wire.json_body import Members, join_members

_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_KEPT = ("provider", "inference_geo", "user", "safety_identifier", "guardrailConfig", "guardrails")
"""Members by which a client says who may read its prompt, where, and on whose behalf: they hold for this call, too."""


def call_body(sent: Members, model: str, question: CompactionQuestion, profile_name: str) -> bytes:
    """The call, without tools, stream and markers. ``sent`` are the members of the client's last request."""
    # OpenAI's reasoning models refuse the old name; most other servers know no other.
    is_new = _NEW_LIMIT in sent or profile_name.startswith(("openai", "azure"))
    return join_members(
        {name: sent[name] for name in _KEPT if name in sent},
        {
            "model": orjson.dumps(model),
            "messages": question.messages,
            _NEW_LIMIT if is_new else _LIMIT: b"%d" % question.output_tokens,
        },
    )
