"""Which deployments a request fits before any of them is called: LiteLLM's ``enable_pre_call_checks``.

As in LiteLLM the prompt alone is held against what the model reads at most (``max_input_tokens``); a model of which
that is not known takes any prompt. (https://docs.litellm.ai/docs/routing#pre-call-checks-context-window-eu-regions)
"""

from collections.abc import Callable

from proxy.core.request.parsed_body import ParsedBody
from proxy.engine.attempts.retry import Levels
from proxy.engine.exchange import Exchange
from proxy.errors import ContextTooLong
from proxy.ports import Deployment, Planner

WindowOf = Callable[[Deployment], int | None]
"""The most tokens that a deployment's model reads; None where nobody knows."""


async def fitting(
    planner: Planner, window_of: WindowOf, exchange: Exchange, parsed: ParsedBody, levels: Levels, wider: Levels
) -> tuple[Levels, Levels]:
    """Of a request's deployments, and of those with wider windows, those that take its prompt. Where no deployment
    of its own name does, the wider ones serve it. A request that is fitted to a window anyway keeps its own, where
    no other is wide enough. Raises ContextTooLong."""
    windows = [window_of(deployment) for level in (*levels, *wider) for deployment in level]
    tokens = await planner.tokens(parsed) if any(window is not None for window in windows) else None
    if tokens is None or all(window is None or tokens <= window for window in windows):
        return levels, wider
    own, others, name = _fitting(levels, tokens, window_of), _fitting(wider, tokens, window_of), levels[0][0].name
    if any(deployment.name == name for level in own for deployment in level):
        return own, others
    if others:
        return others, ()
    if own or exchange.window is not None:
        return own or levels, ()
    most = max(window for window in windows if window is not None)
    raise ContextTooLong(
        f"the messages have about {tokens} tokens, and the models that may serve the request read at most {most}:"
        " send fewer or shorter messages"
    )


def _fitting(levels: Levels, tokens: int, window_of: WindowOf) -> Levels:
    found = [[d for d in level if (window := window_of(d)) is None or tokens <= window] for level in levels]
    return [level for level in found if level]
