"""Walks the sent messages beside the client's and finds for each where it came from, or why it may not be there.

The client's messages are split into *fixed* ones, which must come in order, and *groups* (context messages with their
acknowledgement), which may stand elsewhere before the last user message and may be taken apart.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import words
from .contexts import Group, context_groups, header_of
from .holders import Holders
from .insets import Texts, fronts_of
from .systems import glued, wholly_moved, with_documents_moved, without_lines
from .tags import extra_tags
from .view import MARKER_KEYS, Key, View, parts_of
from .violations import Report, Rule, difference


@dataclass(frozen=True, slots=True)
class Terms:
    """What this request allows: moves, the operator's texts by the index of their user message, a tool's text turned
    into a list of one part, and the text of an answer likewise, where that carries a marker."""

    movable: bool
    texts: Mapping[int, Texts]
    tool_text_to_parts: bool
    marks_answers: bool = False


def last_user_index(messages: Sequence[View]) -> int:
    """The index of the last user message, or the number of messages where there is none."""
    return next((m.index for m in reversed(messages) if m.role == "user" and not m.has_results), len(messages))


def _is_one_part(fixed: View, message: View) -> bool:
    """Whether the string of a message became the one part of a list."""
    same = (fixed.role, fixed.rest) == (message.role, message.rest) and not fixed.is_list and message.is_list
    return same and fixed.texts is not None and fixed.texts == message.texts


class Alignment:
    """One walk. After ``run``, ``origin`` maps the index of a sent message to the client's message it is, and
    ``fronts`` to the operator's text in front of the client's."""

    def __init__(self, original: list[View], sent: list[View], terms: Terms, report: Report) -> None:
        self.original, self.sent, self.terms, self.report = original, sent, terms, report
        self.origin: dict[int, int] = {}
        self.fronts: dict[int, str] = {}
        self.last_user = last_user_index(original)
        groups = context_groups(original, self.last_user)
        self.cuttable = {group.message.index for group in groups}
        self.groups = groups if terms.movable else []
        inside = {i for g in self.groups for i in (g.message.index, g.acknowledgement.index)}
        self.fixed = [message for message in original if message.index not in inside]
        self.homes = self._homes(inside)
        self.pivot = next((i for i, m in enumerate(self.fixed) if m.index == self.last_user), len(self.fixed))
        self.leading = next((i for i, m in enumerate(self.fixed) if not m.is_system), len(self.fixed))
        self.next_fixed = 0
        self.skipped: dict[Key, list[int]] = defaultdict(list)
        self.out_of_turn: set[int] = set()
        self.tag = extra_tags(original, sent)
        self.used_lines = {0}
        self.tag_waits_at: str | None = None
        self.places_sent: dict[Key, list[int]] = defaultdict(list)
        self.places_fixed: dict[Key, list[int]] = defaultdict(list)
        self.holders = Holders(self.groups)

    def _homes(self, inside: set[int]) -> set[int]:
        """Places between fixed messages where the client itself put a group."""
        homes, at = set(), 0
        for message in self.original:
            if message.index in inside:
                homes.add(at)
            else:
                at += 1
        return homes

    def run(self) -> None:
        """Aligns everything and reports what does not fit."""
        self._check_tag_count()
        for index, message in enumerate(self.sent):
            self.places_sent[message.key].append(index)
        for index, message in enumerate(self.fixed):
            self.places_fixed[message.key].append(index)
        at = 0
        while at < len(self.sent):
            at += self._step(self.sent[at], self.sent[at + 1] if at + 1 < len(self.sent) else None)
        self._check_ending()
        self._check_tool_pairs()

    # One step: how many sent messages it used up (none where only the client's side moved on).

    def _step(self, message: View, following: View | None) -> int:
        self._skip_what_came_early()
        if not message.is_system and self._system_is_gone(before=message):
            return 0
        if self._whole_group(message, following):
            return 2
        if self._is_next_fixed(message, following):
            return 1
        if self._system_is_gone(before=message):
            return 0
        if self._is_tag(message, following):
            return 1
        used = self._part(message, following) or self._active_part(message, following)
        return used or self._mismatch(message, following)

    def _skip_what_came_early(self) -> None:
        while self.next_fixed in self.out_of_turn:
            self.next_fixed += 1

    @property
    def _expected(self) -> View | None:
        return self.fixed[self.next_fixed] if self.next_fixed < len(self.fixed) else None

    def _take_fixed(self, message: View, fixed: View) -> None:
        self.origin[message.index] = fixed.index
        if self.tag_waits_at is not None and self.next_fixed != self.pivot:
            self._tag_is_misplaced(self.tag_waits_at)
        self.tag_waits_at = None
        self.next_fixed += 1

    # Fixed messages.

    def _is_next_fixed(self, message: View, following: View | None) -> bool:
        fixed = self._expected
        if fixed is None:
            return False
        return (
            self._equal(fixed, message)
            or self._with_lines_taken(fixed, message)
            or self._with_documents_moved(fixed, message)
            or self._with_text_part(fixed, message)
            or self._last_user(fixed, message)
            or self._earlier_user(fixed, message)
            or self._with_tag_behind(fixed, message, following)
        )

    def _equal(self, fixed: View, message: View) -> bool:
        if fixed.key != message.key:
            return False
        self._check_cuts(fixed, message)
        self._take_fixed(message, fixed)
        return True

    def _check_cuts(self, original: View, message: View) -> None:
        if original.texts is None or message.texts is None:
            return
        if original.is_list and not message.is_list:
            self.report.add(Rule.FORM, message.path, "a list of parts became a string")
        if original.is_system or original.index in self.cuttable:
            if not original.cuts <= message.cuts:
                self.report.add(Rule.SPLIT, message.path, "parts of the client's were joined")
            if message.blanks > original.blanks:
                self.report.add(Rule.SPLIT, message.path, "a cut left a part of nothing but white space")
        elif original.texts != message.texts:
            self.report.add(Rule.SPLIT, message.path, "a conversation turn was cut into other parts")

    def _with_lines_taken(self, fixed: View, message: View) -> bool:
        if not fixed.is_system or not self.tag.lines:
            return False
        reached = without_lines(fixed, message, self.tag.lines, self.used_lines)
        if not reached:
            return False
        if message.blanks > fixed.blanks:
            self.report.add(Rule.SPLIT, message.path, "taking lines out left a part of nothing but white space")
        self._check_lines(fixed, message)
        self.used_lines = reached
        self._take_fixed(message, fixed)
        return True

    def _with_documents_moved(self, fixed: View, message: View) -> bool:
        """Documents inside the last leading system message, behind the rest of it."""
        if not fixed.is_system or not self.terms.movable:
            return False
        reached = with_documents_moved(fixed, message, self.tag.lines, self.used_lines)
        if not reached:
            return False
        if self.next_fixed != self.leading - 1 or self.pivot == len(self.fixed):
            self.report.add(
                Rule.DOCUMENTS, message.path, "documents moved inside a system message that does not end the head"
            )
        if message.blanks > fixed.blanks:
            self.report.add(Rule.SPLIT, message.path, "moving documents left a part of nothing but white space")
        self._check_lines(fixed, message)
        self.used_lines = reached
        self._take_fixed(message, fixed)
        return True

    def _check_lines(self, original: View, message: View) -> None:
        if count := glued(original, message, self.tag.lines):
            self.report.add(Rule.GLUED, message.path, f"{count} lines are made of several that stood apart")

    def _system_is_gone(self, before: View | None = None) -> bool:
        """Whether the next system message was taken out whole: it does not come later, and the tag has its lines."""
        fixed = self._expected
        if fixed is None or not fixed.is_system or not self.tag.lines:
            return False
        if before is not None:
            # Equal ones count: of two, one may have gone while the other comes later.
            to_come = sum(1 for place in self.places_sent[fixed.key] if place > before.index)
            wanted = sum(1 for place in self.places_fixed[fixed.key] if place >= self.next_fixed)
            if to_come >= wanted:
                return False
        reached = wholly_moved(fixed, self.tag.lines, self.used_lines)
        if reached:
            self.used_lines = reached
            self.next_fixed += 1
        return bool(reached)

    def _with_text_part(self, fixed: View, message: View) -> bool:
        """The text of a tool, or of an answer with a marker, as one part: the only form in which some dialects can mark
        it."""
        may = self.terms.tool_text_to_parts and fixed.role == "tool"
        if not (may and _is_one_part(fixed, message)) and not self._is_marked_answer(fixed, message):
            return False
        self._take_fixed(message, fixed)
        return True

    def _last_user(self, fixed: View, message: View) -> bool:
        """The last user message with the tag as its first part, or with the operator's texts around it."""
        if fixed.index != self.last_user or message.role != "user" or message.rest != fixed.rest:
            return False
        before, after = parts_of(fixed.raw.get("content")), parts_of(message.raw.get("content"))
        if before is None or after is None:
            return False
        tagged = len(after) > 1 and self.tag.is_ours(after[0])
        if tagged:
            after = after[1:]
        if not self._has_texts(fixed, message, before, after):
            return False
        if tagged and self.tag_waits_at is not None:
            self._tag_is_misplaced(message.path)
        self._take_fixed(message, fixed)
        return True

    def _earlier_user(self, fixed: View, message: View) -> bool:
        """A user message in front of the last one, with the operator's texts that were sent with it before."""
        if fixed.role != "user" or message.role != "user" or message.rest != fixed.rest:
            return False
        before, after = parts_of(fixed.raw.get("content")), parts_of(message.raw.get("content"))
        if before is None or after is None or not self._has_texts(fixed, message, before, after):
            return False
        self._take_fixed(message, fixed)
        return True

    def _has_texts(self, fixed: View, message: View, before: list[Any], after: list[Any]) -> bool:
        """Whether the operator's texts are all that was added to a user message."""
        found = fronts_of(before, after, self.terms.texts.get(fixed.index))
        if found is None:
            return False
        if fixed.is_list and not message.is_list:
            self.report.add(Rule.FORM, message.path, "a list of parts became a string")
        self.fronts[message.index] = found[0]
        return True

    def _with_tag_behind(self, fixed: View, message: View, following: View | None) -> bool:
        """A user turn directly before the last user message, with the tag as a part of its own at its end."""
        if fixed.role != "user" or message.role != "user" or following is None or fixed.rest != message.rest:
            return False
        before, after = parts_of(fixed.raw.get("content")), parts_of(message.raw.get("content"))
        if before is None or not after or not self.tag.is_ours(after[-1]):
            return False
        if fronts_of(before, after[:-1], self.terms.texts.get(fixed.index)) is None:
            return False
        self._take_fixed(message, fixed)
        self._tag_found(message.path)
        return True

    def _is_marked_answer(self, fixed: View, message: View) -> bool:
        """Whether an answer became a part so that it can carry a marker."""
        may = self.terms.marks_answers and fixed.role == "assistant" and _is_one_part(fixed, message)
        return may and any(key in message.raw["content"][0] for key in MARKER_KEYS)

    # The tag.

    def _check_tag_count(self) -> None:
        if self.tag.count > 1:
            self.report.add(Rule.TAG, self.tag.path, f"the tag stands {self.tag.count} times")
        if self.tag.count and not self.terms.movable:
            self.report.add(Rule.MODE, self.tag.path, "lines were relocated in a mode that keeps the order")

    def _is_tag(self, message: View, following: View | None) -> bool:
        if not self.tag.is_whole(message):
            return False
        ends = following is None and self.next_fixed == len(self.fixed)
        if ends and self.original and self.original[-1].has_results:
            return True
        self._tag_found(message.path)
        return True

    def _tag_found(self, path: str) -> None:
        """It must be followed by the last user message: seen when the next message is taken."""
        if self.next_fixed != self.pivot:
            self._tag_is_misplaced(path)
        else:
            self.tag_waits_at = path

    def _tag_is_misplaced(self, path: str) -> None:
        said = "the tag stands neither directly before the last user message nor behind the newest tool results"
        self.report.add(Rule.TAG, path, said)
        self.tag_waits_at = None

    # Context messages.

    def _whole_group(self, message: View, following: View | None) -> bool:
        if following is None:
            return False
        for group in self.groups:
            ack = group.acknowledgement
            same = ack.key == following.key or self._is_marked_answer(ack, following)
            if group.met or group.parts or not same or group.message.key != message.key:
                continue
            group.met, group.remaining = True, set()
            self._check_cuts(group.message, message)
            self._check_place(message)
            self.origin[message.index] = group.message.index
            self.origin[following.index] = group.acknowledgement.index
            return True
        return False

    def _part(self, message: View, following: View | None) -> int:
        """A part of a context message under one of our headers."""
        header = header_of(message.joined) if message.role == "user" and message.texts else None
        if header is None:
            return 0
        found = self.holders.of_part(message, header)
        if found is None:
            return 0
        group, entries = found
        if header not in group.claims:
            self.report.add(Rule.CLAIM, message.path, f"files of {group.path} under the header for {header}")
        if group.met:
            self.report.add(Rule.OPENING, message.path, f"a part of {group.path} behind the one with its opening")
        self._use(group, entries, message, header)
        self._check_lines(group.message, replace(message, joined=message.joined.removeprefix(words.HEADERS[header])))
        group.parts += 1
        acknowledged = following is not None and following.role == "assistant" and following.rest == "{}"
        if acknowledged and following is not None and following.texts == (words.ACKNOWLEDGEMENT,):
            return 2
        self.report.add(Rule.ACKNOWLEDGEMENT, message.path, 'a part is not followed by an assistant message "Ok."')
        return 1

    def _use(self, group: Group, entries: list[int], message: View, header: str = "") -> None:
        twice = sum(1 for entry in entries if entry not in group.remaining and not self.holders.hand_on(group, entry))
        if twice:
            self.report.add(Rule.ADDED, message.path, f"{twice} files of {group.path} a second time")
        if message.rest != "{}":
            self.report.add(Rule.ADDED, message.path, "a part carries keys beside role and content")
        if message.blanks:
            self.report.add(Rule.SPLIT, message.path, "a part holds nothing but white space")
        self.holders.use(group, entries, message, header)
        self._check_place(message)

    def _active_part(self, message: View, following: View | None) -> int:
        """The last part: the client's opening, what was not moved out, and the client's own acknowledgement."""
        if message.role != "user" or message.texts is None:
            return 0
        found = self.holders.of_opening(message)
        if found is None:
            return 0
        group, entries = found
        group.met, group.met_at = True, message.index
        self._use(group, entries, message)
        self._check_lines(group.message, message)
        if following is not None and following.key == group.acknowledgement.key:
            self.origin[following.index] = group.acknowledgement.index
            return 2
        self.report.add(Rule.OPENING, message.path, f"{group.path} is not followed by the client's acknowledgement")
        return 1

    def _check_place(self, message: View) -> None:
        """Where a context message may stand among the fixed ones."""
        at = self.next_fixed
        if self.tag_waits_at is not None:
            self._tag_is_misplaced(self.tag_waits_at)
        if at > self.pivot:
            self.report.add(Rule.TAIL, message.path, "a context message behind the last user message")
        elif at not in self.homes and at < len(self.fixed):
            after, before = self.fixed[at], self.fixed[at - 1] if at else None
            if at < self.leading:
                self.report.add(Rule.SYSTEM_FIRST, message.path, "a context message before a leading system message")
            elif after.has_results:
                self.report.add(Rule.TOOL_PAIR, message.path, "a context message between a call and its results")
            elif after.role == "assistant" and before is not None and before.role == "user":
                self.report.add(Rule.EXCHANGE, message.path, "a context message between a turn and its answer")

    # What fits nowhere.

    def _mismatch(self, message: View, following: View | None) -> int:
        fixed = self._expected
        behind = self.next_fixed > self.pivot
        if self.skipped[message.key]:
            self.origin[message.index] = self.skipped[message.key].pop(0)
            rule = Rule.TAIL if behind else Rule.ORDER
            self.report.add(rule, message.path, "this turn stood further up in the client's request")
            return 1
        ahead = self._later(self.places_fixed[message.key], self.next_fixed, self.out_of_turn)
        if fixed is None:
            return self._unknown(message, following, behind)
        still_to_come = self._later(self.places_sent[fixed.key], message.index, set())
        if ahead is not None and (still_to_come is None or ahead - self.next_fixed <= still_to_come - message.index):
            self._leave_out(fixed, still_to_come is None)
            return 0
        if ahead is not None:
            self.origin[message.index] = self.fixed[ahead].index
            self.out_of_turn.add(ahead)
            self.report.add(Rule.ORDER, message.path, "this turn stood further down in the client's request")
            return 1
        if still_to_come is not None or fixed.role != message.role:
            return self._unknown(message, following, behind)
        self._altered(fixed, message)
        return 1

    @staticmethod
    def _later(places: list[int], than: int, without: set[int]) -> int | None:
        return next((place for place in places if place > than and place not in without), None)

    def _leave_out(self, fixed: View, gone: bool) -> None:
        if gone:
            self.report.add(Rule.LOST, "original " + fixed.path, f"the {fixed.role} message is missing")
        else:
            self.skipped[fixed.key].append(fixed.index)
        self.next_fixed += 1

    def _unknown(self, message: View, following: View | None, behind: bool) -> int:
        group = self._resembling(message)
        if group is not None:
            group.met, group.remaining = True, set()
            said = difference(group.message.joined, message.joined)
            self.report.add(Rule.ALTERED, message.path, f"not what {group.path} says: {said}")
            return 2 if following is not None and following.key == group.acknowledgement.key else 1
        if self._is_stray_acknowledgement(message):
            self.report.add(Rule.OPENING, message.path, "an acknowledgement away from its context message")
            return 1
        rule = Rule.TAIL if behind else Rule.ADDED
        self.report.add(rule, message.path, f"a {message.role} message that the client did not send here")
        return 1

    def _resembling(self, message: View) -> Group | None:
        """The open context message that this one begins like."""
        for group in self.groups:
            opening = group.entries.opening if group.entries else group.message.joined[:40]
            if not group.met and message.role == "user" and message.joined.startswith(opening):
                return group
        return None

    def _is_stray_acknowledgement(self, message: View) -> bool:
        return any(group.acknowledgement.key == message.key for group in self.groups)

    def _altered(self, fixed: View, message: View) -> None:
        """Same place, same role, other content: says what differs."""
        where = message.path
        self.origin[message.index] = fixed.index
        if fixed.rest != message.rest:
            self.report.add(Rule.ALTERED, where, f"keys of the {fixed.role} message beside its content differ")
        elif fixed.texts is not None and fixed.texts == message.texts:
            self.report.add(Rule.FORM, where, f"the content of a {fixed.role} message changed between string and list")
        elif fixed.texts is not None and message.texts is not None:
            said = difference(fixed.joined, message.joined)
            self.report.add(Rule.ALTERED, where, f"the text of a {fixed.role} message differs: {said}")
        else:
            self.report.add(Rule.ALTERED, where, f"the content of a {fixed.role} message differs")
        self._take_fixed(message, fixed)

    # At the end.

    def _check_ending(self) -> None:
        self._skip_what_came_early()
        while (fixed := self._expected) is not None:
            if not self._system_is_gone():
                self.report.add(Rule.LOST, "original " + fixed.path, f"the {fixed.role} message is missing")
                self.next_fixed += 1
            self._skip_what_came_early()
        for index in [index for places in self.skipped.values() for index in places]:
            self.report.add(Rule.LOST, f"original messages[{index}]", "the message is missing")
        for group in self.groups:
            self._check_group(group)
        if self.tag_waits_at is not None:
            self._tag_is_misplaced(self.tag_waits_at)
        if not self.tag.is_used_up(self.used_lines):
            said = "the tag holds lines that were not taken out of a system message"
            self.report.add(Rule.ADDED, self.tag.path, said)

    def _check_group(self, group: Group) -> None:
        if not group.met and group.parts:
            self.report.add(Rule.OPENING, group.path, "taken apart, and its opening text is nowhere")
        elif not group.met:
            self.report.add(Rule.LOST, group.path, "the context message is missing")
        elif group.remaining:
            self.report.add(Rule.LOST, group.path, f"{len(group.remaining)} of its files are missing")

    def _check_tool_pairs(self) -> None:
        """Each tool result must stand in the run of results behind the same message as in the client's request."""
        for message in self.sent:
            index = self.origin.get(message.index)
            if not message.has_results or index is None or not self.original[index].has_results:
                continue
            caller, was = _caller(self.sent, message.index), _caller(self.original, index)
            if (None if caller is None else self.origin.get(caller, -1)) != was:
                self.report.add(Rule.TOOL_PAIR, message.path, "a tool result no longer stands behind its call")


def _caller(messages: Sequence[View], index: int) -> int | None:
    """The message that the run of tool results around ``index`` follows."""
    return next((i for i in range(index - 1, -1, -1) if not messages[i].has_results), None)
