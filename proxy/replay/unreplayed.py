"""What recorded requests say of prompts, of their context window and of their answer, which a replay passes over.

Which prompts are composed, and which window a request has, is up to the configuration of a proxy and to its prompts of
the moment. A recorded session knows neither.
"""

from dataclasses import replace

from proxy.core.request.parsed_body import parse_body
from proxy.core.structured.form.section import SECTION, section_of, split
from proxy.core.wire.json_body import Unreadable, splice
from proxy.errors import InvalidRequest
from proxy.replay.trace import Step, Trace


def without_prompts(trace: Trace) -> tuple[Trace, int]:
    """The session without what its requests say of prompts and of their context window, and how many say it. What
    cannot be read stays as it is."""
    steps = [_without(step) for step in trace.steps]
    changed = sum(new is not old for new, old in zip(steps, trace.steps, strict=True))
    return (replace(trace, steps=steps), changed) if changed else (trace, 0)


def _without(step: Step) -> Step:
    if SECTION.encode() not in step.body:
        return step
    try:
        sent = parse_body(step.body)
        raw = section_of(sent.members)
        section = split(raw) if raw is not None else None
    except (InvalidRequest, Unreadable):
        return step
    if section is None or not section.is_split:
        return step
    return replace(step, body=splice(sent.body, sent.members, {SECTION: section.rest}, sent.span))
