"""Requests as a provider's cache sees them: the positions of blocks, their order, the seeds between sections, and the
values by which each provider separates caches.

The order is tools, then system, then messages. The profile (``CacheProfile.breaking``) says which request members stand
before which section: a change of such a member breaks the cache for everything after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from proxy.core.caches import validate
from proxy.core.caches.prompt import Life, Prompt
from proxy.core.digest import chain, digest
from proxy.core.providers import DEFAULTS, CacheProfile
from proxy.core.request.tokens import Encode
from proxy.upstream.embedded.blocks import Block, BlockKind, BlockMaker, cache_control, dumps, named_life, refuse
from proxy.upstream.embedded.request import ChatRequest, read_chat
from proxy.upstream.embedded.turns import KNOWN_TURNS, SYSTEM_ROLES, Turn, TurnReader

_START = digest(b"prompt")
_RUN_KINDS = frozenset({BlockKind.CALL, BlockKind.RESULT})


def lay_out(request: ChatRequest, profile: CacheProfile, account: str) -> Prompt:
    """The prompt as the provider's cache sees it. Raises UpstreamRejected for marker options that the provider
    refuses."""
    request = _hoisted(request) if profile.hoists_system else request
    breaking, settings = profile.breaking, request.settings
    scope = _scope(request, profile, account)
    image = b"image" if breaking.images and any(turn.has_image for turn in request.turns) else b""
    sections = (
        (b"", request.tools),
        (_seed(settings, breaking.before_system), _blocks(request.turns[: request.head])),
        (digest(_seed(settings, breaking.before_messages), image), _blocks(request.turns[request.head :])),
    )
    prompt = _positions(sections, scope)
    if profile.body_mark:
        prompt = _with_automatic(prompt, sections, settings)
    options = settings.get("prompt_cache_options")
    if not profile.implicit_marks and (not profile.meters_writes or options is None):
        return prompt
    mode, life = _read_options(options, profile)
    if not profile.implicit_marks:
        # Kimi has one TTL for the whole prompt, as if a marker stood at its end.
        return replace(prompt, marks={len(prompt.hashes) - 1: life}) if prompt.hashes else prompt
    if mode == "explicit":
        return prompt
    # In implicit mode, the provider sets a boundary itself, and looks up the ends of earlier messages.
    endings, head_end = _endings(request)
    return replace(prompt, endings=tuple(endings), head_end=head_end)


def _hoisted(request: ChatRequest) -> ChatRequest:
    """The request with all system messages before the conversation. The system messages keep their order."""
    front = tuple(turn for turn in request.turns if turn.role in SYSTEM_ROLES)
    others = tuple(turn for turn in request.turns if turn.role not in SYSTEM_ROLES)
    return replace(request, turns=front + others, head=len(front))


def extend(prompt: Prompt, turn: Turn) -> bytes:
    """The digest of the prompt followed by one more turn, which will be a prefix of the next request."""
    state = prompt.hashes[-1] if prompt.hashes else _START
    for block in turn.blocks:
        for cut in block.cuts or (block.digest,):
            state = chain(state, cut)
    return state


def _scope(request: ChatRequest, profile: CacheProfile, account: str) -> bytes:
    """The digest of all values that separate the provider's caches from the first token on. Empty if it caches
    nothing."""
    routing, settings = profile.routing, request.settings
    if profile.key_required and routing is not None and not settings.get(routing.name):
        return b""
    parts = [account.encode(), request.model.encode(), _seed(settings, profile.breaking.before_tools)]
    if profile.stores > 1:
        parts.append(b"%d" % (int.from_bytes(digest(request.opening)) % profile.stores))
    return digest(*parts)


def _seed(settings: Mapping[str, Any], names: Sequence[str]) -> bytes:
    known = {name: settings[name] for name in names if settings.get(name) is not None}
    changed = {name: value for name, value in known.items() if value != DEFAULTS.get(name)}
    return digest(dumps(changed, orjson.OPT_SORT_KEYS))


def _blocks(turns: Sequence[Turn]) -> tuple[Block, ...]:
    return tuple(block for turn in turns for block in turn.blocks)


def _positions(sections: Sequence[tuple[bytes, Sequence[Block]]], scope: bytes) -> Prompt:
    hashes: list[bytes] = []
    ends: list[int] = []
    runs: list[int] = []
    marks: dict[int, Life] = {}
    state, total, run, previous = _START, 0, -1, None
    for seed, blocks in sections:
        state = chain(state, seed)
        for block in blocks:
            if block.kind not in _RUN_KINDS or block.kind is not previous:
                run += 1
            previous = block.kind
            cuts = block.cuts or (block.digest,)
            for i, cut in enumerate(cuts, 1):
                state = chain(state, cut)
                hashes.append(state)
                ends.append(total + block.tokens * i // len(cuts))
                runs.append(run)
            total += block.tokens
            if block.mark is not None:
                marks[len(hashes) - 1] = block.mark
    return Prompt(scope, tuple(hashes), tuple(ends), tuple(runs), marks)


def _with_automatic(
    prompt: Prompt, sections: Sequence[tuple[bytes, Sequence[Block]]], settings: Mapping[str, Any]
) -> Prompt:
    """The prompt with Anthropic's automatic caching: a top-level marker counts for the last block that may have a
    marker."""
    life = cache_control(settings, "")
    if life is None:
        return prompt
    blocks = [block for _, section in sections for block in section]
    eligible = [i for i, block in enumerate(blocks) if block.kind is not BlockKind.THINKING and not block.is_empty]
    if not eligible:
        return prompt
    last = eligible[-1]
    explicit = prompt.marks.get(last)
    if explicit is not None and explicit != life:
        raise refuse("cache_control: the last block is already marked with another ttl", "cache_control")
    return replace(prompt, marks={**prompt.marks, last: life})


def _read_options(options: object, profile: CacheProfile) -> tuple[str, Life]:
    """The mode and the TTL in ``prompt_cache_options``, as the provider would accept them."""
    given = {} if options is None else options
    mode = given.get("mode", "implicit") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or mode not in ("implicit", "explicit"):
        raise refuse("Invalid 'prompt_cache_options.mode'.", "prompt_cache_options.mode", "invalid_value")
    return mode, named_life(given, "prompt_cache_options", profile)


def _endings(request: ChatRequest) -> tuple[list[int], int]:
    """The positions at which eligible messages end, and the end of the opening instructions.

    Messages of users and the last tool output of a group are eligible. If there are none, the end of the opening
    instructions is used instead.
    """
    endings: list[int] = []
    head_end = -1
    position = len(request.tools) - 1
    for i, turn in enumerate(request.turns):
        position += len(turn.blocks)
        if position < 0:
            continue  # an empty message at the very beginning has no end position
        following = request.turns[i + 1].role if i + 1 < len(request.turns) else ""
        if turn.role == "user" or (turn.role == "tool" and following != "tool"):
            endings.append(position)
        if i == request.head - 1:
            head_end = position
    return endings or [position for position in (head_end,) if position >= 0], head_end


# A long replay needs twenty thousand turns and two hundred thousand entries.
ENTRIES_A_TURN = 10


class PromptReader:
    """Reads bodies for one provider. It reads each distinct message once."""

    def __init__(self, profile: CacheProfile, encode: Encode, remembered: int = KNOWN_TURNS) -> None:
        self.profile = profile
        self.maker = BlockMaker(encode, cuts=profile.stores_prefixes, remembered=ENTRIES_A_TURN * remembered)
        self.turns = TurnReader(self.maker, profile, remembered=remembered)

    def request(self, body: bytes) -> ChatRequest:
        """The parsed body. Raises UpstreamRejected if the provider would refuse it."""
        return read_chat(body, self.turns)

    def laid_out(self, request: ChatRequest, account: str) -> Prompt:
        """The request's positions and markers. Raises UpstreamRejected if the provider would refuse them."""
        prompt = lay_out(request, self.profile, account)
        if (complaint := validate(prompt, self.profile)) is not None:
            raise refuse(complaint, "messages")
        return prompt

    def prompt(self, body: bytes) -> Prompt:
        """The body's positions and markers, if only one account is billed. Raises UpstreamRejected."""
        return self.laid_out(self.request(body), "")
