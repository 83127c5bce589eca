"""The board *Cache*: what the provider caches did, what broke them, and what the layout saved."""

from grafana.panels import SHARE, SIGNED, STACKED, Axis, Json, Query, Row, bars, board, choice_variable, lines, stat
from grafana.queries import (
    BOTH,
    COST,
    MODEL,
    PROMPT,
    REQUESTS,
    VARIABLES,
    a_minute,
    increase,
    most_often,
    net,
    quantile,
    rate,
)

READ = 'kind="read",' + MODEL
_BASIS = f'{BOTH},basis="$basis"'
_SELECTED_SAVED = net("increase", _BASIS)


def _saved_an_hour(basis: str) -> Query:
    selector = f'{BOTH},basis="{basis}"'
    return Query(f"({net('rate', selector)}) * 3600", basis)


def _at_a_glance() -> Row:
    read, prompt = increase("tokens_total", READ), increase("tokens_total", f"{PROMPT},{MODEL}")
    spent = increase("input_cost_usd_total", BOTH)
    return Row(
        "In the selected time",
        [
            stat(
                "Cache hit ratio",
                f"{read} / {prompt}",
                "percentunit",
                "Prompt tokens read from the provider's cache, as a share of all prompt tokens that a provider "
                "reported on. Weighted by tokens: a long prompt counts for more than a short one.",
                [("orange", 0.3), ("green", 0.6)],
                decimals=1,
            ),
            stat(
                "Net saved",
                _SELECTED_SAVED,
                "currencyUSD",
                "Saved minus lost against the client's own layout and markers, on the chosen basis: as the provider "
                "reported our prompts, or both layouts as the shadow cache bills them.",
                [("text", 0), ("green", 0.005)],
                decimals=2,
            ),
            stat(
                "Net saved share",
                f"({_SELECTED_SAVED}) / (({spent} or vector(0)) + {_SELECTED_SAVED})",
                "percentunit",
                "Net saved, as a share of what the prompts would have cost in the client's own layout.",
                [("text", 0), ("green", 0.01)],
                decimals=1,
            ),
            COST,
            REQUESTS,
        ],
    )


def _cache_rows() -> list[Row]:
    read, prompt = rate("tokens_total", READ, "model"), rate("tokens_total", f"{PROMPT},{MODEL}", "model")
    error = "prediction_error_tokens"
    over, under = rate(f"{error}_sum", 'side="over"'), rate(f"{error}_sum", 'side="under"')
    ratios = [(0.1, "10th percentile"), (0.5, "median"), (0.9, "90th percentile")]
    return [
        Row(
            "Cache",
            [
                lines(
                    "Prompt tokens a second",
                    "short",
                    Query(rate("tokens_total", f'kind!="output",{MODEL}', "kind"), "{{kind}}"),
                    text="Read from the cache, written to it, neither, and prompts that no provider reported on (our "
                    "own count).",
                    axis=Axis(
                        is_stacked=True,
                        colours={"read": "green", "write": "orange", "uncached": "red", "estimated": "text"},
                    ),
                ),
                lines(
                    "Hit ratio by model",
                    "percentunit",
                    Query(f"{read} / {prompt}", "{{model}}"),
                    text="Token-weighted.",
                    axis=SHARE,
                ),
                lines(
                    "Hit ratio per request",
                    "percentunit",
                    *(Query(quantile(share, "hit_ratio", MODEL), name) for share, name in ratios),
                    text="Half of the requests read at least the median's share of their prompt; one in ten less than "
                    "the lowest line's.",
                    axis=SHARE,
                ),
                lines(
                    "Prediction error",
                    "short",
                    Query(quantile(0.9, error, by="le, side"), "{{side}}, 90th percentile"),
                    Query(f"(({over} or vector(0)) - ({under} or vector(0))) / {rate(f'{error}_count')}", "net mean"),
                    text="How far the shadow cache's expected reads were from the reported ones: over means it "
                    "expected more. 90th percentile of each side, and the mean net error a request.",
                    axis=SIGNED,
                ),
            ],
        ),
        Row(
            "What caching is worth",
            [
                lines(
                    "Net saved an hour",
                    "currencyUSD",
                    *map(_saved_an_hour, ("reported", "shadow", "observed")),
                    text="By basis. Reported: our prompts as the provider billed them. Shadow: both layouts as the "
                    "shadow cache bills them. Observed: what mode observe would have saved, and did not.",
                    width=8,
                    axis=SIGNED,
                ),
                lines(
                    "Prompt cost as a share of no caching",
                    "percentunit",
                    Query(
                        f"{rate('input_cost_usd_total', BOTH, 'model')} / "
                        f"{rate('uncached_input_cost_usd_total', BOTH, 'model')}",
                        "{{model}}",
                    ),
                    text="What the prompts cost, divided by what they would have cost without any cache.",
                    width=8,
                ),
                bars(
                    "What providers reported, beside what was expected",
                    most_often("cache_deviations_total", MODEL, "kind, cause", "{{kind}}, {{cause}}", shows_none=False),
                    text="Requests in the selected time, by how the provider's report departs from what was expected, "
                    "and by the cause that the provider itself names.",
                    width=8,
                ),
            ],
        ),
    ]


def _break_row() -> Row:
    return Row(
        "What breaks the cache",
        [
            stat(
                "Breaks",
                increase("cache_breaks_total", MODEL),
                "short",
                "Requests that were read from the cache less than they could have been.",
            ),
            stat(
                "Lost to breaks",
                increase("cache_break_usd_total", MODEL),
                "currencyUSD",
                "What these requests cost more than if nothing had differed.",
                decimals=2,
            ),
            bars(
                "Breaks by kind",
                most_often("cache_breaks_total", MODEL, "kind", "{{kind}}", shows_none=False),
                text="In the selected time, by what differs from the request before, or by what the provider did. "
                "`stratiform explain` and /admin/sessions name the piece.",
                width=16,
            ),
            lines(
                "Lost to breaks an hour, by kind",
                "currencyUSD",
                Query(f"{rate('cache_break_usd_total', MODEL, 'kind')} * 3600", "{{kind}}"),
                text="What breaks cost, by their kind.",
                width=8,
                axis=STACKED,
            ),
            lines(
                "Lost to breaks an hour, by model",
                "currencyUSD",
                Query(f"{rate('cache_break_usd_total', MODEL, 'model')} * 3600", "{{model}}"),
                text="What breaks cost, by model.",
                width=8,
                axis=STACKED,
            ),
            lines(
                "Hit ratio by client",
                "percentunit",
                Query(
                    f"{rate('tokens_total', READ, 'client')} / {rate('tokens_total', f'{PROMPT},{MODEL}', 'client')}",
                    "{{client}}",
                ),
                text="By the recogniser that knows the client's texts.",
                width=8,
                axis=SHARE,
            ),
        ],
    )


def _plan_rows() -> list[Row]:
    kept = rate("plan_reasons_total", 'reason!~"marked|ordered|kept|assembled-tiers"')
    return [
        Row(
            "Plans and tiers",
            [
                bars(
                    "Plans by reason",
                    most_often("plan_reasons_total", "", "mode, reason", "{{mode}}: {{reason}}", shows_none=False),
                    text="Why each plan is what it is, in the selected time.",
                ),
                lines(
                    "Plans that changed nothing",
                    "percentunit",
                    Query(f"({kept} or vector(0)) / {rate('plan_reasons_total')}", "share"),
                    text="Share of plans that left the request as it came: passed through, observed, stood down, or "
                    "barred.",
                    axis=SHARE,
                ),
                lines(
                    "Context tokens by tier",
                    "short",
                    Query(rate("tier_tokens_total", "", "tier"), "{{tier}}"),
                    text="Files, maps and documents, by how long they have been unchanged.",
                    width=8,
                    axis=STACKED,
                ),
                lines(
                    "Prompt tokens by segment",
                    "short",
                    Query(rate("segment_tokens_total", "", "segment"), "{{segment}}"),
                    text="A segment ends at each cache marker.",
                    width=8,
                    axis=STACKED,
                ),
                lines(
                    "Moves between tiers",
                    "short",
                    a_minute("tier_moves_total", "", "source, target", "{{source}} to {{target}}"),
                    text="Pieces a minute.",
                    width=8,
                ),
            ],
        ),
        Row(
            "Structured context and prompts",
            [
                lines(
                    "Requests with structured context, a minute",
                    "short",
                    a_minute("assemblies_total", "", "assembly", "{{assembly}}"),
                    text="By how they were assembled. Economic: laid out by price. Tiered: in the tiers of policy "
                    "classic. Flat: asked for by the client, or by a mode below tier under policy classic, or after an "
                    "error of the proxy's own.",
                    width=8,
                ),
                bars(
                    "Items that were not shown",
                    most_often("assembly_skipped_items_total", "", "reason", "{{reason}}"),
                    text="In the selected time, by the reason. Unreadable: a selected file whose content is no text. "
                    "No-symbols: a file whose block of symbols is empty. Empty-page: a page without content. "
                    "No-prompt: an image of a request without a user message. Unknown-turn: a place in the history "
                    "that the request does not have.",
                    width=8,
                ),
                lines(
                    "Empty tiers, a minute",
                    "short",
                    a_minute("assembly_empty_tiers_total", "", "", "empty tiers"),
                    text="Tiers L0 to L3 in which nothing stood, of requests that were assembled in tiers.",
                    width=8,
                ),
                lines(
                    "Requests with prompts, a minute",
                    "short",
                    a_minute("composed_requests_total", "", "outcome", "{{outcome}}"),
                    a_minute("skipped_prompts_total", "", "reason", "left out: {{reason}}"),
                    text="Requests for which prompts are configured. Composed: they were sent with them. Failed: they "
                    "were sent without, as on_failure says. Refused: the client got an error. Left out: a single "
                    "prompt of a request had a mistake.",
                ),
                bars(
                    "Prompts that changed within conversations",
                    most_often("prompt_changes_total", "", "prompt", "{{prompt}}"),
                    text="In the selected time, by prompt. Each change of a text in the system text has the "
                    "conversation behind it written to the provider's cache again. A prompt that changes often belongs "
                    "to the position context, or needs steadier conditions.",
                ),
            ],
        ),
    ]


def cache_board() -> Json:
    """The dashboard."""
    basis = choice_variable("basis", "Saved, basis", ["reported", "shadow"])
    text = "What the provider caches did, what broke them, and what the layout saved."
    return board(
        "cache", "Cache", text, [*VARIABLES, basis], [_at_a_glance(), _break_row(), *_cache_rows(), *_plan_rows()]
    )
