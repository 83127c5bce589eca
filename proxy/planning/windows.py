"""Fits requests to the context windows of their models, and learns how a model counts its tokens."""

from proxy.aside import Aside
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.reader import RequestReader
from proxy.core.response.usage import Usage
from proxy.core.window.fitted import Fitted
from proxy.core.window.parts import WindowParts
from proxy.core.window.profile import CapabilityProfile
from proxy.core.window.texts import WindowTexts
from proxy.planning.model_facts import ModelFacts
from proxy.ports import Deployment


class ContextWindows:
    """Fits requests to their windows. Token counts come from the planner's reader, which remembers them."""

    def __init__(
        self, reader: RequestReader, facts: ModelFacts, texts: WindowTexts, aside: Aside | None = None
    ) -> None:
        self._reader = reader
        self._facts = facts
        self._texts = texts
        self._aside = aside or Aside()

    async def fitted(
        self,
        parsed: ParsedBody,
        profile: CapabilityProfile,
        parts: WindowParts | None,
        deployment: Deployment,
        *,
        extra_tokens: int = 0,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        """The request as it is sent. ``extra_tokens`` are those that are added to it later; ``scale`` makes the budget
        smaller, for a request that an upstream has refused; ``scope`` is the principal's. A body that only the proxy
        cannot read is left as it is. Raises ContextTooLong and InvalidRequest; nothing is changed by then."""
        return Fitted(parsed.body)

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        """An exchange whose request was ``fitted`` has ended well: learn from what the provider has counted."""
