"""What the planner knows to do, and how each of these features is switched off: each must earn what it costs to keep.

``make ablate`` replays every session without each of them. A feature stands here with a session that is always at hand
and on which it changes what is sent; one that changes nothing anywhere is taken out of the code.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.patching import replaced


@dataclass(frozen=True)
class Feature:
    """``where`` is a module and a name in it, ``becomes`` makes what stands there instead. ``shown_by`` are a session
    and the cache rules under which the feature changes what is sent."""

    name: str
    where: str
    becomes: Callable[[Any], Any]
    shown_by: tuple[str, str]


def always(value: object) -> Callable[[Any], Any]:
    """A function that answers this, whatever it is asked."""
    return lambda old: lambda *_, **__: value


def constant(value: object) -> Callable[[Any], Any]:
    """This value."""
    return lambda old: value


def _unaware(old: Any) -> Any:
    """Hazards of instructions that do not see what has just changed."""
    return lambda self, place, prior, **_: old(self, place, prior)


FEATURES = (
    Feature("volatile lines and documents are relocated", "proxy.planner.orders:moved_elements", always(None),
            ("demo-clock", "anthropic")),
    Feature("what prompts say of files", "proxy.planner.change_rates:read_signs", always({}),
            ("demo-editor", "anthropic")),
    Feature("the answer before names a file", "proxy.planner.change_rates:_answer", always(""),
            ("made-notebook", "deepseek")),
    Feature("a file's name stands in the prompt without its ending", "proxy.planner.change_rates:_HINTED",
            constant(0.0), ("made-pair", "anthropic")),
    Feature("words that a prompt shares with a file", "proxy.planner.change_rates:FileWords.shares",
            always({}), ("made-pair", "anthropic")),
    Feature("an answer edits few files", "proxy.planner.forecast:_edit_scale", always(1.0),
            ("demo-editor", "anthropic")),
    Feature("long files are several positions", "proxy.protocol.request.transcript:span_ends", always(()),
            ("demo-editor", "deepseek")),
    Feature("two orders by size", "proxy.planner.forecast:_MARKED", lambda old: old[:1],
            ("demo-editor", "anthropic")),
    Feature("orders that were sent before", "proxy.planner.candidates:_prefixes", always([]),
            ("demo-editor", "anthropic")),
    Feature("orders of other sessions of the client", "proxy.planner.session:SessionCohort.laid_out",
            always(None), ("made-handbook", "openai-explicit")),
    Feature("files that are only written another way", "proxy.planner.observation:_are_all_changed",
            always(False), ("made-pair", "anthropic")),
    Feature("documents: learning how long they stay",
            "proxy.planner.change_rates:DocumentOdds.learn", always(None),
            ("demo-support", "anthropic")),
    Feature("instructions that have just changed", "proxy.planner.volatile_lines:PreambleChanges.hazard",
            _unaware, ("made-pair", "anthropic")),
    Feature("volatile lines found by evidence", "proxy.planner.session:seen_volatile",
            lambda old: lambda transcript, regions: transcript, ("made-chat-page", "anthropic")),
    Feature("the system text is split", "proxy.planner.orders:split_layout", always(None),
            ("made-triage-mark", "anthropic")),
    Feature("context in a shape that no recogniser vouches for",
            "proxy.planner.session:Session.notice", always(None), ("made-notebook", "anthropic")),
    Feature("instructions that are alike", "proxy.planner.volatile_lines:are_alike", always(False),
            ("made-chat-page", "anthropic")),
    Feature("clients that never ask a second question", "proxy.planner.session:SessionCohort.is_one_shot",
            constant(False), ("made-summaries", "openai-explicit")),
    Feature("files that a client shows last", "proxy.planner.forecast:_rendered_last", always(frozenset()),
            ("made-readers-mark", "anthropic")),
    Feature("results that a client clears", "proxy.planner.change_rates:_is_clearing", always(False),
            ("made-forgetful", "anthropic")),
    Feature("an operator's texts are sent again with their turns", "proxy.planner.observation:applies_again",
            always(False), ("demo-agent-reminded", "anthropic")),
    Feature("the one-hour life", "proxy.planner.forecast:outlook", always(None), ("made-forgetful", "anthropic")),
    Feature("pauses promise more than they keep", "proxy.planner.forecast:_CAUTION", constant(1.0),
            ("made-forgetful", "anthropic")),
    Feature("panels stand where the conversation stood when they changed",
            "proxy.services.context_assembler:ContextAssembler._ordered",
            lambda old: lambda self, chat, *args, is_chronological: chat if is_chronological
            else old(self, chat, *args, is_chronological=False), ("made-panels", "anthropic")),
    Feature("panels behind the first change move to the end with it",
            "proxy.context.panels.board:first_broken", always(None), ("made-panels", "anthropic")),
    Feature("panels in front of much that is written anew move with it",
            "proxy.context.panels.board:taken_along", always(()), ("made-panels", "anthropic")),
    Feature("small panels that change often stand last in each request",
            "proxy.context.panels.board:in_tail", always(frozenset()), ("made-panels-agent", "anthropic")),
    Feature("the planner knows where panels stand", "proxy.services.context_assembler:moving", always({}),
            ("made-panels", "anthropic")),
    Feature("realised regret is bounded", "proxy.planner.shadow:ShadowCaches.regret_budget", always(inf),
            ("made-chat-page-forgotten", "anthropic")),
)  # fmt: skip


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch these features off for a while, in this process."""
    with ExitStack() as stack:
        for feature in (one for one in FEATURES if one.name in names):
            stack.enter_context(replaced(feature.where, feature.becomes))
        yield
