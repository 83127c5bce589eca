"""The counters of budgets and rate limits: their names in the store, and the charges on them."""

from dataclasses import replace
from hashlib import blake2b
from re import ASCII, compile

from proxy.core.money.budget import Rule
from proxy.spend.windows import Window
from proxy.storage.port import Charge

_SIMPLE = compile(r"[\w.@+/-]{1,64}", ASCII)


def account_of(rule: Rule, window: Window) -> str:
    """The counter of a rule in one of its windows."""
    whom = rule.whom or "-"
    if not _SIMPLE.fullmatch(whom) or rule.whom == "-":
        whom = "~" + blake2b(whom.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{'r' if rule.is_rate else 'b'}:{rule.id}:{whom}:{window.name}"


def charge_of(rule: Rule, window: Window, amount: int = 0, expected: int = 0, limit: int | None = None) -> Charge:
    """A charge on the counter of a rule in one of its windows."""
    within = tuple(account_of(rule, replace(window, name=name)) for name in window.within)
    return Charge(account_of(rule, window), amount, limit, window.keep_s, expected, within)


def counter_of(team: str, rule: Rule) -> str:
    """The counter of a rule in whatever window, by its name among those of all teams."""
    return f"{team}:{account_of(rule, Window('', None, None))}"
