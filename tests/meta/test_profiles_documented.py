"""proxy/app/settings/MODELS.md has a row for every cache profile, and names no other."""

import re
from pathlib import Path

from proxy.protocol.providers import PROFILES

TEXT = (Path(__file__).resolve().parents[2] / "proxy" / "app" / "settings" / "MODELS.md").read_text("utf-8")


def test_every_profile_has_a_row() -> None:
    table = TEXT.split("## Cache profiles\n")[1].split("\n\n")[1]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(rows))) == sorted(PROFILES)
