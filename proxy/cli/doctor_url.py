"""``stratiform doctor --url``: the report of a running proxy, by its ledger and its sessions."""

import argparse
from contextlib import suppress

from proxy.cli.admin_client import Ask, ledger_entries, run_with
from proxy.doctor.remote import Ledger
from proxy.doctor.report import Report, report_of
from proxy.errors import NotFound

_SESSIONS = "200"


def examined(arguments: argparse.Namespace) -> Report:
    """Ask the proxy and report. Raises ConfigError where the master key is missing."""
    ledger = Ledger()

    async def work(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": arguments.since}):
            ledger.add(entry)
        with suppress(NotFound):
            for session in (await ask("GET", "sessions", {"limit": _SESSIONS}))["data"]:
                # Of some sessions only the figures are kept.
                with suppress(NotFound):
                    ledger.name(await ask("GET", f"sessions/{session['id']}/breakdown"))

    run_with(arguments, work)
    return report_of(ledger.clients, {}, [], 0)
