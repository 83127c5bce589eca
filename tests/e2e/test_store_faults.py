"""``stratiform serve`` over a store that is damaged, or on a full disk: hard budgets go by ``on_store_error``,
readiness is red only where requests are refused, and nothing needs a restart."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from shutil import copyfile

import pytest

from tests.damage import damage_table, fill, overwrite, settle, small_disk
from tests.doubles import serving
from tests.e2e.fleet import Crowd, Provider, configuration, fleet, until

pytestmark = pytest.mark.slow

BUDGET = [{"usd": 1000}]


def ready(url: str) -> tuple[int, list[str]]:
    """The status of the probe, and the parts that have a fault."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
            status, body = answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        status, body = error.code, json.load(error)
    return status, [fault["part"] for fault in body.get("faults", ())]


def sent(url: str, calls: int = 5) -> Crowd:
    """What ten clients are answered."""
    crowd = Crowd()
    asyncio.run(crowd.send(url, 10, calls))
    return crowd


def used(path: Path, upstream: str, folder: Path) -> None:
    """A store that has served."""
    with fleet(folder / "before", configuration(upstream, f"sqlite:{path}", budgets=BUDGET)) as proxy:
        assert set(sent(proxy.url).statuses) == {200}
    settle(path)


@pytest.mark.parametrize("damage", ["counter", "header"])
@pytest.mark.parametrize(("policy", "status", "probe"), [("deny", 503, 503), ("allow", 200, 200)])
def test_with_damaged_pages_budgets_go_by_the_policy_until_the_file_is_restored(
    tmp_path: Path, damage: str, policy: str, status: int, probe: int
) -> None:
    provider, path, backup = Provider(), tmp_path / "spend.sqlite", tmp_path / "backup"
    with serving(provider) as upstream:
        used(path, upstream, tmp_path)
        copyfile(path, backup)
        if damage == "header":
            overwrite(path, 0, 4096)
        else:
            damage_table(path, damage)
        config = configuration(upstream, f"sqlite:{path}", budgets=BUDGET)
        config["stratiform"]["budgets"] = {"on_store_error": policy}  # type: ignore[index]
        before = provider.served
        with fleet(tmp_path / "proxy", config) as proxy:
            assert proxy.log.read_text().count("is damaged (") == 1
            assert ready(proxy.url) == (probe, ["store"] if damage != "header" else ["store", "directory"])
            assert set(sent(proxy.url).statuses) == {status}
            assert ready(proxy.url)[0] == probe
            assert provider.served - before == (50 if status == 200 else 0)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            backup.replace(path)
            until(lambda: ready(proxy.url) == (200, []))
            assert set(sent(proxy.url).statuses) == {200}


@pytest.mark.parametrize(("policy", "status", "probe"), [("deny", 503, 503), ("allow", 200, 200)])
def test_on_a_full_disk_budgets_go_by_the_policy_until_there_is_room(
    tmp_path: Path, policy: str, status: int, probe: int
) -> None:
    provider = Provider()
    with small_disk(tmp_path / "disk", 8192) as disk, serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{disk / 'spend.sqlite'}", budgets=BUDGET)
        config["stratiform"]["budgets"] = {"on_store_error": policy}  # type: ignore[index]
        with fleet(tmp_path / "proxy", config) as proxy:
            assert set(sent(proxy.url).statuses) == {200}
            ballast = fill(disk)
            # What the write-ahead log has room for still goes through, and is written.
            until(lambda: ready(proxy.url)[1], lambda: sent(proxy.url, 1))
            served = provider.served
            crowd = sent(proxy.url, 40)
            assert set(crowd.statuses) == {status}, crowd.texts
            assert ready(proxy.url)[0] == probe
            assert provider.served - served == (400 if status == 200 else 0)
            ballast.unlink()
            until(lambda: ready(proxy.url) == (200, []))
            assert set(sent(proxy.url).statuses) == {200}
