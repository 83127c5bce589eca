"""Requests as one provider's cache sees them."""

from proxy.core.caches import validate
from proxy.core.caches.prompt import Prompt
from proxy.core.providers import CacheProfile
from proxy.core.request.tokens import Encode
from proxy.upstream.embedded.blocks import BlockMaker, refuse
from proxy.upstream.embedded.layout import lay_out
from proxy.upstream.embedded.request import ChatRequest, read_chat
from proxy.upstream.embedded.turns import KNOWN_TURNS, TurnReader

# Twenty thousand turns and two hundred thousand entries are what a long replay needs.
ENTRIES_A_TURN = 10


class PromptReader:
    """Reads bodies for one provider. It reads each distinct message once."""

    def __init__(self, profile: CacheProfile, encode: Encode, remembered: int = KNOWN_TURNS) -> None:
        self.profile = profile
        self.maker = BlockMaker(encode, cuts=profile.stores_prefixes, remembered=ENTRIES_A_TURN * remembered)
        self.turns = TurnReader(self.maker, profile, remembered=remembered)

    def request(self, body: bytes) -> ChatRequest:
        """The body, taken apart. Raises UpstreamRejected for what the provider would refuse."""
        return read_chat(body, self.turns)

    def laid_out(self, request: ChatRequest, account: str) -> Prompt:
        """The request's positions and markers. Raises UpstreamRejected for what the provider would refuse."""
        prompt = lay_out(request, self.profile, account)
        complaint = validate(prompt, self.profile)
        if complaint is not None:
            raise refuse(complaint, "messages")
        return prompt

    def prompt(self, body: bytes) -> Prompt:
        """The body's positions and markers, where only one account is billed. Raises UpstreamRejected."""
        return self.laid_out(self.request(body), "")
