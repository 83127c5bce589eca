"""Sessions that are written here, for what no recorded client does: realistic clients, none tuned to the planner.

Each client is written as its author would write it, by chance with a fixed seed where people would choose, and is not
changed where the planner does badly on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from proxy.lab.demo import BEGIN, DemoRequest, Message, Sample, assistant, chat, system, user
from proxy.lab.demo.chats import document, prompt, shown
from proxy.lab.demo.panels import Pace, PanelForm, sendings, turns
from proxy.lab.demo.tool_agent import (
    NOUNS,
    SOURCE,
    SourceFile,
    edited,
    exchange,
    function,
    read,
    repository,
    searched,
    source_file,
    tested,
    tools,
)

_QUESTIONS = (
    "Why is the {field} of a {noun} rounded here?", "Please check the {field} when a {noun} is saved.",
    "Can a {noun} be without a {field}?", "Show me how the {field} gets into the report.",
    "The {noun} page is slow. What would you look at first?", "Rename nothing, but make the {field} optional.",
    "Add a test for a {noun} that is closed.", "What happens to the {field} if two of them are merged?",
)  # fmt: skip
_WISHES = (
    "log every change of the {field}.",
    "round the {field} half up.",
    "say in the docstring where the {field} comes from.",
    "the {field} may be empty.",
    "refuse a {field} below zero.",
)
_HABITS = "You work on a shop's code.\n\n# Habits\n" + "".join(
    f"- A {noun} keeps its {field} when it is saved, merged or exported; say so where it cannot. Never change the "
    f"{field} of a {noun} that is closed: open it first, and close it again in the same transaction.\n"
    for noun, field in NOUNS
)
_TRUSTED = "Ok, any changes I propose will be to those files."


def triage() -> Sample:
    """Letters to a shop, sorted one by one: long instructions with the time near their end, one question, no second
    one. Nothing but the instructions is ever the same."""
    chance, at, requests = Random(1), BEGIN, []
    kinds = "".join(
        f"- {noun}: anything about a {noun}, its {field} or who changed it. A letter that names a {noun} only in "
        f"passing belongs to what it asks for. Urgent if the {field} is wrong on a document that was sent. A {noun} of "
        f"last season goes to the archive, one that is disputed to the owner, with all letters on it.\n"
        for noun, field in NOUNS
    )
    examples = "".join(
        f'Letter: {question.format(noun=noun, field=field)}\nAnswer: {{"kind": "{noun}", "urgent": false}}\n\n'
        for question, (noun, field) in zip(_QUESTIONS, NOUNS, strict=False)
    )
    for _ in range(40):
        now = datetime.fromtimestamp(at, UTC).strftime("%A, %d %B %Y %H:%M")
        text = (
            f"You sort the letters of customers of a farm shop.\n\n# Kinds\n{kinds}\n# Examples\n{examples}"
            f"The current time is {now} (UTC).\nAnswer with JSON: kind, urgent, and the day by which to answer.\n"
        )
        noun, field = chance.choice(NOUNS)
        letter = f"{chance.choice(_QUESTIONS).format(noun=noun, field=field)} It is number {chance.randrange(10_000)}."
        requests.append(DemoRequest(at, chat([system(text), user(letter)], stream=False, temperature=0)))
        at += chance.uniform(10, 200)
    return Sample("triage", "one-shot calls", tuple(requests))


def labelled() -> Sample:
    """Letters that get a label, taught by example: the same long exchange in front of each, one question, no second
    one."""
    chance, at, requests = Random(8), BEGIN, []
    taught = [system("Answer with one word: the kind of thing that the letter is about.")]
    for noun, field in NOUNS:
        for asked in (_QUESTIONS[::2], _QUESTIONS[1::2]):
            letter = " ".join(asked).format(noun=noun, field=field)
            taught += [user(f"We write to you again about our {noun} of last week. {letter}"), assistant(noun)]
    for _ in range(40):
        noun, field = chance.choice(NOUNS)
        letter = f"{chance.choice(_QUESTIONS).format(noun=noun, field=field)} It is number {chance.randrange(10_000)}."
        requests.append(DemoRequest(at, chat([*taught, user(letter)], stream=False, temperature=0)))
        at += chance.uniform(10, 200)
    return Sample("labelled", "one-shot calls", tuple(requests))


def summaries() -> Sample:
    """Modules that are described one by one, each in a request of its own: nothing of any size is ever sent twice."""
    chance, at, requests = Random(9), BEGIN, []
    for number in range(40):
        file = source_file(f"shop/part_{number}.py", f"Part {number}.", chance.sample(range(len(NOUNS)), 4))
        asked = f"Say in three sentences what {file.path} does.\n{file.text}"
        requests.append(DemoRequest(at, chat([user(asked)], stream=False)))
        at += chance.uniform(5, 60)
    return Sample("summaries", "one-shot calls", tuple(requests))


def environment_agent() -> Sample:
    """A tool-calling agent whose instructions end with its environment: folder, state of the repository, time. Sent
    where the operator allows markers and no new order (mode ``mark``)."""
    chance, at, requests = Random(2), BEGIN, []
    messages: list[Message] = []
    files = repository()
    for turn in range(5):
        noun, field = chance.choice(NOUNS)
        messages.append(user(chance.choice(_QUESTIONS).format(noun=noun, field=field)))
        for number in range(chance.randrange(3, 9)):
            now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            text = f"{_HABITS}\n# Environment\nFolder: /srv/shop\nTime now: {now}\n"
            requests.append(DemoRequest(at, chat([system(text), *messages], stream=True, tools=tools())))
            file = chance.choice(files)
            step = chance.choice((read(file), searched(noun, files), edited(file), tested(file.path, number % 2)))
            messages += exchange(100 * turn + number, step)
            at += chance.uniform(3, 25)
        messages.append(assistant(f"The {field} is handled; the tests that touch it pass."))
        at += chance.choice((40, 70, 180, 420))
    return Sample("environment", "agent, its environment last", tuple(requests))


def notebook() -> Sample:
    """A script of somebody's own: all files in one message at the front, written anew for each question, while the
    author edits them in an editor of their own."""
    chance, at, requests = Random(3), BEGIN, []
    files = [source_file(f"lab/step_{i}.py", f"Step {i}.", range(i, i + 1 + i % 4)) for i in range(6)]
    talk: list[Message] = []
    for _ in range(24):
        texts = "".join(f"\n\n{file.path}\n```python\n{file.text}```" for file in files)
        noun, field = chance.choice(NOUNS)
        question = user(chance.choice(_QUESTIONS).format(noun=noun, field=field))
        opening = [
            system("You help with a program."),
            user(f"Here are the current files:{texts}"),
            assistant("Thanks."),
        ]
        requests.append(DemoRequest(at, chat([*opening, *talk, question], stream=False)))
        named, example = chance.randrange(len(files)), function(1, chance.randrange(15)).text
        talk += [question, assistant(f"Look at `{files[named].path}`: {example}")]
        if chance.random() < 0.7:
            place = named if chance.random() < 0.5 else chance.randrange(len(files))
            files[place] = _edited(files[place], chance)
        at += chance.choice((25, 45, 60, 90, 150, 400))
    return Sample("notebook", "a script that shows files", tuple(requests))


def chat_page() -> Sample:
    """A chat page: the system prompt tells what the client remembers of the user, which it revises between turns; a
    title and tags are asked for with the same first message under other instructions."""
    chance, at, requests = Random(4), BEGIN, []
    notes = [f"Asked about a {noun}." for noun, _ in NOUNS[:4]]
    for _ in range(6):
        talk: list[Message] = []
        for turn in range(chance.randrange(2, 6)):
            noun, field = chance.choice(NOUNS)
            talk.append(user(chance.choice(_QUESTIONS).format(noun=noun, field=field)))
            requests.append(DemoRequest(at, chat([system(_page(notes)), *talk], stream=True)))
            talk.append(assistant(f"Here is how it is done today:\n{function(4, chance.randrange(15)).text}"))
            if turn == 0:
                for task in ("Write a title of at most five words", "Give three tags, as a JSON list,"):
                    at += 1
                    side = system(f"{task} for the conversation that begins like this. Nothing else.")
                    requests.append(DemoRequest(at, chat([side, talk[0]], stream=False, max_tokens=30)))
            if chance.random() < 0.6:
                notes[chance.randrange(len(notes))] = f"Wants to know about the {field} of a {noun}."
            at += chance.uniform(20, 140)
    return Sample("chat-page", "chat page with a memory", tuple(requests))


def _page(notes: Sequence[str]) -> str:
    rules = prompt(range(4)).partition("# How to answer")[2]
    return "You are an assistant.\n\n# What you know of the user\n" + "".join(f"- {n}\n" for n in notes) + rules


def _edited(file: SourceFile, chance: Random) -> SourceFile:
    if chance.random() < 0.3:
        return file.with_function(function(chance.choice(SOURCE), chance.randrange(15)))
    place = chance.randrange(len(file.functions))
    text = file.functions[place].text
    return (
        file.with_change(place, '    """', f'    """(revised {chance.randrange(1000)}) ') if '    """' in text else file
    )


def handbook() -> Sample:
    """A retrieval chat whose instructions come first and whose documents come last in the system prompt; a follow-up
    question keeps most of the documents, and the page answers everybody."""
    chance, at, requests = Random(5), BEGIN, []
    rules = prompt(()).partition("# Documents\n\n")[2]
    for _ in range(6):
        found, talk = chance.sample(range(20), 4), list[Message]()
        for _ in range(chance.randrange(1, 5)):
            documents = "\n\n".join(document(number) for number in found)
            talk.append(user(f"What about point {chance.randrange(60)}?"))
            requests.append(
                DemoRequest(at, chat([system(f"{rules}\n# Documents\n\n{documents}\n"), *talk], stream=True))
            )
            talk.append(assistant("As the document says: " + document(found[0])[:300]))
            if chance.random() < 0.5:
                found[chance.randrange(4)] = chance.choice([n for n in range(20) if n not in found])
            at += chance.uniform(15, 100)
        at += chance.choice((30, 200, 500))
    return Sample("handbook", "retrieval, documents last", tuple(requests))


def stamped_files() -> Sample:
    """A chat about files whose build stamps each of them anew: whatever is placed in front is never read again."""
    chance, at, requests = Random(6), BEGIN, []
    files = [source_file(f"lab/step_{i}.py", f"Step {i}.", range(i, i + 2 + i % 4)) for i in range(8)]
    talk: list[Message] = []
    for build in range(30):
        stamped = [replace(file, head=f"# build {1000 + 7 * build}\n{file.head}") for file in files]
        noun, field = chance.choice(NOUNS)
        question = user(chance.choice(_QUESTIONS).format(noun=noun, field=field))
        context = [user(shown({file.path: file.text for file in stamped})), assistant(_TRUSTED)]
        messages = [system("You change files as you are asked to."), *talk, *context, question]
        requests.append(DemoRequest(at, chat(messages, stream=True)))
        talk += [question, assistant(f"Like this:\n{function(1, chance.randrange(15)).text}")]
        at += chance.choice((25, 45, 60, 90))
    return Sample("stamped", "files that all change", tuple(requests))


def pair(name: str = "pair", questions: float = 0.2) -> Sample:
    """Two people who speak of modules by their bare names, and now and then ask a question in another mode, whose
    instructions end differently. A guide that holds fences is in the chat for a while: all files then get longer ones,
    which the instructions say."""
    chance, at, requests = Random(7), BEGIN, []
    files = [
        source_file(f"lab/{noun}s.py", f"All {noun}s.", range(i, i + 1 + i % 3))
        for i, (noun, _) in enumerate(NOUNS[:6])
    ]
    talk: list[Message] = []
    for turn in range(32):
        fence = "`" * (4 if 12 <= turn < 20 else 3)
        place = chance.randrange(len(files))
        noun, field = NOUNS[place]
        is_question = chance.random() < questions
        wish = _QUESTIONS[chance.randrange(4)] if is_question else "In {noun}s: " + chance.choice(_WISHES)
        words = user(wish.format(noun=noun, field=field))
        guide = f"\nGUIDE.md\n{fence}\nRun it:\n```\nmake all\n```\n{fence}\n" if len(fence) == 4 else ""
        texts = "".join(f"\n{file.path}\n{fence}\n{file.text}{fence}\n" for file in files)
        ending = (
            "Answer questions. Change nothing." if is_question else f"Write changed files between {fence} and {fence}."
        )
        messages = [system(_HABITS + ending), *talk, user(shown({}) + guide + texts), assistant(_TRUSTED), words]
        requests.append(DemoRequest(at, chat(messages, stream=True)))
        talk += [words, assistant(f"It is done with this:\n{function(1, chance.randrange(15)).text}")]
        if not is_question:
            files[place] = _edited(files[place], chance)
        at += chance.choice((30, 45, 80, 120))
    return Sample(name, "two people, one editor", tuple(requests))


def readers() -> Sample:
    """The same two, who only ask questions. Sent in mode ``mark``: the files stand at another place in each request."""
    return pair("readers", questions=1.0)


def forgetful_agent() -> Sample:
    """An agent that shows its model the newest four results of tools in full and says of older ones that they were
    cleared; it works through a day with breaks."""
    chance, at, requests = Random(8), BEGIN, []
    files, messages = repository(), list[Message]()
    for turn in range(10):
        noun, field = chance.choice(NOUNS)
        messages.append(user(chance.choice(_QUESTIONS).format(noun=noun, field=field)))
        for number in range(chance.randrange(3, 8)):
            requests.append(DemoRequest(at, chat([system(_HABITS), *_cleared(messages)], stream=True, tools=tools())))
            file = chance.choice(files)
            step = chance.choice((read(file), searched(noun, files), edited(file), tested(file.path, number % 2)))
            messages += exchange(100 * turn + number, step)
            at += chance.uniform(4, 30)
        messages.append(assistant(f"The {field} is handled; the tests that touch it pass."))
        at += chance.choice((40, 90, 400, 900, 2400, 5000))
    return Sample("forgetful", "agent that clears results", tuple(requests))


def _cleared(messages: Sequence[Message]) -> list[Message]:
    results = [index for index, message in enumerate(messages) if message["role"] == "tool"]
    old = set(results[:-4])
    return [{**m, "content": "[cleared]"} if i in old else m for i, m in enumerate(messages)]


def panels() -> Sample:
    """An assistant with live panels: two of eight change in every turn, the others now and then; its user goes away
    twice for longer than an entry lives."""
    return _panelled("panels", PanelForm.PANELS, Pace(40, pause_every=15, seed=11))


def panels_agent() -> Sample:
    """The same as an agent: panels change between its calls, too."""
    return _panelled("panels-agent", PanelForm.PANELS, Pace(6, has_calls=True, seed=12))


def panels_frozen() -> Sample:
    """The same, and old parts of the conversation are frozen."""
    return _panelled("panels-frozen", PanelForm.FREEZING, Pace(60, most_pasted=3, seed=13))


def _panelled(name: str, form: PanelForm, pace: Pace) -> Sample:
    requests = []
    for sending in sendings(form, list(turns(pace)), name):
        body = dict(sending.body)
        body |= body.pop("extra_body")
        requests.append(DemoRequest(sending.at, body))
    return Sample(name, "assistant with live panels", tuple(requests))


def made() -> Iterator[Sample]:
    """All of them but those with live panels."""
    yield from (
        triage(), environment_agent(), notebook(), chat_page(), handbook(), stamped_files(), pair(),
        forgetful_agent(), labelled(), summaries(),
    )  # fmt: skip
