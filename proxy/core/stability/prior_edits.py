"""What a conversation tells of files that were not seen before: a client that begins with a history has edited."""

from proxy.core.request.view import RecognisedRequest
from proxy.core.stability.edit_signals import path_of, stands, text_of
from proxy.core.stability.rates import FIRST_RATE, RATE_STEP

# The latest of the assistant's messages are read; shorter ones acknowledge something.
_MAX_ANSWERS = 32
_LEAST_CHARS = 80


def told_rate(recognised: RecognisedRequest, key: str) -> float:
    """The share of requests that changed a file, as far as the answers in the conversation tell by naming it."""
    path, rate = path_of(key), FIRST_RATE
    if not path:
        return rate
    answers = [i for i in recognised.turns() if i < recognised.last_user and recognised.messages[i].role == "assistant"]
    for index in answers[-_MAX_ANSWERS:]:
        text = text_of(recognised.messages[index])
        if len(text) >= _LEAST_CHARS:
            rate += RATE_STEP * (float(path in text and stands(path, text)) - rate)
    return rate
