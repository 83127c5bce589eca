"""What forms do: each becomes one operation of the admin API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import to_builtins

from proxy.admin import AdminService, forms
from proxy.errors import NotFound

Fields = Mapping[str, str]
_FORMS: Final[Mapping[str, type[forms.TeamForm | forms.KeyForm | forms.BudgetForm]]] = {
    "teams": forms.TeamForm,
    "keys": forms.KeyForm,
    "budgets": forms.BudgetForm,
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
                made = await self._call("POST", kind, _body(fields, _FORMS[kind]))
                return Done(where, str(made.get("key", "")))
            case "keys", "revoke":
                await self._call("POST", f"keys/{name}/revoke", {})
            case "budgets", "raise":
                # An empty limit is none.
                limit = {one: fields[one].strip() or None for one in ("usd", "tokens", "expected") if one in fields}
                body = forms.read(limit, forms.BudgetForm, is_strict=False)
                await self._call("PATCH", f"budgets/{name}", to_builtins(body))
            case "budgets", "restore":
                await self._call("POST", f"budgets/{name}/set-spent", _body(fields, forms.SpentForm))
            case _:
                raise NotFound("There is no such form.")
        return Done(where)

    async def _call(self, method: str, path: str, body: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = (await self._service.answer(method, path, {}, body)).content
        return answer


def _body(fields: Fields, form: type[forms.Form]) -> Mapping[str, Any]:
    """The filled fields of a form as the admin API takes them. Raises InvalidRequest."""
    filled: dict[str, Any] = {one: fields[one].strip() for one in form.__struct_fields__ if fields.get(one, "").strip()}
    if "models" in filled:
        filled["models"] = [part.strip() for part in filled["models"].split(",") if part.strip()]
    found: Mapping[str, Any] = to_builtins(forms.read(filled, form, is_strict=False))
    return found
