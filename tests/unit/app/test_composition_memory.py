"""What is remembered of requests follows ``limits.state_mib``, whatever part remembers it, and what is remembered of
budgets follows the store."""

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path

from proxy.app import composition
from proxy.app.settings import Environment, load
from proxy.kit.lru import Bounded
from proxy.protocol.request.tokens import bytes_over_four
from proxy.storage import Charge, LedgerEntry, Settle
from proxy.teams.alerts import LOOK_EVERY_S
from proxy.teams.reservations import BudgetReservations
from tests.fake_time import in_virtual_time

CONFIG = """
model_list:
  - {model_name: claude, litellm_params: {model: embedded/claude-sonnet-4-5, api_key: k}}
general_settings: {master_key: sk-master-of-the-house}
stratiform:
  store: sqlite:spend.sqlite
  ask_provider_for_cause: true
  limits: {state_mib: STATE}
  structured: {text_mib: 16}
"""
LEAST_MIB, MOST_MIB, TEXT_MIB = 16, 1600, 16


def room_of(path: Path, state_mib: int) -> int:
    """The bytes that all tables of a new application may hold together."""
    path.mkdir()
    config = path / "config.yaml"
    config.write_text(CONFIG.replace("STATE", str(state_mib)))
    before = {id(table): table for table in gc.get_objects() if isinstance(table, Bounded)}

    async def built() -> int:
        assembly = await composition.build(load(config, environment=Environment({})), encode=bytes_over_four)
        tables = [table for table in gc.get_objects() if isinstance(table, Bounded) and id(table) not in before]
        await assembly.parts.engine.aclose()
        return sum(table._most for table in tables)

    return asyncio.run(built())


def test_the_tables_of_an_application_follow_the_memory_that_is_allowed(tmp_path: Path) -> None:
    least, most = room_of(tmp_path / "least", LEAST_MIB), room_of(tmp_path / "most", MOST_MIB)
    share = (most - least) / ((MOST_MIB - LEAST_MIB) << 20)
    assert 1.0 < share < 1.6
    # The texts of clients, and 32 MiB for each of three parts (proxy/app/web/README.md).
    assert least - share * (LEAST_MIB << 20) < (TEXT_MIB + 3 * 32 + 1) << 20


BUDGETS = """
model_list:
  - {model_name: claude, litellm_params: {model: embedded/claude-sonnet-4-5, api_key: k}}
general_settings: {master_key: sk-master-of-the-house}
stratiform:
  store: memory
  teams:
  - {name: red, keys: [sk-red], budgets: [{usd: 50}, {usd: 5, window: day}]}
"""


def test_what_is_left_of_a_budget_follows_the_store_whoever_spends(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BUDGETS)

    async def main() -> list[Mapping[str, tuple[float, float]]]:
        settings = load(tmp_path / "config.yaml", environment=Environment({}))
        assembly = await composition.build(settings, encode=bytes_over_four)
        reservations = assembly.parts.engine._ports.admission
        assert isinstance(reservations, BudgetReservations)
        store, seen = reservations.store_client._store, [assembly.parts.metrics.remaining()]
        charge = Charge("b:total:-:total", 48 * 10**9)
        await store.settle(Settle(LedgerEntry("x", 0.0, "red"), [charge]), 0.0)
        await asyncio.sleep(LOOK_EVERY_S + 1)
        seen.append(assembly.parts.metrics.remaining())
        await assembly.parts.engine.aclose()
        for close in reversed(assembly.parts.on_close):
            await close()
        return seen

    before, after = in_virtual_time(main)
    assert (before["red"][0], after["red"][0]) == (5.0, 2.0)
