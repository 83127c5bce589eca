"""A body that does not fit a form is refused with what would fit."""

import pytest

from proxy.admin.forms import BudgetForm, Form, KeyForm, TeamForm, read
from proxy.errors import InvalidRequest


@pytest.mark.parametrize("form", [TeamForm, KeyForm, BudgetForm])
def test_a_field_that_there_is_not_is_refused_with_those_that_there_are(form: type[Form]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read({"expires": "90d"}, form)
    assert str(caught.value).startswith("The body is not right: Object contains unknown field `expires`; known are ")
    assert [name for name in form.__struct_fields__ if name not in str(caught.value)] == []
