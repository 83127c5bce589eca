"""Fits a completion to a budget: its prompt is the text before a cursor, and its suffix is the text after it."""

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Raw

from proxy.core.reasons import Edit
from proxy.core.window.fitting import FittedMessages
from proxy.core.window.profile import CapabilityProfile
from proxy.core.window.shortening import Count, PartName, beside_conversation, head, tail
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.core.wire.surrogates import text_json
from proxy.errors import InvalidRequest

_TEXTS = {"prompt": PartName.PREFIX, "suffix": PartName.SUFFIX}
_NO_PROMPT = frozenset(
    {
        "best_of", "echo", "frequency_penalty", "ignore_eos", "logit_bias", "logprobs", "max_tokens", "metadata",
        "min_p", "min_tokens", "model", "n", "presence_penalty", "random_seed", "repetition_penalty", "seed", "stop",
        "stop_token_ids", "store", "stream", "stream_options", "temperature", "top_k", "top_p", "user",
    }
)  # fmt: skip
"""Members that the model never reads as a prompt."""


def fitted_completion(
    members: Mapping[str, Raw], profile: CapabilityProfile, prompt_tokens: int, count: Count
) -> FittedMessages:
    """The prompt and the suffix, shortened so that they fit. An unknown member counts one token for each byte. Raises
    InvalidRequest if the prompt is no text, because then it cannot be shortened."""
    texts = {name: _text(members.get(name)) for name in _TEXTS}
    besides = sum(len(raw) for name, raw in members.items() if name not in _NO_PROMPT | _TEXTS.keys())
    sizes, room = {_TEXTS[name]: count(text) for name, text in texts.items()}, prompt_tokens - besides
    sent, tokens, budget = texts, sum(sizes.values()), room
    while tokens > room >= 0 and any(sent.values()):
        kept, _ = beside_conversation(sizes, profile.caps, sum(sizes.values()) - budget)
        cuts = (("prompt", tail), ("suffix", head))
        # Single pieces may have no tokens. If there is no budget, nothing is kept, however few tokens they have.
        sent = {name: cut(texts[name], kept[_TEXTS[name]], count) if budget >= 0 else "" for name, cut in cuts}
        tokens = sum(map(count, sent.values()))
        # A whole text may have other tokens than its pieces, which were counted.
        budget -= room // 32 + 1
    changed = {name: text_json(text) for name, text in sent.items() if text != texts[name]}
    edits = {Edit.WINDOW_SHORTENED: len(changed)} if changed else {}
    told = {"extra": besides, "parts": tokens, "prompt": tokens + besides}
    return FittedMessages(None, told, edits, max(0, tokens - room), tokens + besides, changed)


def _text(raw: Raw | None) -> str:
    with suppress(Unreadable):
        found = text_value(raw) if raw is not None else None
        text = found[0] if isinstance(found, list) and len(found) == 1 else found or ""
        if isinstance(text, str):
            return text
    raise InvalidRequest(
        "the request has a budget for its context window, and only a 'prompt' that is one text can be kept within it",
        param="prompt",
        code="window_unavailable",
    )
