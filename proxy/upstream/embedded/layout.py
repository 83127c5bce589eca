"""Blocks to positions: the order, the seeds between sections, and what each provider keeps apart.

Anthropic ("What invalidates the cache", prompt caching page, 2026-08-21): tools, then system, then messages; web
search, speed and the output format break system and messages; tool_choice, parallel tool use, images anywhere, thinking
and effort break the messages. OpenAI ("Prompt caching", 2026-09-20): model, tools, response format, reasoning effort,
verbosity, parallel_tool_calls, service tier and prompt_cache_key; tool_choice keeps the prefix. DeepSeek: ``user_id``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from proxy.core.digest import chain, digest
from proxy.core.profiles import CacheProfile
from proxy.core.prompt import Life, Prompt
from proxy.upstream.embedded.blocks import Block, BlockKind, dumps, refuse
from proxy.upstream.embedded.marks import MarkStyle, cache_control, mark_style
from proxy.upstream.embedded.request import ChatRequest
from proxy.upstream.embedded.turns import Turn

_START = digest(b"prompt")
_RUN_KINDS = frozenset({BlockKind.CALL, BlockKind.RESULT})

_SYSTEM_SETTINGS = ("web_search_options", "speed", "response_format", "output_format")
_MESSAGE_SETTINGS = ("tool_choice", "parallel_tool_calls", "thinking", "reasoning_effort", "output_config")
_OPENAI_SETTINGS = (
    "prompt_cache_key", "response_format", "reasoning_effort", "verbosity", "parallel_tool_calls", "service_tier",
)  # fmt: skip
# An explicit default is the same as none.
_DEFAULTS: Mapping[str, object] = {
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "thinking": {"type": "disabled"},
    "service_tier": "auto",
}

# The guide's candidates for GPT-5.6 and newer: the first 2 and latest 50 explicit breakpoints, and in implicit mode up
# to 20 earlier message endings.
_FIRST_BREAKPOINTS = 2
_LATEST_BREAKPOINTS = 50
_ENDINGS = 20


def lay_out(request: ChatRequest, profile: CacheProfile, account: str) -> Prompt:
    """The prompt as the provider's cache sees it. Raises UpstreamRejected for marker options that it refuses."""
    style = mark_style(profile)
    settings = request.settings
    scope = [account.encode(), request.model.encode()]
    system_seed = message_seed = b""
    if style is MarkStyle.CACHE_CONTROL:
        system_seed = _seed(settings, _SYSTEM_SETTINGS)
        message_seed = digest(_seed(settings, _MESSAGE_SETTINGS), b"image" if request.has_image else b"")
    elif style is MarkStyle.IGNORED:
        scope.append(str(settings.get("user_id")).encode())
    else:
        scope.append(_seed(settings, _OPENAI_SETTINGS))
    sections = (
        (b"", request.tools),
        (system_seed, _blocks(request.turns[: request.head])),
        (message_seed, _blocks(request.turns[request.head :])),
    )
    prompt = _positions(sections, digest(*scope))
    if style is MarkStyle.CACHE_CONTROL:
        return _with_automatic(prompt, sections, settings)
    return _candidates(prompt, request) if style is MarkStyle.BREAKPOINT else prompt


def extend(prompt: Prompt, turn: Turn) -> bytes:
    """The digest of the prompt with one more turn behind it: what the next request's prefix will be."""
    state = prompt.hashes[-1] if prompt.hashes else _START
    for block in turn.blocks:
        for cut in block.cuts or (block.digest,):
            state = chain(state, cut)
    return state


def _seed(settings: Mapping[str, Any], names: Sequence[str]) -> bytes:
    known = {name: settings[name] for name in names if settings.get(name) is not None}
    changed = {name: value for name, value in known.items() if value != _DEFAULTS.get(name)}
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
    """Anthropic's automatic caching: a top-level marker stands on the last block that may carry one."""
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


def _candidates(prompt: Prompt, request: ChatRequest) -> Prompt:
    """Only the boundaries that GPT-5.6 and newer look at, and in implicit mode its own one at the latest message."""
    options = request.settings.get("prompt_cache_options") or {}
    if not isinstance(options, Mapping) or options.get("mode", "implicit") not in ("implicit", "explicit"):
        raise refuse("Invalid 'prompt_cache_options.mode'.", "prompt_cache_options.mode", "invalid_value")
    if options.get("ttl", "30m") != "30m":
        raise refuse("Invalid 'prompt_cache_options.ttl'.", "prompt_cache_options.ttl", "invalid_value")
    explicit = sorted(prompt.marks)
    kept = {*explicit[:_FIRST_BREAKPOINTS], *explicit[-_LATEST_BREAKPOINTS:], len(prompt.hashes) - 1}
    marks = dict(prompt.marks)
    if options.get("mode", "implicit") == "implicit":
        endings, head_end = _endings(request)
        kept.update(endings[-_ENDINGS - 1 :], head_end)
        marks.update(dict.fromkeys(endings[-1:], "5m"))
    return _only(prompt, sorted(position for position in kept if position >= 0), marks)


def _endings(request: ChatRequest) -> tuple[list[int], list[int]]:
    """Where eligible messages end: users', the last tool output of a group, the last message of the developer head."""
    endings: list[int] = []
    head_end: list[int] = []
    position = len(request.tools) - 1
    for i, turn in enumerate(request.turns):
        position += len(turn.blocks)
        following = request.turns[i + 1].role if i + 1 < len(request.turns) else ""
        if turn.role == "user" or (turn.role == "tool" and following != "tool"):
            endings.append(position)
        if i == request.head - 1:
            head_end.append(position)
    return endings or head_end, head_end


def _only(prompt: Prompt, kept: Sequence[int], marks: Mapping[int, Life]) -> Prompt:
    """The prompt with these positions alone; digests are chained, so the rest stays in them."""
    return Prompt(
        scope=prompt.scope,
        hashes=tuple(prompt.hashes[i] for i in kept),
        ends=tuple(prompt.ends[i] for i in kept),
        runs=tuple(range(len(kept))),
        marks={new: marks[old] for new, old in enumerate(kept) if old in marks},
    )
