"""The clients whose requests the table of decisions shows: each is drawn by its number, from the generators of sessions
that other tests have, and has habits of its own.

Times are round, so that a pause is also as long as an entry lives, to the second. Providers have a small minimum, so
that prompts of a few hundred tokens are now below it and now above.
"""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from proxy.kit.modes import Mode
from proxy.lab.demo import Sample
from proxy.planner.observation import Again
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import PROFILES, CacheProfile
from proxy.protocol.request import Inset
from proxy.protocol.request.reader import Route
from tests import append_only
from tests.changing import changing
from tests.economics import made
from tests.fidelity.chats import EDITABLE_ACK, MAP_ACK, MAP_OPENING, READ_ONLY_ACK, READ_ONLY_OPENING, File
from tests.golden.reports import FAULTS
from tests.signed_thinking import SignedForm, signed
from tests.talk import Body, assistant, calling, chat, file_text, lines, result, system, text_part, user

# The rules of the caches, with a minimum that short prompts reach.
PROVIDERS = (
    ("anthropic", 300), ("anthropic", 300), ("openai", 256), ("openai-explicit", 300), ("gemini", 300), ("none", 0),
    ("anthropic", 1024), ("deepseek", 128), ("kimi", 256), ("openrouter-anthropic", 200), ("qwen", 200),
)  # fmt: skip
SERVERS = {"openai": "openai", "openai-explicit": "openai", "kimi": "moonshot", "openrouter-anthropic": "openrouter"}
# Seconds between requests: within and beyond each life, at its very end, and for half a day.
RHYTHMS = (
    (10, 10, 30, 60), (10, 30, 299, 300, 301), (20, 240, 250, 400, 600), (60, 310, 900, 1800, 3599, 3600),
    (10, 20, 700, 4000), (1, 2, 5),
)  # fmt: skip
MEMORIES = (512 << 20, 512 << 20, 512 << 20, 2 << 20, 600_000)
FEW_BYTES = (150_000, 300_000, 600_000, 1_200_000)
# The files of an editor's chat, with the topics that they are about.
FILES = {
    "src/order.py": "taxes", "src/invoice.py": "taxes, letters", "src/letter.py": "letters",
    "src/stock.py": "archives, letters", "src/price.py": "archives",
}  # fmt: skip
# Members of requests, some of which render into the prompt of some providers.
SETTINGS: tuple[Body, ...] = (
    {}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"reasoning_effort": "high"}, {"temperature": 1},
    {"parallel_tool_calls": False}, {"prompt_cache_options": {"mode": "explicit"}}, {"thinking": {"type": "enabled"}},
    {"response_format": {"type": "json_object"}}, {"prompt_cache_options": {"mode": "explicit"}, "speed": "fast"},
)  # fmt: skip
TOPICS = ("taxes", "letters", "archives")
QUESTIONS = (
    "Change {}.", "Change {}.", "And now?", "What of taxes and letters?", "What of archives, in letters of {}?",
    " ".join(f"quoted{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(70)) + " and archives, and taxes?",
)  # fmt: skip
MODELS = ("claude-opus-4-5", "claude-haiku-4-5")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: so many seconds after the one before it, to this ``route`` of the client's, through this one of two
    processes. ``fate`` is what becomes of it: it may be refused, left without an answer, or end late, when the next one
    is on its way."""

    after_s: int
    body: Body
    route: int
    process: int
    fate: str


@dataclass(frozen=True, slots=True)
class Client:
    """A client and all that it meets: the rules of its provider, its mode, and what its provider does beside them."""

    number: int
    kind: str
    provider: CacheProfile
    mode: Mode
    policy: str
    fault: str
    memory_bytes: int
    options: PlannerOptions
    habits: Sequence[str]
    routes: Sequence[Route]
    requests: Sequence[Sent] = field(repr=False)


def clients(kind: str) -> Iterator[Client]:
    """The clients of a kind: one for the rules of each cache."""
    for at, (name, least) in enumerate(PROVIDERS):
        number = len(PROVIDERS) * list(_KINDS).index(kind) + at
        yield _client(number, kind, replace(PROFILES[name], min_tokens=least or PROFILES[name].min_tokens))


def _client(number: int, kind: str, provider: CacheProfile) -> Client:
    chance = Random(number)
    bodies = [copy.deepcopy(body) for body in _KINDS[kind](number, chance)]
    habits = [habit for habit in _HABITS if chance.random() < (0.3 if habit == "settings" else 0.15)]
    for habit in habits:
        bodies = list(_HABITS[habit](bodies, chance))
    options = PlannerOptions(
        holdout=chance.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.4)),
        steady_tools=chance.random() < 0.9,
        texts_again=chance.choice(list(Again)),
        prices_mark=chance.random() < 0.3,
    )
    return Client(
        number=number,
        kind=kind,
        provider=provider,
        mode=chance.choices(list(Mode), (1, 3, 6, 30))[0],
        policy=chance.choice(("economic", "economic", "economic", "classic")),
        fault=chance.choice((*FAULTS, *["moves notices"] * 8) if kind == "by itself" else FAULTS),
        memory_bytes=chance.choice(FEW_BYTES if kind == "many conversations" else MEMORIES),
        options=options,
        habits=habits,
        routes=_routes(provider, chance),
        requests=_sent(bodies, chance),
    )


def _routes(provider: CacheProfile, chance: Random) -> list[Route]:
    """Where its requests go: mostly to one deployment, sometimes to a second one or to another model."""
    inset = chance.choice((Inset(), Inset(), Inset(), Inset("Know this.\n" * 20), Inset(after="Answer briefly.")))
    hint = chance.choice(("", "", "", "conversation-1"))
    server = SERVERS.get(provider.name, "") if chance.random() < 0.8 else ""
    first = Route("team", "m", MODELS[0], provider, hint=hint, inset=inset, server=server, upstream="one")
    if chance.random() < 0.1:
        first = replace(first, moving={2: 0.5}, repeats=False)
    if inset and chance.random() < 0.5:
        # The operator's texts depend on the turn.
        return [first, replace(first, inset=chance.choice((Inset(), Inset(after="Answer at length. " * 9))))]
    other = chance.choice(
        (replace(first, upstream="two"), replace(first, model=MODELS[1]), replace(first, inset=Inset()))
    )
    return [first, other]


def _sent(bodies: Sequence[Body], chance: Random) -> list[Sent]:
    rhythm = chance.choice(RHYTHMS)
    has_two, is_shared = chance.random() < 0.35, chance.random() < 0.5
    fates = chance.choice((("done",), ("done",), ("done", "done", "done", "late", "late", "left", "refused", "empty")))
    bars = 0.05 if chance.random() < 0.2 else 0.0
    return [
        Sent(
            chance.choice(rhythm),
            body,
            int(has_two and chance.random() < 0.4),
            int(is_shared and chance.random() < 0.4),
            "barred" if chance.random() < bars else chance.choice(fates),
        )
        for body in bodies
    ]


def _of(sent: Sequence[append_only.Sent]) -> list[Body]:
    return [json.loads(one.body) for one in sent]


def _begins(sample: Callable[[], Sample], count: int) -> list[Body]:
    return [dict(request.body) for request in sample().requests[:count]]


def _edits_files(number: int, chance: Random) -> Iterator[Body]:
    """An editor's chat in aider's form: files that may be edited, files that are shown, and a map of the others. A
    question names a file or a topic, and its answer edits this file or another one."""
    editions = dict.fromkeys(FILES, 0)
    others = [File(f"src/part{at}.py", lines(6 + at % 5, f"part {at}")) for at in range(0 if number % 3 else 22)]
    turns: list[Body] = []
    fence = ("```", "```")
    for turn in range(14):
        files = [
            File(name, lines(8 + 7 * at, name) + f"about {FILES[name]}, edition {one}\n")
            for at, (name, one) in enumerate(editions.items())
        ]
        editable = [*files[: chance.choice((3, 3, 3, 4))], *others]
        if chance.random() < 0.15:
            fence = chance.choice((("```", "```"), ("~~~", "~~~")))
        context = [
            *([user(f"{MAP_OPENING}\nsrc/other.py: {turn // 5}"), assistant(MAP_ACK)] if turn % 7 else []),
            user(file_text(files[4:], READ_ONLY_OPENING, fence)), assistant(READ_ONLY_ACK),
            user(file_text(editable, fence=fence)), assistant(EDITABLE_ACK),
        ]  # fmt: skip
        named = chance.choice(list(editions))
        question = user(chance.choice(QUESTIONS).format(named))
        rules = system(f"You edit files between {fence[0]} and {fence[1]}.\n" + lines(9, "rule"))
        yield chat(rules, *turns, *context, question)
        edited = named if chance.random() < 0.6 else chance.choice(list(editions))
        turns += [question, assistant(f"{edited}\n{fence[0]}\nline {turn}\n{fence[1]}\n")]
        editions[edited] += chance.random() < 0.7


def _clears_results(_: int, chance: Random) -> Iterator[Body]:
    """An agent with tools whose instructions tell the time, seldom anew. It empties results that are older than the
    newest few, and calls several tools at once now and then."""
    messages: list[Body] = [user("Look for the mistake.")]
    keeps, called = chance.choice((2, 4)), 0
    for number in range(18):
        now = f"# Rules\n{lines(12, 'rule')}Current time: 2026-11-22 10:{number // 5:02}:05\n"
        results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
        old = set(results[:-keeps])
        shown = [{**message, "content": "[cleared]"} if at in old else message for at, message in enumerate(messages)]
        yield chat(system(now), *shown, tools=[_tool(one) for one in range(4)])
        if number % 6 == 5:
            messages += [assistant(f"Found it, {number}."), user(f"Now the next one, {number}.")]
            continue
        ids = [f"call{called + one}" for one in range(chance.choice((1, 1, 1, 3)))]
        called += len(ids)
        messages.append(calling(*ids, content=chance.choice((None, "I look."))))
        messages += [result(one, lines(chance.choice((2, 10, 40)), one)) for one in ids]


def _thinks_in_loops(_: int, chance: Random) -> Iterator[Body]:
    """An agent that is shown files anew with each question, and thinks between its calls. Its client keeps the signed
    thinking of the newest turn, or of every turn."""
    editions, turns = dict.fromkeys(("a.py", "b.py", "c.py"), 0), list[Body]()
    keeps_all, has_tools = chance.random() < 0.4, chance.random() < 0.5
    for number in range(5):
        files = [File(name, lines(14, name) + f"edition {one}\n") for name, one in editions.items()]
        context = [user(file_text(files)), assistant(EDITABLE_ACK)]
        loop: list[Body] = [user(f"Question {number}?")]
        for step in range(chance.choice((2, 3, 4))):
            tools = [_tool(one) for one in range(3)]
            chance.shuffle(tools)
            body = chat(system(lines(12, "rule")), *turns, *context, *loop, **({"tools": tools} if has_tools else {}))
            yield body
            thought = {"type": "thinking", "thinking": "Hm.", "signature": f"seal {number} {step}"}
            call = {**calling(f"call{number}{step}", content="I look."), "thinking_blocks": [thought]}
            loop += [call, result(f"call{number}{step}", lines(chance.choice((1, 6)), "found"))]
        kept = loop if keeps_all else [{k: v for k, v in one.items() if k != "thinking_blocks"} for one in loop]
        turns += [*(context if keeps_all else []), *kept, assistant(f"Done with {number}.")]
        editions[chance.choice(list(editions))] += 1


def _many_conversations(_: int, chance: Random) -> Iterator[Body]:
    """More conversations of one client than its memory may hold, each taken up again now and then."""
    turns = [[user(f"Topic {topic}: {lines(3 + topic % 5, 'fact')}")] for topic in range(14)]
    for number in range(42):
        talk = turns[chance.randrange(1 + number // 3)]
        yield chat(system(lines(12, "rule")), *talk)
        talk += [assistant(lines(2, f"answer {number}")), user(f"More of {number}?")]


_KINDS: dict[str, Callable[[int, Random], Iterable[Body]]] = {
    "context changes": lambda number, _: _of(changing(number, 14)),
    "grows": lambda number, _: _of(append_only.append_only(number)[:16]),
    "files change": lambda number, _: _of(changing(1000 + number, 12)),
    "pauses": lambda number, _: _of(append_only.with_pauses(number)),
    "state not kept": lambda number, _: _of(append_only.unkept(number)[:14]),
    "single requests": lambda number, _: _of(append_only.singles(number)),
    "by itself": lambda number, _: _of(append_only.by_itself(number)[:13]),
    "edits files": _edits_files,
    "clears results": _clears_results,
    "signed thinking": _thinks_in_loops,
    "many conversations": _many_conversations,
    "retrieval": lambda _, chance: _begins(chance.choice((made.handbook, made.chat_page)), 12),
    "an editor": lambda _, chance: _begins(chance.choice((made.notebook, made.stamped_files, made.pair)), 9),
}


def _copy(body: Body) -> Body:
    found: Body = json.loads(json.dumps(body))
    return found


def _with_clock(bodies: list[Body], chance: Random) -> Iterator[Body]:
    at_end, slow = chance.random() < 0.5, chance.choice((1, 1, 4))
    for number, body in enumerate(bodies):
        line = f"Current time: 2026-11-22 10:{number // slow:02}:05"
        yield _with_line(body, line, at_end=at_end)


def _with_line(body: Body, line: str, *, at_end: bool) -> Body:
    rules = "".join(f"- Rule {number}: mind the {number}th field, and say why.\n" for number in range(12))
    text = f"# Rules\n{rules}{line}\n" if at_end else f"{line}\n# Rules\n{rules}"
    return {**body, "messages": [{"role": "system", "content": text}, *body["messages"]]}


def _with_status(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """A line that changes, whose name nobody knows."""
    state = 0
    for body in bodies:
        state += chance.random() < 0.6
        yield _with_line(body, f"Branch: main, {state} files open", at_end=False)


def _retrieves(bodies: list[Body], chance: Random) -> Iterator[Body]:
    kept = chance.sample(range(9), 4)
    for body in bodies:
        if chance.random() < 0.5:
            kept[chance.randrange(4)] = chance.randrange(9)
        if chance.random() < 0.2:
            chance.shuffle(kept)
        texts = "".join(
            f'<document id="{one}">\n'
            + f"Fact {one} of {TOPICS[one % 3]} of the shop. " * (3 + one)
            + "\n</document>\n"
            for one in dict.fromkeys(kept)
        )
        text = f"You answer from documents.\n{texts}Say which document you used.\n"
        yield {**body, "messages": [{"role": "system", "content": text}, *body["messages"]]}


def _marks(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """The client's own markers: on its instructions, and on its newest message."""
    key = chance.choice(("cache_control", "cache_control", "prompt_cache_breakpoint"))
    life = chance.choice(({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}))
    for body in bodies:
        found = _copy(body)
        for place, value in ((0, life), (-1, {"type": "ephemeral"})):
            content = found["messages"][place].get("content")
            if isinstance(content, str) and chance.random() < 0.9:
                found["messages"][place]["content"] = [{"type": "text", "text": content, key: value}]
        if found.get("tools") and chance.random() < 0.5:
            found["tools"][-1][key] = life
        yield found


def _shuffles_tools(bodies: list[Body], chance: Random) -> Iterator[Body]:
    for body in bodies:
        found = _copy(body)
        found.setdefault("tools", [_tool(number) for number in range(5)])
        if chance.random() < 0.5:
            chance.shuffle(found["tools"])
        yield found


def _tool(number: int) -> Body:
    about = {"name": f"tool{number}", "description": f"Does thing {number}. " * 8, "parameters": {"type": "object"}}
    return {"type": "function", "function": about}


def _changes_settings(bodies: list[Body], chance: Random) -> Iterator[Body]:
    settings: Body = {}
    for body in bodies:
        if chance.random() < 0.4:
            settings = chance.choice(SETTINGS)
        yield {**body, **settings}


def _signs(bodies: list[Body], chance: Random) -> Iterator[Body]:
    form, one_of = chance.choice(list(SignedForm)), chance.choice((1, 2, 4))
    for body in bodies:
        yield signed(body, form, one_of)


def _in_parts(bodies: Sequence[Body], chance: Random) -> Iterator[Body]:
    """Texts are lists of parts: the instructions in two, of which the second one changes now and then."""
    edition = 0
    for body in bodies:
        edition += chance.random() < 0.4
        found = _copy(body)
        for message in found["messages"]:
            if message["role"] in ("system", "user") and isinstance(message["content"], str):
                message["content"] = [text_part(message["content"])]
        state = text_part(f"The state of now:\n{lines(4, 'state')}Current time: 2026-11-22 11:{edition:02}:00\n")
        found["messages"][:1] = [system([text_part(lines(11, "rule")), state]), found["messages"][0]]
        yield found


def _forks(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """Now and then another question is asked in the same place, in another branch or as a side call."""
    for body in bodies:
        yield body
        if chance.random() < 0.25:
            found = _copy(body)
            found["messages"][-1] = {"role": "user", "content": f"And if not? {chance.randrange(100)}"}
            if chance.random() < 0.3:
                found["messages"][0] = {"role": "system", "content": "Write a title of five words."}
            yield found


def _repeats(bodies: list[Body], chance: Random) -> Iterator[Body]:
    for body in bodies:
        yield body
        if chance.random() < 0.25:
            yield _copy(body)


def _shows_images(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """An image comes into the conversation after a while, and stays."""
    first = chance.randrange(1, 6)
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    for number, body in enumerate(bodies):
        found = _copy(body)
        if number >= first and isinstance(found["messages"][0].get("content"), str):
            seen = {"role": "user", "content": [{"type": "text", "text": "See this."}, image]}
            found["messages"].insert(1, seen)
        yield found


def _summarises(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """From some request on, the client's first turns are a summary."""
    since = chance.randrange(3, 9)
    for number, body in enumerate(bodies):
        found = _copy(body)
        if number >= since and len(found["messages"]) > 8:
            found["messages"][1:6] = [{"role": "user", "content": "Before: a talk about the shop."}]
        yield found


def _others_too(bodies: list[Body], chance: Random) -> Iterator[Body]:
    """Further conversations of the same client begin alike, and go on in turn."""
    openings = [body for body in bodies if len(body["messages"]) <= 4][:1] or bodies[:1]
    for number, body in enumerate(bodies):
        yield body
        if chance.random() < 0.4:
            found = _copy(chance.choice(openings))
            found["messages"].append({"role": "user", "content": f"Another matter, {number % 3}: how are you?"})
            yield found


_HABITS: dict[str, Callable[[list[Body], Random], Iterator[Body]]] = {
    "clock": _with_clock,
    "status line": _with_status,
    "documents": _retrieves,
    "tools in any order": _shuffles_tools,
    "settings": _changes_settings,
    "image": _shows_images,
    "summary": _summarises,
    "others too": _others_too,
    "texts in parts": _in_parts,
    "forks": _forks,
    "repeats": _repeats,
    "signed": _signs,
    "own markers": _marks,
}

KINDS = tuple(_KINDS)
