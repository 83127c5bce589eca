"""What the dashboards are made of: panels, their queries, and their places, as Grafana's JSON has them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_REDUCED: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_LEGEND: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and what its series are called. ``instant``: its value now, and not over time."""

    expr: str
    legend: str = ""
    instant: bool = False

    def target(self, number: int) -> Json:
        """The query as a panel's so-manieth target."""
        return {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend,
            "range": not self.instant,
            "instant": self.instant,
        }


@dataclass(frozen=True)
class Panel:
    """A panel of that size in Grafana's grid, which is 24 wide."""

    kind: str
    title: str
    queries: tuple[Query, ...]
    text: str = ""
    width: int = 12
    height: int = 8
    field_config: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def json(self, number: int, x: int, y: int) -> Json:
        """The panel at its place."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": _SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"overrides": [], **self.field_config},
            "options": dict(self.options),
            "targets": [query.target(place) for place, query in enumerate(self.queries)],
        }


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


def stat(
    title: str, expr: str, unit: str, text: str, steps: Iterable[tuple[str, float]] = (), *, decimals: int = 0
) -> Panel:
    """One number of the selected time. ``steps`` are its colours, each with the value that it begins at."""
    colours = [("text", None), *steps]
    if steps:
        colours[0] = ("red", None)
    defaults = {
        "color": {"mode": "thresholds"},
        "decimals": decimals,
        "thresholds": {"mode": "absolute", "steps": [{"color": name, "value": value} for name, value in colours]},
        "unit": unit,
    }
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _REDUCED,
        "textMode": "auto",
        "wideLayout": True,
    }
    queries = (Query(expr, instant=True),)
    return Panel("stat", title, queries, text, 4, 4, {"defaults": defaults}, options)


@dataclass(frozen=True)
class Axis:
    """How series over time are drawn: ``is_stacked`` on top of each other; ``is_signed``: they may be negative;
    ``most`` ends the axis; ``colours`` of series by their name."""

    is_stacked: bool = False
    is_signed: bool = False
    most: float | None = None
    colours: Mapping[str, str] = field(default_factory=dict)


STACKED, SIGNED, SHARE = Axis(is_stacked=True), Axis(is_signed=True), Axis(most=1)


def lines(title: str, unit: str, *queries: Query, text: str = "", width: int = 12, axis: Axis | None = None) -> Panel:
    """Series over time."""
    axis = axis or Axis()
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 30 if axis.is_stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if axis.is_stacked else "none", "group": "A"},
    }
    defaults: Json = {"color": {"mode": "palette-classic"}, "unit": unit, "custom": custom}
    defaults |= {} if axis.is_signed else {"min": 0}
    defaults |= {} if axis.most is None else {"max": axis.most}
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in axis.colours.items()
    ]
    options = {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}}
    config = {"defaults": defaults, "overrides": overrides}
    return Panel("timeseries", title, queries, text, width, 8, config, options)


def bars(title: str, *queries: Query, text: str = "", width: int = 12, unit: str = "short") -> Panel:
    """The values of the selected time, a bar each."""
    defaults = {
        "color": {"mode": "palette-classic"},
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": [{"color": "green", "value": None}]},
        "unit": unit,
    }
    options = {
        "displayMode": "basic",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": _REDUCED,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    return Panel("bargauge", title, queries, text, width, 8, {"defaults": defaults}, options)


def states(title: str, names: Sequence[tuple[str, str]], query: Query, text: str = "", width: int = 12) -> Panel:
    """States over time; ``names`` are the name and the colour of each value, from 0 on."""
    shown = {str(value): {"index": value, "text": name} for value, (name, _) in enumerate(names)}
    steps = [{"color": colour, "value": value or None} for value, (_, colour) in enumerate(names)]
    defaults = {
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 70, "lineWidth": 0, "spanNulls": False},
        "mappings": [{"type": "value", "options": shown}],
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel("state-timeline", title, (query,), text, width, 8, {"defaults": defaults}, options)


def placed(rows: Iterable[Row]) -> list[Json]:
    """The panels of a board, each under its heading, from left to right and from top to bottom."""
    found: list[Json] = []
    y = 0
    for row in rows:
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y},
            }
        )
        y, x, height = y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > _WIDTH:
                y, x, height = y + height, 0, 0
            found.append(panel.json(len(found) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return found


def label_variable(name: str, label: str, metric: str) -> Json:
    """A choice among the values that a label of a metric has."""
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery", "qryType": 1},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }


def choice_variable(name: str, label: str, values: Sequence[str]) -> Json:
    """A choice among fixed values, the first of which is the default."""
    options = [{"selected": value == values[0], "text": value, "value": value} for value in values]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ",".join(values),
        "multi": False,
        "includeAll": False,
        "current": options[0],
        "options": options,
        "hide": 0,
        "skipUrlSync": False,
    }


def board(name: str, title: str, text: str, variables: Sequence[Json], rows: Sequence[Row]) -> Json:
    """A whole dashboard; ``name`` is the end of its id and of its file's name."""
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "current": {},
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }
    note = {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }
    link = {
        "type": "dashboards",
        "title": "Stratiform",
        "tags": ["stratiform"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }
    return {
        "uid": f"stratiform-{name}",
        "title": f"Stratiform: {title}",
        "description": text,
        "tags": ["stratiform", "llm", "prompt-caching"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "liveNow": False,
        "links": [link],
        "annotations": {"list": [note]},
        "templating": {"list": [source, *variables]},
        "panels": placed(rows),
    }
