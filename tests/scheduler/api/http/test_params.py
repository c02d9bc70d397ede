"""Query parameters: what OpenAPI says of them is what is taken."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from core.errors import BadInput
from scheduler.api.http.app import endpoints
from scheduler.api.http.params import Param, read_query
from tests.core.test_field_kinds_published import TEXTS
from tests.json_schema import fits
from tests.scheduler.api.fakes import House

PARAMS = {
    repr(param): param
    for endpoint in endpoints(House().services())
    if not endpoint.lenient
    for param in endpoint.params
    if param.kind == "text"
}


def taken(param: Param, text: str) -> bool:
    request = Request({"type": "http", "query_string": b"", "headers": []})
    request._query_params = _Given(param.name, text)  # type: ignore[assignment]
    try:
        read_query(request, (param,))
    except BadInput:
        return False
    return True


class _Given:
    """As after decoding: also texts that no URL can hold."""

    def __init__(self, name: str, text: str) -> None:
        self._pair = (name, text)

    def multi_items(self) -> list[tuple[str, str]]:
        return [self._pair]


@pytest.mark.parametrize("param", PARAMS.values(), ids=lambda param: param.name)
def test_published_form_is_the_check(param: Param) -> None:
    """In both directions. Words of a list are taken in any case."""
    schema = param.schema()
    one = schema["items"] if param.repeat else schema
    assert isinstance(one, dict)
    differ = [
        text
        for text in TEXTS
        if fits(one, text) != taken(param, text)
        and text.lower() not in [word.lower() for word in param.words]
    ]
    assert differ == []
