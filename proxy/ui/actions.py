"""What forms do: each becomes one operation of the admin API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from proxy.admin import AdminService
from proxy.errors import InvalidRequest, NotFound

Fields = Mapping[str, str]
_NUMBERS: Final = frozenset({"requests_per_minute", "tokens_per_minute", "tokens", "soft_tokens"})
_AMOUNTS: Final = frozenset({"usd", "soft_usd", "spent"})
_TAKEN: Final[Mapping[str, frozenset[str]]] = {
    "teams": frozenset({"name", "mode", "models", "requests_per_minute", "tokens_per_minute"}),
    "keys": frozenset({"team", "user", "mode", "models", "expires_at", "note"}),
    "budgets": frozenset({"team", "name", "scope", "subject", "usd", "tokens", "window"}),
}


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation came to: where to go on, or a new key, which is shown once."""

    where: str
    key: str = ""


class Actions:
    """Does what the forms of the pages ask for."""

    def __init__(self, service: AdminService) -> None:
        self._service = service

    async def do(self, kind: str, fields: Fields) -> Done:
        """Do it. Raises ProxyError, with a sentence for the page."""
        action, name = fields.get("action", ""), fields.get("id", "")
        where = f"/ui/{kind}?{urlencode({'team': fields['back']})}" if fields.get("back") else f"/ui/{kind}"
        match kind, action:
            case (("teams" | "keys" | "budgets"), "create"):
                made = await self._call("POST", kind, _body(fields, _TAKEN[kind]))
                return Done(where, str(made.get("key", "")))
            case "keys", "revoke":
                await self._call("POST", f"keys/{name}/revoke", {})
            case "budgets", "raise":
                unit = "tokens" if "tokens" in fields else "usd"
                body = _body(fields, {unit}) | {"expected": _number("expected", fields.get("expected", ""))}
                await self._call("PATCH", f"budgets/{name}", body)
            case "budgets", "restore":
                await self._call("POST", f"budgets/{name}/set-spent", _body(fields, {"spent", "subject"}))
            case _:
                raise NotFound("There is no such form.")
        return Done(where)

    async def _call(self, method: str, path: str, body: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = (await self._service.answer(method, path, {}, body)).content
        return answer


def _body(fields: Fields, taken: frozenset[str] | set[str]) -> dict[str, Any]:
    """The filled fields of a form as the admin API takes them."""
    found: dict[str, Any] = {}
    for name in sorted(taken & fields.keys()):
        text = fields[name].strip()
        if not text:
            continue
        if name in _NUMBERS or name in _AMOUNTS:
            found[name] = _number(name, text)
        elif name == "models":
            found[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            found[name] = text
    return found


def _number(name: str, text: str) -> float | int | None:
    """An amount; None for an empty text, which means that there is no limit."""
    if not text.strip():
        return None
    try:
        amount = float(text)
        return int(amount) if amount.is_integer() and name in (*_NUMBERS, "expected") else amount
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"'{name}' must be a number.", param=name) from error
