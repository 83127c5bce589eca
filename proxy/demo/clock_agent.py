"""An agent whose instructions begin with the time of day. In the client's own order, nothing is ever read again."""

from collections.abc import Sequence
from datetime import UTC, datetime

from proxy.demo.sample import BEGIN, Message, Request, Sample, assistant, chat, system, user
from proxy.demo.tool_agent import Round, edited, exchange, read, repository, searched, tested, tools

_INSTRUCTIONS = """You keep the shop's stock in order. You answer the staff's questions and change records for them.

# Stock
- A crate is free when it holds nothing and is not booked for tomorrow. Never book a crate twice.
- A harvest is entered on the day it comes in, with the orchard, the kind, the weight in kilograms and the picker.
- Weights are entered as they were read, never rounded. Where the scale showed nothing, enter nothing and say so.
- What is older than nine days is taken out of the shop and entered as waste, with the reason.
- Before anything is deleted, say what will be lost, and wait for a yes.

# Orders
- An order that was paid is changed only by a refund and a new order.
- Promise a day of delivery only where the route of that day still has room, and never for today after 14:00.
- Subscriptions are delivered on the same day of every week; a holiday moves them to the day before.
- A customer who has complained twice in a month gets a call, not a letter: put the number on the list.

# How you use the tools
- Search before you read, read before you change. One change at a time.
- After a change read the record again, and show it as it is now.
- If a tool fails, say which one and what it said. Do not try the same call more than twice.
- Records of people are shown only to those who look after them. When in doubt, ask who is asking.

# How you write
- In the language of the question, in whole sentences, without greetings.
- Amounts with the currency behind the number, weights in kg, days as "Tuesday, 3 March".
- Where there are more than five records, give the five that matter and the number of the others.
- No guesses. "I do not know" is a good answer where it is true; say what would have to be looked up.
"""

_QUESTIONS = (
    "How many crates are free for tomorrow's harvest?",
    "Book three of them for the early apples, please.",
    "Which orders can we still promise for today?",
)


def clock_agent() -> Sample:
    """Three questions, 21 requests."""
    requests, at = [], BEGIN + 47
    messages: list[Message] = []
    for turn, question in enumerate(_QUESTIONS):
        messages.append(user(question))
        for number, step in enumerate(_rounds(turn)):
            requests.append(_request(at, messages))
            messages += exchange(10 * turn + number, step)
            at += 9 + number * 4
        requests.append(_request(at, messages))
        messages.append(assistant("Done. The records are as you asked; nothing else was changed."))
        at += 75
    return Sample("clock", "agent told the time", tuple(requests))


def instructions(at: float) -> str:
    """The system prompt. It is made anew for every request."""
    now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"Current date and time: {now} UTC\n\n{_INSTRUCTIONS}"


def _request(at: float, messages: list[Message]) -> Request:
    return Request(at, chat([system(instructions(at)), *messages], stream=False, tools=tools(6)))


def _rounds(turn: int) -> Sequence[Round]:
    files = repository()
    return [
        searched(("crate", "parcel", "order")[turn], files),
        read(files[turn]),
        read(files[turn + 3]),
        edited(files[turn]),
        read(files[6 - turn]),
        tested("tests/test_stock.py", 0),
    ]
