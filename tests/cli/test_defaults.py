"""Defaults of submissions: who wins, and a file that cannot be used."""

from __future__ import annotations

import pytest

from cli.defaults import (
    BadDefaults,
    defaults_file,
    keep_defaults,
    kept_defaults,
    read_defaults,
    with_defaults,
)


def test_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_defaults({"tenant": "a", "user": "u"})
    monkeypatch.setenv("ZEN_DEFAULT_TENANT", "b")
    assert {name: one.value for name, one in read_defaults().items()} == {
        "tenant": "b",
        "user": "u",
    }
    assert with_defaults({"tenant_id": "c"}) == {"tenant_id": "c", "user_id": "u"}


@pytest.mark.parametrize("text", ["{", "[]", '{"tenant": 1}'])
def test_damaged_file_is_named(text: str) -> None:
    keep_defaults({})
    defaults_file().write_text(text)
    with pytest.raises(BadDefaults, match=r"defaults\.json.*delete it"):
        kept_defaults()
