"""The file is named, and not the message that holds it; and that changes nothing of what is found, or of its price."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.lab.doctor import CacheRules
from proxy.lab.doctor.report import ClientReport, Report, examine
from proxy.protocol.prices import PriceMap
from tests import doctor_logs as logs
from tests.examples import examples, sampled
from tests.fidelity.chats import AiderChat, File
from tests.unit.lab.replay.sessions import RECOGNISERS, setting
from tests.unit.planner.test_record_wire_traces import TRACES

PRICE = {"input_cost_per_token": 3e-6, "output_cost_per_token": 15e-6, "cache_read_input_token_cost": 0.3e-6}
PRICES = PriceMap({"gpt-4o": PRICE, "gpt-4.1": PRICE, "gpt-4.1-mini": PRICE})
NAMES = ("a.py", "src/b.py", "deep/er/c.py", "d.md")
TALK = tuple((f"question {number}", f"answer {number}") for number in range(3))


def report_of(path: Path, *, names: bool = True) -> Report:
    used = setting(recognisers=RECOGNISERS if names else ())
    return examine([path], CacheRules(PRICES), used, lambda path, read, size: None)


def lost(report: Report) -> list[tuple[str, int, int, float]]:
    """What each client has lost, whatever is to blame."""
    return [
        (
            one.client,
            sum(c.breaks for c in one.culprits),
            sum(c.lost_tokens for c in one.culprits),
            round(one.lost_usd, 9),
        )
        for one in report.clients
    ]


def chat(files: Sequence[File], history: int) -> AiderChat:
    return AiderChat(
        system="Act as an expert.", examples=False, read_only=tuple(files), outline=(), history=TALK[:history],
        files=(), asks=False, reflections=(), prompt=f"question {history}", reminder="", reminder_role="user",
    )  # fmt: skip


def file(name: str, version: int = 0) -> File:
    return File(name, "".join(f"line {n} of {name}, version {version}\n" for n in range(60)))


def client_of(folder: Path, *requests: Sequence[File]) -> ClientReport:
    rows = [
        {"t": 10.0 * number, "client": "aider", "session": "s", "request": chat(files, number + 1).body()}
        for number, files in enumerate(requests)
    ]
    path = folder / "log.jsonl"
    path.write_bytes(logs.json_lines(rows))
    plain, named = report_of(path, names=False), report_of(path)
    assert lost(named) == lost(plain)
    (found,) = named.clients
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(st.permutations(NAMES), st.integers(1, 4), st.data())
def test_the_first_file_that_differs_is_named(
    tmp_path: Path, names: Sequence[str], count: int, data: st.DataObject
) -> None:
    files = [file(name) for name in names[:count]]
    at = data.draw(st.integers(0, count - 1))
    changes = {
        "changed": [*files[:at], file(names[at], version=1), *files[at + 1 :]],
        "disappeared": [*files[:at], *files[at + 1 :]],
        "appeared": [*files[:at], file("new.py"), *files[at:]],
    }
    kind = data.draw(st.sampled_from([kind for kind, after in changes.items() if after]))
    (culprit,) = client_of(tmp_path, files, changes[kind]).culprits
    name = "new.py" if kind == "appeared" else names[at]
    assert (culprit.kind, culprit.piece_kind, culprit.piece, culprit.is_waste) == (kind, "file", f"file:{name}", False)
    assert culprit.advice.startswith(f"the file {name} ")


def test_files_in_another_order_are_waste(tmp_path: Path) -> None:
    files = [file(name) for name in NAMES]
    (culprit,) = client_of(tmp_path, files, [*files[1:], files[0]]).culprits
    assert (culprit.kind, culprit.piece, culprit.is_waste) == ("reordered", "file:a.py", True)


def test_two_messages_of_the_same_files_are_told_as_messages(tmp_path: Path) -> None:
    """What differs beside the files (here a name of the user's) is no file."""
    files = [file(name) for name in NAMES]
    bodies = [chat(files, 1).body(), chat(files, 2).body()]
    for index, body in enumerate(bodies):
        body["messages"][1]["content"] = [{"type": "text", "text": body["messages"][1]["content"], "of": index}]
    path = tmp_path / "log.jsonl"
    rows = [{"t": 1.0 * n, "client": "aider", "session": "s", "request": body} for n, body in enumerate(bodies)]
    path.write_bytes(logs.json_lines(rows))
    (found,) = report_of(path).clients
    assert [(c.kind, c.piece_kind, c.piece) for c in found.culprits] == [("changed", "turn", "user")]


AIDER = [path for path in TRACES if "aider" in path.name]


@pytest.mark.parametrize("path", sampled(AIDER, 6, 2), ids=[path.name.removesuffix(".jsonl.xz") for path in AIDER])
def test_names_change_nothing_of_what_is_found_in_recorded_sessions(path: Path) -> None:
    plain, named = report_of(path, names=False), report_of(path)
    assert lost(named) == lost(plain)
    told = [c for one in named.clients for c in one.culprits if c.piece_kind in ("file", "symbol")]
    assert told, "aider's files and map are named"
    unnamed = [c for one in plain.clients for c in one.culprits if c.piece_kind in ("file", "symbol")]
    assert unnamed == []
