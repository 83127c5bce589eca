"""The paths on which a request asks a model."""

import pytest

from proxy.core.account.objects import asks_model, read_path


@pytest.mark.parametrize(
    "path",
    ["/responses", "/x/messages", "/completions/", "/%65mbeddings", "/Chat/Completions", "/models/x:generateContent"],
)
def test_paths_that_ask_a_model(path: str) -> None:
    assert asks_model("POST", read_path(path))
    assert not asks_model("GET", read_path(path))


@pytest.mark.parametrize("path", ["/threads/1/messages", "/files", "/responses/1/cancel", "/fine_tuning/jobs"])
def test_paths_that_do_something(path: str) -> None:
    assert not asks_model("POST", read_path(path))
