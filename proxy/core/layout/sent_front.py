"""The beginning of a request as it was laid out before: everything in front of signed thinking stays as it was sent."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_members

from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.layout.notices import wire_order
from proxy.core.layout.orders import RequestElements, request_elements
from proxy.core.layout.relocation import moved_elements, split_layout
from proxy.core.layout.render import render_messages
from proxy.core.providers import Dialect
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import Message
from proxy.core.request.tokens import TokenCounter
from proxy.core.request.transcript import Transcript
from proxy.core.request.view import recognise_request

_SEED = PrefixSettings(b"", b"")
_MOVED = frozenset({ElementKind.WHOLE, ElementKind.PART, ElementKind.LAST_PART, ElementKind.TAG})


def digests_on_wire(layout: Layout) -> tuple[bytes, ...]:
    """The digests of a layout's elements in the order of its messages."""
    return tuple(map(layout.digests.__getitem__, wire_order(layout.elements)))


def laid_out_again(
    messages: Sequence[Message],
    tools: Iterable[Element],
    digests: Sequence[bytes],
    counter: TokenCounter,
) -> tuple[Element, ...] | None:
    """The elements with these ``digests``, made from the ``messages`` and from one of the ``tools``; None if they
    cannot be made. For each message, every form that a layout may have given it is tried."""
    recognised = recognise_request(Transcript(messages), lambda *_: True, has_moved=True)
    elements = request_elements(recognised, (), counter)
    natural = Layout(_SEED, elements.natural)
    moved, split = moved_elements(recognised, elements, counter), split_layout(recognised, natural, counter)
    forms = [*tools, *recognised.transcript.elements, *elements.forms.by_digest.values()]
    forms += (*moved.preamble, *moved.documents.values(), *moved.tail) if moved is not None else ()
    by_digest: defaultdict[bytes, deque[Element]] = defaultdict(deque)
    for form in (*forms, *(split.elements if split is not None else ())):
        by_digest[form.digest].append(form)
    if not by_digest.keys() >= set(digests):
        return None
    # A text that was sent twice may be known only once, because equal digests mean equal bytes.
    return tuple(by_digest[one].popleft() if len(by_digest[one]) > 1 else by_digest[one][0] for one in digests)


def begun_with(elements: RequestElements, front: Sequence[Element], count: int, still: int) -> RequestElements:
    """The request with its first ``count`` messages laid out as the elements ``front``, which include the tools.
    Nothing moves in the first ``still`` messages."""
    tools = tuple(element for element in front if element.kind is ElementKind.TOOLS)
    # From now on a moved element counts as a turn like any other: it keeps its place as long as the conversation
    # continues.
    front = [
        with_members(e, key="turn", message=e.message if e.message >= 0 else count - 1) if e.kind in _MOVED else e
        for e in front
    ]
    turns, tail, natural, notices = (
        tuple(element for element in some if element.message >= count)
        for some in (elements.turns, elements.tail, elements.natural, elements.notices)
    )
    return replace(
        elements,
        tools=tools,
        preamble=tuple(front[len(tools) :]),
        turns=turns,
        tail=tail,
        natural=(*front, *natural),
        notices=notices,
        still=sum(turn.message < still for turn in turns),
    )


def written_front(front: Sequence[Element], messages: Sequence[Message]) -> list[bytes]:
    """These elements as messages. A message that is as it came keeps the client's own markers."""
    # Each message counts as unmarked here, so that its markers are not removed.
    return render_messages(Layout(_SEED, front), [with_members(m, has_marks=False) for m in messages], {}, Dialect.NONE)
