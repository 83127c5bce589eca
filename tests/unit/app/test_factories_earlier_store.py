"""A store of earlier versions, which all configurations shared, is not forgotten."""

from pathlib import Path

import pytest

from proxy.app.factories import refuse_earlier_store
from proxy.app.settings import ConfigError, Environment, Settings, load

TEXT = """
model_list: [{model_name: m, litellm_params: {model: embedded/claude-sonnet-4-5}}]
general_settings: {master_key: sk-m}
"""


def settings(folder: Path, section: str = "{}") -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{TEXT}stratiform: {section}\n")
    return load(path, environment=Environment({"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "state/stratiform/spend.sqlite"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_no_new_store_is_begun_beside_an_earlier_one(tmp_path: Path, old: Path) -> None:
    read = settings(tmp_path)
    with pytest.raises(ConfigError, match=f"{old} is the store of an earlier version") as told:
        refuse_earlier_store(read)
    assert f"move it to {read.store_path} and {old}.spool to {read.spool_folder}" in str(told.value)
    assert read.store_path is not None
    read.store_path.parent.mkdir(parents=True)
    old.rename(read.store_path)
    refuse_earlier_store(read)


@pytest.mark.parametrize("store", ["memory", "sqlite:mine.sqlite", "redis://127.0.0.1:1/0"])
def test_a_configuration_that_names_its_store_is_not_refused(tmp_path: Path, old: Path, store: str) -> None:
    refuse_earlier_store(settings(tmp_path, f"{{store: '{store}'}}"))


def test_settlements_that_wait_for_a_redis_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    section = "{store: 'redis://127.0.0.1:1/0'}"
    spool = tmp_path / "state/stratiform/spool"
    spool.mkdir(parents=True)
    refuse_earlier_store(settings(tmp_path, section))
    assert not caplog.records
    (spool / "7.spool").touch()
    refuse_earlier_store(settings(tmp_path, section.replace("}", f", spool: '{spool}'}}")))
    assert not caplog.records
    refuse_earlier_store(settings(tmp_path, section))
    assert str(spool) in caplog.text
