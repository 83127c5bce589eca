"""The proxy under fire: the real application with teams, budgets, groups, fallbacks and two providers."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.applications import Starlette

from proxy.app import composition
from proxy.app.settings import Environment, load
from proxy.app.web import create_app
from proxy.models import Transport
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded import EmbeddedUpstream
from tests.fuzz.upstream import StrangeUpstream

CONFIG = """
model_list:
  - {model_name: claude, litellm_params: {model: embedded/claude-sonnet-4-5, api_key: k, output_tokens: 5}}
  - {model_name: gpt, litellm_params: {model: embedded/gpt-5.6, api_key: k, output_tokens: 5}}
  - {model_name: pair, litellm_params: {model: embedded/claude-opus-4-5, api_key: k, output_tokens: 3, weight: 2}}
  - {model_name: pair, litellm_params: {model: embedded/deepseek-chat, api_key: k, output_tokens: 3, weight: 1}}
  - {model_name: strange, litellm_params: {model: openai/claude-strange, api_base: "http://strange/v1", api_key: k},
     model_info: {cache_profile: openrouter-anthropic}}
  - {model_name: "behind/*", litellm_params: {model: "embedded/*", api_key: k, output_tokens: 3}}
router_settings: {num_retries: 1, cooldown_time: 0.01, fallbacks: [{strange: [gpt]}]}
general_settings: {master_key: sk-master-of-the-house}
stratiform:
  store: sqlite:spend.sqlite
  log_level: error
  limits: {max_body_mib: 1, state_mib: 16}
  teams:
    - {name: blue, keys: [sk-blue]}
    - {name: red, keys: [sk-red], mode: mark, budget: {usd: 100000}}
  prices:
    embedded/claude-sonnet-4-5: {input_cost_per_token: 0.000003, output_cost_per_token: 0.000015}
    claude-strange: {input_cost_per_token: 0.000003, output_cost_per_token: 0.000015}
"""


@dataclass
class World:
    """The app, who answers it, and what it complained of. ``complaints`` are logged errors: nothing of ours may fail,
    contained or not."""

    app: Starlette
    strange: StrangeUpstream
    assembly: composition.BuiltApp
    complaints: list[str]

    def in_flight(self) -> float:
        """Exchanges that have not ended."""
        text = b"".join(self.assembly.parts.metrics.pieces()).decode()
        return float(text.split("\nstratiform_in_flight ")[1].split("\n")[0])


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first of them."""
        if len(self._heard) < 100:
            self._heard.append(record.getMessage())


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """An app of its own."""
    strange, complaints = StrangeUpstream(), list[str]()
    ear, log = _Ear(complaints), logging.getLogger("stratiform")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(CONFIG)
        # A small memory, as the proxy's own: the tables are to be full soon.
        embedded = EmbeddedUpstream(bytes_over_four, remembered=100)
        upstreams = {Transport.EMBEDDED: embedded, Transport.HTTP: strange}
        settings = load(path, environment=Environment({}))
        assembly = await composition.build(settings, upstreams=upstreams, encode=bytes_over_four)
        engine = assembly.parts.engine
        # The waits between attempts are not what is tested here.
        intake = engine._chats._intake
        intake.rules = replace(intake.rules, retries=replace(intake.rules.retries, first_wait_s=0.0001))
        app = create_app(assembly.parts)
        log.addHandler(ear)
        # It says of every request that is none that it is none.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        try:
            async with app.router.lifespan_context(app):
                yield World(app, strange, assembly, complaints)
        finally:
            log.removeHandler(ear)
