"""Where state is kept, and what several workers need."""

from pathlib import Path

import pytest

from proxy.app.settings import ConfigError, Settings, load
from proxy.kit.messages import Environment

MODELS = "model_list: [{model_name: m, litellm_params: {model: openai/m, api_key: k}}]\n"


def read(folder: Path, section: str, **variables: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{MODELS}stratiform: {section}\n")
    return load(path, environment=Environment({"HOME": str(folder), **variables}))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:swordfish@redis.internal:6380/2", "redis://redis.internal:6380/2"),
        ("rediss://me:swordfish@redis.internal", "rediss://redis.internal"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
    ],
)
def test_a_redis_is_named_by_its_url_and_its_password_by_nothing(tmp_path: Path, url: str, name: str) -> None:
    settings = read(tmp_path, f"{{store: '{url}', teams: [{{name: a, keys: [sk-a]}}]}}")
    assert settings.store_url is not None
    assert settings.store_url.get_secret_value() == url
    assert settings.store_path is None
    assert settings.store_name == name
    assert "swordfish" not in repr(settings)


def test_a_redis_url_may_stand_in_the_environment(tmp_path: Path) -> None:
    settings = read(tmp_path, "{store: os.environ/STORE}", STORE="redis://:swordfish@h:1/0")
    assert settings.store_url is not None
    assert settings.store_name == "redis://h:1/0"


@pytest.mark.parametrize(
    "url",
    [
        "redis://", "redis://:1/0", "redis://h:notaport/0", "redis://h/x", "redis://h/0?ssl=no", "redis://[::1",
        "redis:h",
    ],
)  # fmt: skip
def test_what_is_no_redis_is_said_without_quoting_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"{{store: '{url.replace('h', 'swordfish')}'}}")
    (problem,) = caught.value.problems
    assert problem.startswith("stratiform.store: must be ")
    assert "swordfish" not in problem


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{store: 'rediss://h', store_ca: absent.pem}", r"store_ca: .*absent\.pem cannot be read: No such file"),
        ("{store: 'rediss://h', store_ca: config.yaml}", r"store_ca: .*config\.yaml holds no certificate in PEM form"),
        ("{store: 'redis://h', store_ca: absent.pem}", r"store_ca: is for a store that is reached with TLS"),
        ("{store_ca: absent.pem}", r"store_ca: is for a store that is reached with TLS"),
    ],
)
def test_authorities_that_cannot_be_used_are_said(tmp_path: Path, section: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"stratiform\.{problem}"):
        read(tmp_path, section)


@pytest.mark.parametrize("store", ["", "store: memory, ", "store: 'sqlite:x.sqlite', "])
def test_several_workers_need_a_store_that_they_share(tmp_path: Path, store: str) -> None:
    with pytest.raises(ConfigError, match=r"stratiform\.workers: more than one worker needs a store that they share"):
        read(tmp_path, f"{{{store}workers: 2}}")
    assert read(tmp_path, "{workers: 2, store: 'redis://h/0'}").stratiform.workers == 2
    assert read(tmp_path, f"{{{store}workers: 1}}").stratiform.workers == 1
