"""``python -m grafana``: write the dashboards as JSON files into this folder."""

import json
from pathlib import Path

from grafana.budgets_board import budgets_board
from grafana.cache_board import cache_board
from grafana.panels import Json
from grafana.proxy_board import proxy_board


def boards() -> dict[str, Json]:
    """The dashboards by their names."""
    return {"cache": cache_board(), "budgets": budgets_board(), "proxy": proxy_board()}


def text_of(board: Json) -> str:
    """A dashboard as its file has it."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, board in boards().items():
        (Path(__file__).parent / f"{name}.json").write_text(text_of(board), "utf-8")
