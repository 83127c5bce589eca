"""Sessions whose instructions, or whose first question, hold a line that changes: a time, a counter, an id, a state, in
forms of many clients and of none, at any place, with each request or now and then."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from tests.append_only import Sent

_WORDS_A_LINE = 12


def _time(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)


_FORMS: Mapping[str, Callable[[float, int, Random], str]] = {
    "time": lambda at, number, chance: f"Now: {_time(at, '%Y-%m-%dT%H:%M:%SZ')}",
    "date": lambda at, number, chance: f"Date: {_time(at, '%Y-%m-%d')}",
    "time in words": lambda at, number, chance: _time(at, "Es ist %A, der %d. %B %Y, %H:%M Uhr."),
    "seconds": lambda at, number, chance: f"ts={int(at)}",
    "counter": lambda at, number, chance: f"This is request {number} of the session.",
    "id": lambda at, number, chance: f"trace {chance.getrandbits(64):016x}",
    "state": lambda at, number, chance: json.dumps({"cursor": [chance.randrange(200), chance.randrange(80)]}),
    "sentence": lambda at, number, chance: f"The user has been here for {int(at) % 4000} seconds.",
    "words": lambda at, number, chance: " ".join(chance.choices(["sun", "rain", "wind", "snow", "fog"], k=4)),
    "block": lambda at, number, chance: "\n".join(f"key {one}: {chance.randrange(1000)}" for one in range(8)),
}


def with_changing_line(sent: Sequence[Sent], seed: int) -> list[Sent]:
    """The same requests with such a line in the first message of the drawn role, or in a system message of its own."""
    chance = Random(seed)
    form, place, every = _FORMS[chance.choice(sorted(_FORMS))], chance.choice((0.0, 0.5, 1.0)), chance.choice((1, 1, 4))
    role, is_inline = chance.choice(("system", "system", "user")), chance.random() < 0.2
    found, line = [], ""
    for number, one in enumerate(sent):
        line = form(one.at, number, chance) if number % every == 0 else line
        body = json.loads(one.body)
        message = next((m for m in body["messages"] if m["role"] == role and isinstance(m["content"], str)), None)
        if message is None:
            body["messages"].insert(0, message := {"role": "system", "content": ""})
        words = message["content"].split(" ")
        lines = [" ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)]
        lines.insert(round(place * len(lines)), line)
        message["content"] = (" " if is_inline else "\n").join(lines)
        found.append(replace(one, body=json.dumps(body).encode()))
    return found
