"""Structured context for tests: short ways to describe what a client has, and to read the assembled messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson

from proxy.app.factories import load_assembly_texts
from proxy.context import ContextFile, Conversation, StructuredContext
from proxy.context.assembly import MOST_MARKS, front_of, tiered_assembly, untiered_assembly
from proxy.context.blocks import (
    Assembly,
    Circumstances,
    ContextItem,
    file_block,
    inventory_of,
    shown,
)
from proxy.context.panels.board import NO_INLAY, Inlay
from proxy.context.placement import FILE, SYMBOL, ContextTracker, TierItems, TierPlacement
from proxy.kit.value import digest
from proxy.planner.tiers import HISTORY, Tier, Tracked
from proxy.protocol.providers import Dialect
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire.json_body import utf8
from tests.talk import Body, assistant, system, user

TEXTS = load_assembly_texts()
MAP, MORE_MAP = TEXTS.repository_map, TEXTS.repository_map_continued


def a_file(path: str, text: str | None = "x = 1\n", *, is_selected: bool = True) -> ContextFile:
    """A file. No assembly uses its digest."""
    return ContextFile(path, text, "0" * 64, is_selected)


def fenced(path: str, text: str = "x = 1\n") -> str:
    """The sent form of a file without backticks, written independently of the product."""
    return f"{path}\n```\n{text}\n```"


def conversation_of(*messages: Body) -> Conversation:
    """A conversation with these messages."""
    return Conversation.of([orjson.dumps(message) for message in messages])


def exchanges(count: int) -> list[Body]:
    """``count`` questions with their answers."""
    return [message for n in range(count) for message in (user(f"q{n}"), assistant(f"a{n}"))]


def talk_of(count: int = 0, prompt: str = "now?") -> Conversation:
    """A system prompt, ``count`` exchanges, and a prompt."""
    return conversation_of(system("Be kind."), *exchanges(count), user(prompt))


def placed(unmarked: Iterable[Tier] = (), counts: Mapping[str, int] | None = None, **tiers: TierItems) -> TierPlacement:
    """A placement of the named tiers, which are ``L0`` to ``L3`` and ``ACTIVE``."""
    return TierPlacement({tier: tiers.get(tier.name, TierItems()) for tier in Tier}, frozenset(unmarked), counts or {})


def tiered(
    context: StructuredContext,
    conversation: Conversation,
    placement: TierPlacement,
    dialect: Dialect = Dialect.CACHE_CONTROL,
    *,
    slots: int = MOST_MARKS,
) -> Assembly:
    """The tiered assembly, if a tracker has the items of the ``placement`` in its tiers. The tracker decides where all
    other items of the request stand."""
    tracker = ContextTracker(TokenCounter())
    tracker.is_initialised = True
    turns = [
        Tracked(f"{HISTORY}{index}", turn.digest, 1, turn.has_results)
        for index, turn in enumerate(conversation.history)
    ]
    digests = {turn.key: turn.digest for turn in turns}
    digests |= {FILE + file.path: digest(utf8(file_block(file.path, file.text or ""))) for file in context.files}
    digests |= {SYMBOL + path: digest(utf8(block)) for path, block in context.symbols.items()}
    for tier, items in sorted(placement.tiers.items()):
        keys = [f"{HISTORY}{index}" for index in items.history]
        keys += [FILE + path for path in items.files] + [SYMBOL + path for path in items.symbols]
        for key in keys:
            if key not in tracker.items:
                tracker.seed(Tracked(key, digests.get(key, b"gone"), 1), tier)
    tiers = tracker.placement(context, turns).tiers
    return tiered_assembly(context, conversation, replace(placement, tiers=tiers), TEXTS, dialect, slots=slots)


def sent(assembly: Assembly) -> list[Any]:
    """The messages, read from the sent JSON."""
    found: list[Any] = orjson.loads(assembly.body())
    return found


def text_in(message: Mapping[str, Any]) -> str:
    """All text of a message, whether its content is a string or a list."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def flat_assembly(context: StructuredContext, conversation: Conversation, inlay: Inlay = NO_INLAY) -> Assembly:
    """The flat assembly of a request."""
    return untiered_assembly(front_of(context, conversation.system, TEXTS), conversation, inlay, context.images)


def items_of(assembly: Assembly) -> list[tuple[Tier, ContextItem]]:
    """Every item with its tier, in sending order."""
    return [(block.tier, item) for block in assembly.blocks for part in block.sections for item in part.items]


def texts_in(assembly: Assembly) -> Sequence[str]:
    """The texts of all messages."""
    return [text_in(message) for message in sent(assembly)]


def breakdown(
    assembly: Assembly, counter: TokenCounter, about: Circumstances, counts: Mapping[str, int] = MappingProxyType({})
) -> dict[str, object]:
    """The breakdown of an assembled request; ``counts`` is N by key."""
    return shown(inventory_of(assembly, counter, counts), about)
