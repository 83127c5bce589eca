"""check(original, sent): does what the proxy forwards still say what the client said? Independent of the product."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .alignment import Alignment, Terms
from .composed import trimmed_forms, with_system
from .fields import check_fields, check_tools
from .history import History
from .insets import Texts, as_inlaid, texts_by_index
from .markers import MarkerTerms, check_markers, markers_of
from .view import same, views
from .violations import Report, Rule, Violation

__all__ = ["MODES", "PROFILES", "Rule", "Violation", "check", "replay_check"]

NONE_EARLIER: Mapping[int, Texts] = {}
MODES = ("passthrough", "observe", "mark", "tier")


@dataclass(frozen=True, slots=True)
class _Profile:
    """What may be added for one cache profile: the key of its markers, and top-level fields.

    ``parts_only``: markers are read on content parts alone, also within tool results. ``lives``: two lives are sold.
    ``answers``: a marker on the text of an assistant's message is read.
    """

    marker: str | None = None
    fields: tuple[str, ...] = ()
    parts_only: bool = False
    lives: bool = True
    answers: bool = False


_CLAUDE = _Profile(marker="cache_control", answers=True)
_KEYED = _Profile(fields=("prompt_cache_key",))
_STICKY = _Profile(fields=("session_id",))
_PLAIN = _Profile()


def _explicit(*keys: str) -> _Profile:
    return _Profile(marker="prompt_cache_breakpoint", fields=("prompt_cache_options", *keys), parts_only=True)


PROFILES: Mapping[str, _Profile] = {
    **dict.fromkeys(("anthropic", "bedrock", "vertex", "foundry"), _CLAUDE),
    "openrouter-anthropic": _Profile(marker="cache_control", fields=("session_id",), answers=True),
    "openai-explicit": _explicit(),
    "azure-explicit": _explicit("prompt_cache_key"),
    "openrouter-openai-explicit": _explicit("session_id"),
    **dict.fromkeys(("openai", "azure", "mistral", "kimi"), _KEYED),
    **dict.fromkeys(
        ("openrouter-openai", "openrouter-deepseek", "openrouter-gemini", "openrouter-xai"), _STICKY
    ),
    "qwen": _Profile(marker="cache_control", parts_only=True, lives=False),
    "minimax": _Profile(marker="cache_control", lives=False),
    **dict.fromkeys(
        (
            "deepseek", "gemini", "vertex-gemini", "xai", "groq", "glm", "qwen-implicit", "minimax-passive",
            "fireworks", "together", "vllm", "sglang", "none",
        ),
        _PLAIN,
    ),
}  # fmt: skip


def check(
    original: dict[str, Any],
    sent: dict[str, Any],
    *,
    mode: str,
    profile: str,
    reminder: str | None = None,
    inset: Texts | None = None,
    earlier: Mapping[int, Texts] = NONE_EARLIER,
    system: str = "",
    is_trimmed: bool = False,
    tools_seen_reordered: bool = False,
) -> list[Violation]:
    """All rules that ``sent`` breaks as the forwarded form of the client's body ``original``; empty if it is faithful.

    ``inset`` are the operator's texts that may stand in front of the last user message's own and behind it
    (``reminder``: behind it alone), ``earlier`` those around user messages in front of it, by their index.
    ``system`` is the operator's system text, which must stand in front of the client's. ``is_trimmed`` says that the
    oldest messages of the conversation may be left out. ``tools_seen_reordered`` says that this client was seen to send
    the same tools in another order or form. Neither body is changed.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}")
    whole, newest = with_system(original, system), inset or (("", reminder) if reminder else None)
    found: list[Violation] = []
    for form in trimmed_forms(whole, sent) if is_trimmed else [whole]:
        report, texts = Report(), texts_by_index(form, newest, earlier)
        if mode in ("passthrough", "observe"):
            _check_untouched(form, sent, report, texts)
        else:
            terms = Terms(mode == "tier", texts, PROFILES[profile].parts_only, PROFILES[profile].answers)
            _check_laid_out(form, sent, report, PROFILES[profile], terms, tools_seen_reordered)
        if not report.violations:
            return []
        found = found or report.violations
    return found


def replay_check(
    pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]], *, mode: str, profile: str, **leave: Any
) -> list[tuple[int, Violation]]:
    """``check`` over (original, sent) pairs in turn: each violation with the number of its pair, from 0.

    The pairs are all that was ever seen of their client: what moves because it changes must have changed among them.
    """
    history = History()
    found: list[tuple[int, Violation]] = []
    for number, (original, sent) in enumerate(pairs):
        before, after = views(original.get("messages")) or [], views(sent.get("messages")) or []
        history.add(before)
        found += [(number, violation) for violation in check(original, sent, mode=mode, profile=profile, **leave)]
        if static := history.static_lines(before, after):
            said = f"{static} lines moved that were never seen to change"
            found.append((number, Violation(Rule.STATIC, "messages", said)))
    return found


def _check_untouched(
    original: dict[str, Any], sent: dict[str, Any], report: Report, texts: Mapping[int, Texts]
) -> None:
    """Equal but for the edits that rule 6 allows in every mode, and the operator's texts."""
    check_fields(original, sent, report, ())
    if texts:
        original = as_inlaid(original, sent, texts)
    for name in ("messages", "tools"):
        if (name in original) != (name in sent) or not same(original.get(name), sent.get(name)):
            report.add(Rule.MODE, name, "changed in a mode that forwards the request as it came")


def _check_laid_out(
    original: dict[str, Any],
    sent: dict[str, Any],
    report: Report,
    profile: _Profile,
    terms: Terms,
    tools_seen_reordered: bool,
) -> None:
    check_fields(original, sent, report, profile.fields)
    moved_tools = check_tools(original, sent, report, reorder=terms.movable and tools_seen_reordered)
    before, after = views(original.get("messages")), views(sent.get("messages"))
    if before is None or after is None:
        # Not a list of messages: nobody can lay that out, so it has to be what it was.
        if not same(original.get("messages"), sent.get("messages")):
            report.add(Rule.ALTERED, "messages", "changed although they are no list of messages")
        return
    walk = Alignment(before, after, terms, report)
    walk.run()
    own, placed = markers_of(original, before), markers_of(sent, after, walk.origin, walk.fronts)
    tools = sent.get("tools")
    last_tool = len(tools) - 1 if isinstance(tools, list) else -1
    kept = MarkerTerms(
        profile.marker,
        keep_all=not terms.movable,
        keep_on_tools=moved_tools,
        parts_only=profile.parts_only,
        lives=profile.lives,
        answers=profile.answers,
    )
    check_markers(own, placed, last_tool, kept, report)
