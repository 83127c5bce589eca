"""The contents of a chat request without structured context: its pieces, each in the tier that the tracker gives it.

Tools and system texts stand in L0, in front of everything. The conversation is in the active tier. The planner's
breakpoints belong to no tier, because a marker may stand within the conversation: they are reported separately.
"""

from itertools import chain
from operator import attrgetter

from msgspec.structs import replace

from proxy.core.layout.inventory import Inventory, ListedItem, ListedSection
from proxy.core.layout.tiers import CACHED, Tier
from proxy.core.planner.in_flight import InFlight
from proxy.core.providers import Family
from proxy.core.recognition.pieces import PieceKind


def inventory_of(in_flight: InFlight) -> Inventory:
    """The items of a request, each with its current N. Words around the context count as part of the files."""
    analysis, recognised = in_flight.analysis, in_flight.analysis.recognised
    elements, tracker = analysis.elements, analysis.session.tracker
    # A document's share of the message's tokens is its share of the message's characters.
    documents = {
        one.key: message.tokens * len(one.text) // max(1, len(message.text or ""))
        for system in recognised.system
        for message in (recognised.messages[system.message],)
        for one in system.documents
    }
    sizes = {**elements.sizes, **documents}
    head = [ListedItem("system:tools", sum(one.tokens for one in elements.tools))] if elements.tools else []
    head += [ListedItem(f"system:{place}", one.tokens) for place, one in enumerate(elements.preamble)]
    if documents:
        # The documents stand in the last system text, and are listed as items of their own.
        head[-1] = replace(head[-1], tokens=head[-1].tokens - sum(documents.values()))
    sections = [ListedSection(Tier.L0, "system", 0, tuple(head))]
    pieces: dict[tuple[Tier, str], list[ListedItem]] = {}
    for piece in recognised.items():
        place = (tracker.tier(piece.key), "symbols" if piece.kind is PieceKind.SYMBOL else "files")
        pieces.setdefault(place, []).append(ListedItem(piece.key, sizes.get(piece.key, 0), tracker.n(piece.key)))
    sections += [ListedSection(*place, 0, tuple(items)) for place, items in sorted(pieces.items())]
    turns = sum(turn.tokens for turn in chain(elements.turns, elements.notices))
    last = ListedItem("prompt", sum(turn.tokens for turn in elements.tail))
    around = analysis.own.natural.total - turns - last.tokens - sum(section.tokens for section in sections)
    if pieces and around > 0:
        sections.append(ListedSection(Tier.ACTIVE, "files", around))
    sections.append(ListedSection(Tier.ACTIVE, "history", 0, (ListedItem("history", turns),) if turns else ()))
    sections.append(ListedSection(Tier.ACTIVE, "prompt", 0, (last,)))
    standing = tuple(sorted((one for one in sections if one.items or one.words), key=attrgetter("tier")))
    filled = {section.tier for section in standing}
    return Inventory(standing, empty_tiers=sum(tier not in filled for tier in CACHED))


def breakpoints(in_flight: InFlight, *, is_planned: bool) -> list[tuple[int, float]]:
    """The places up to which the prompt that was sent may be read next time, in tokens, and for how many seconds each.
    They are its markers, or the boundary that the provider sets itself. ``is_planned``: the plan was sent, and not the
    client's own request."""
    accepted, analysis = in_flight.accepted, in_flight.analysis
    if accepted is None:
        return []
    prompt, profile = accepted.prompt if is_planned else analysis.own.prompt, analysis.profile
    if prompt.total < profile.min_tokens or profile.family is Family.NONE:
        return []
    if prompt.marks:
        lives = {"5m": profile.life_s, "1h": profile.long_life_s or profile.life_s}
        return [(prompt.ends[place], lives[life]) for place, life in sorted(prompt.marks.items())]
    if profile.family is Family.MARKER and not prompt.endings:
        return []
    return [(prompt.ends[prompt.endings[-1]] if prompt.endings else prompt.total, profile.life_s)]
