"""The board *Budgets*: what teams spend, and what is left of their budgets."""

from grafana.panels import SIGNED, STACKED, Json, Panel, Query, Row, bars, board, lines, stat
from grafana.queries import BOTH, COST, MODEL, REQUESTS, TEAM, VARIABLES, a_minute, count, increase, rate


def _budget_rows() -> list[Row]:
    left = f"min by (team) (stratiform_budget_remaining_usd{{{TEAM}}})"
    end = f"min by (team) (stratiform_budget_window_end_seconds{{{TEAM}}})"
    burn = rate("cost_usd_total", TEAM, "team")
    return [
        Row(
            "In the selected time",
            [
                COST,
                stat(
                    "Cost of prompts",
                    increase("input_cost_usd_total", BOTH),
                    "currencyUSD",
                    "What prompts cost: the part of the cost that caching makes smaller.",
                    decimals=2,
                ),
                stat(
                    "Least left of a budget",
                    f"min({left})",
                    "currencyUSD",
                    "What is left of the hard budget that is nearest to its end. Negative: overdrawn.",
                    [("orange", 0.005), ("green", 1)],
                    decimals=2,
                ),
                stat(
                    "Refused: budget spent",
                    f"{increase('budget_rejections_total', TEAM)} or vector(0)",
                    "short",
                    "Requests that were refused because a hard budget is spent.",
                ),
                stat(
                    "Beyond reservations",
                    f"{increase('budget_overrun_usd_total', TEAM)} or vector(0)",
                    "currencyUSD",
                    "Cost beyond what was reserved under a hard limit: answers that were longer than assumed.",
                    decimals=2,
                ),
                REQUESTS,
            ],
        ),
        Row(
            "Spend",
            [
                _spend("Cost an hour by model", "model"),
                _spend("Cost an hour by team", "team"),
                _spend("Cost an hour by client", "client"),
            ],
        ),
        Row(
            "Budgets",
            [
                lines(
                    "Budgets: what is left",
                    "currencyUSD",
                    Query(left, "{{team}}"),
                    text="Teams with a hard budget: the least of each team's budgets.",
                    width=8,
                    axis=SIGNED,
                ),
                lines(
                    "Until a budget is spent",
                    "s",
                    Query(f"clamp_min({left}, 0) / ({burn} > 0)", "{{team}}: at this rate"),
                    Query(f"clamp_min({end} - time(), 0) < inf", "{{team}}: its window ends"),
                    text="A team whose first line is below its second spends its budget before that begins anew. "
                    "Budgets without an end, and rolling ones, have no second line.",
                    width=8,
                ),
                lines(
                    "Limits, requests a minute",
                    "short",
                    a_minute("budget_rejections_total", TEAM, "team", "{{team}}: budget spent"),
                    a_minute("soft_limits_total", TEAM, "team", "{{team}}: soft limit passed"),
                    a_minute("rate_limited_total", TEAM, "team, unit", "{{team}}: rate limit, {{unit}}"),
                    text="Refused for a spent budget or a rate limit; and sent although a soft limit is passed.",
                    width=8,
                ),
            ],
        ),
        Row(
            "The accounts",
            [
                bars(
                    "Gaps in the accounts",
                    count("unpriced_requests_total", MODEL, "no price"),
                    count("usage_missing_total", MODEL, "no usage"),
                    count("settlements_lost_total", "", "settlements lost"),
                    count("reservations_expired_total", "", "billed as reserved"),
                    text="Exchanges whose model has no price (their cost counts as 0: add it to stratiform.prices), "
                    "answers without usage (their tokens are estimated), settlements that nothing could keep, and "
                    "reservations of workers that died.",
                    width=8,
                ),
                lines(
                    "The store",
                    "short",
                    Query("max(stratiform_store_away)", "away"),
                    Query("max(stratiform_store_exchanged)", "exchanged"),
                    Query("sum(stratiform_spool_pending)", "settlements that wait"),
                    text="Away: it does not answer, and budgets go by on_store_error. Exchanged: it is not the one "
                    "that was known. Settlements wait in the spool until the store takes them.",
                    width=8,
                ),
                lines(
                    "Calls of the store that failed, and notices, a minute",
                    "short",
                    a_minute("store_errors_total", "", "operation", "store: {{operation}}"),
                    a_minute("notices_total", "", "outcome", "notice: {{outcome}}"),
                    a_minute("keep_alive_total", TEAM, "outcome", "keep-alive: {{outcome}}"),
                    text="Notices to webhooks; refreshes of prefixes (stratiform.keep_alive), which teams pay.",
                    width=8,
                ),
            ],
        ),
    ]


def _spend(title: str, by: str) -> Panel:
    return lines(
        title,
        "currencyUSD",
        Query(f"{rate('cost_usd_total', BOTH, by)} * 3600", f"{{{{{by}}}}}"),
        axis=STACKED,
        width=8,
    )


def budgets_board() -> Json:
    """The dashboard."""
    return board(
        "budgets", "Budgets", "What teams spend, and what is left of their budgets.", VARIABLES, _budget_rows()
    )
