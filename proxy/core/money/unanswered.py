"""Computes what is booked for a call that was sent to an upstream and that has no usage, or only a part of it. Pure.

The same rules hold for every such call, whatever ended it early (the client left, the upstream was silent for too long,
the connection broke) and whoever made it:

- The prompt is booked in full, as it was reserved: no part of it counts as read from a cache.
- The received part of the answer is booked by the proxy's own count.
- The time in which nothing came is booked as thinking, at the fastest rate that is known of the model, for each of the
  answers. If the provider goes on with a call that the proxy has given up, it is booked as if it went on to its limit.
- A tool that the provider runs counts as called once a second, but not more often than the request allows.
- A summary of the prompt that the provider was allowed to make counts as made, and as long as the model's longest
  answer.
- The output is never more than the limit that was sent upstream, unless the model was seen to pass its limits, or this
  answer passes it. Then it may be longer by the model's longest answer, as it was reserved.

When the client of a call has left, some providers stop, and others go on to the end and bill all of it. The list comes
from OpenRouter, which calls all of them: https://openrouter.ai/docs/api-reference/streaming ("Stream Cancellation").
The same page says that a call without a stream always runs on. The names of providers are those of
``proxy.core.providers.hosts``. OpenRouter itself does what the provider behind it does, and it is not visible which
provider that is.
"""

from collections.abc import Mapping

from proxy.core.lru import LastUsed
from proxy.core.money.budget import MOST_AMOUNT
from proxy.core.money.charges import longest_output, most_read, window_of
from proxy.core.money.prices import Price
from proxy.core.request.demand import Demand, Kind
from proxy.core.request.wants import Tool
from proxy.core.response.reported import Reported
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass

_RUN_ON = frozenset({"gemini", "groq", "mistral", "minimax", "dashscope", "openrouter"})

_MOST_DEPLOYMENTS = 1000
_TOKENS_PER_S: Mapping[str, float] = {"cerebras": 3000.0, "groq": 1200.0}
"""Output tokens a second of the fastest models: https://inference-docs.cerebras.ai/models/overview,
https://console.groq.com/docs/models."""
_USUAL_TOKENS_PER_S = 300.0
"""The highest published speed of models at other providers: https://artificialanalysis.ai/models#speed."""
_LEAST_TOKENS_PER_S = 100.0
"""No model is assumed to be slower than this: a client that reads slowly makes its own answers slow."""
_MARGIN = 1.5
SPARE_TOKENS = 16
"""Marks of the end of an answer that a provider may count beyond the limit."""
_SEEN = 20
# For a shorter answer, most of the time was spent on reading the prompt.
_LEAST_OUTPUT_TOKENS = 200


def runs_on(server: str, *, is_stream: bool, is_background: bool = False) -> bool:
    """Whether the provider finishes and bills a call although its client has left. Unknown servers are assumed to stop
    a stream, as vLLM, SGLang and llama.cpp do, unless the answer is written in the background."""
    return not is_stream or is_background or server in _RUN_ON


@dataclass(frozen=True, slots=True)
class Heard:
    """The received part of an answer: ``tokens`` of text by the proxy's own count, in the ``total_s`` seconds since the
    call was sent. In ``silent_s`` of these seconds nothing came. ``runs_on``: the call goes on at the provider."""

    tokens: int
    silent_s: float
    total_s: float
    runs_on: bool = False


class Speeds:
    """The highest known speed of models, by deployment. It is the observed speed, or the published one before an answer
    was observed."""

    def __init__(self) -> None:
        self._known: LastUsed[str, tuple[float, int]] = LastUsed(_MOST_DEPLOYMENTS)

    def tokens_per_s(self, deployment: str, server: str) -> float:
        """The fastest rate that is known of a model."""
        fastest, answers = self._known.get(deployment, (0.0, 0))
        seen = max(fastest * _MARGIN, _LEAST_TOKENS_PER_S)
        return seen if answers >= _SEEN else max(seen, _TOKENS_PER_S.get(server, _USUAL_TOKENS_PER_S))

    def learn(self, deployment: str, output_tokens: float, seconds: float) -> None:
        """Learn from one answer: its tokens, and the seconds that it took."""
        if output_tokens >= _LEAST_OUTPUT_TOKENS and seconds > 0:
            fastest, answers = self._known.get(deployment, (0.0, 0))
            self._known.put(deployment, (max(fastest, output_tokens / seconds), answers + 1))


def unanswered(
    demand: Demand,
    prompt_tokens: int,
    heard: Heard,
    tokens_per_s: float,
    price: Price | None,
    *,
    passes_limits: bool = False,
) -> tuple[Usage, Reported]:
    """The usage and the report with which the call is booked. ``price`` is the model's price; None: it has none.
    ``passes_limits``: the model has written answers that were longer than their requests allowed."""
    longest, limit = longest_output(None, price), demand.max_output_tokens
    most = longest_output(limit, price)
    if limit is not None and (passes_limits or heard.tokens > demand.answers * (limit + SPARE_TOKENS)):
        most += longest
    # No answer is longer than all that a model can hold.
    most = min(most, max(longest, window_of(price))) * demand.answers
    output = heard.tokens + int(heard.silent_s * tokens_per_s * demand.answers)
    if demand.kind is Kind.PROMPT:
        output = 0
    elif heard.runs_on or output > most:
        output = most
    output += demand.predicted_tokens * demand.answers
    made = {tool: min(count, 1 + int(heard.total_s)) for tool, count in demand.wants.calls}
    prompt = most_read(price, tuple(made.items()), prompt_tokens)
    if demand.wants.is_summarised:
        prompt, output = 2 * prompt, output + longest
    ran = Reported(
        searches=made.get(Tool.SEARCH, 0), files=made.get(Tool.FILES, 0), codes=min(1, made.get(Tool.CODE, 0))
    )
    return Usage(min(prompt, MOST_AMOUNT), min(output, MOST_AMOUNT), estimated=True), ran
