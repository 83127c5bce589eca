"""Keep-alive through the whole proxy, as a configuration builds it: real admission, ledger, meter; virtual time."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.app import composition
from proxy.app.settings import Environment, load
from proxy.kit.clock import Readings
from proxy.protocol.request.tokens import bytes_over_four
from tests.fake_time import FakeTime
from tests.talk import lines
from tests.unit.engine.parts import MemoryClient

CONFIG = """
model_list:
  - model_name: bot
    litellm_params: {{model: embedded/bot, api_key: sk-operator}}
    model_info: {{cache_profile: minimax, input_cost_per_token: 0.000001, output_cost_per_token: 0.000004,
                 cache_read_input_token_cost: 0.0000001, cache_creation_input_token_cost: 0.00000125}}
stratiform:
  teams:
    - {{name: support, keys: [sk-team], budget: {{usd: 5}}}}
  store: sqlite:{store}
  keep_alive: {{enabled: {enabled}, usd_per_day: 2}}
"""
HEADERS = [("content-type", "application/json"), ("authorization", "Bearer sk-team")]
PAUSE_S = 480.0


def spent(tmp_path: Path, *, enabled: bool) -> dict[str, tuple[int, int]]:
    """What a client that pauses for eight minutes cost, by the ledger: entries and nano-dollars by reason."""
    store = tmp_path / f"spend-{enabled}.sqlite"
    config = tmp_path / f"{enabled}.yaml"
    config.write_text(CONFIG.format(store=store, enabled=str(enabled).lower()))
    asyncio.run(talk(config))
    with sqlite3.connect(store) as ledger:
        rows = ledger.execute(
            "SELECT reason = 'keep-alive', count(*), sum(cost) FROM entry WHERE team = 'support' GROUP BY 1"
        ).fetchall()
    ledger.close()
    return {"keep-alive" if is_refresh else "client": (number, cost) for is_refresh, number, cost in rows}


async def talk(config: Path) -> None:
    clock = FakeTime(1_790_000_000.0)
    assembly = await composition.build(
        load(config, "", Environment({})),
        readings=Readings(clock.now, clock.now),
        encode=bytes_over_four,
        wait=clock.wait,
    )
    engine = assembly.parts.engine
    turns: list[dict[str, Any]] = [{"role": "system", "content": lines(400, "rule")}]
    for number in range(20):
        await clock.advance(PAUSE_S if number % 2 else 10.0)
        turns.append({"role": "user", "content": lines(6, f"question {number}")})
        client = MemoryClient(orjson.dumps({"model": "bot", "messages": turns, "max_tokens": 20}), headers=HEADERS)
        await engine.chat(client)
        assert client.status == 200, client.answer
        turns.append({"role": "assistant", "content": lines(3, f"answer {number}")})
    await engine.aclose()
    for close in reversed(assembly.parts.on_close):
        await close()


@pytest.mark.slow
def test_pauses_of_eight_minutes_cost_less_and_every_refresh_is_in_the_ledger(tmp_path: Path) -> None:
    off, on = spent(tmp_path, enabled=False), spent(tmp_path, enabled=True)
    assert set(off) == {"client"}
    assert off["client"][0] == on["client"][0] == 20
    assert on["keep-alive"][0] > 5
    assert sum(cost for _, cost in on.values()) < 0.8 * off["client"][1]
