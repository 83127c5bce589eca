"""``stratiform doctor --url``: the report of a running proxy, by its ledger and its sessions."""

import argparse
from contextlib import suppress

from proxy.cli.admin_client import Ask, ledger_entries, run_with
from proxy.doctor.findings import Client
from proxy.doctor.remote import count_entry, name_pieces
from proxy.doctor.report import Report, report_of
from proxy.errors import NotFound

_SESSIONS = "200"


def examined(arguments: argparse.Namespace) -> Report:
    """Ask the proxy and report. Raises ConfigError where the master key is missing."""
    clients: dict[str, Client] = {}

    async def work(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": arguments.since}):
            count_entry(clients, entry)
        with suppress(NotFound):
            for session in (await ask("GET", "sessions", {"limit": _SESSIONS}))["data"]:
                # Of some sessions only the figures are kept.
                with suppress(NotFound):
                    name_pieces(clients, await ask("GET", f"sessions/{session['id']}/breakdown"))

    run_with(arguments, work)
    return report_of(clients, {}, [], 0)
