"""zen defaults …: kept, shown with their source, forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands.submissions import Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api


def test_set_show_unset(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no defaults" in zen("defaults").out
    assert zen("defaults", "set", "tenant", "vision").code == 0
    monkeypatch.setenv("ZEN_DEFAULT_USER", "alice")
    found = zen("defaults", "show", "--json").json["defaults"]
    assert found["tenant"]["value"] == "vision"
    assert found["user"] == {"value": "alice", "source": "ZEN_DEFAULT_USER"}
    assert zen("defaults", "unset", "tenant").code == 0
    assert "tenant" not in zen("defaults", "--json").json["defaults"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(("set", "colour", "x"), 2), (("set", "tenant", "a b"), 1), (("unset", "colour"), 2)],
)
def test_wrong_words(zen: Zen, words: tuple[str, ...], code: int) -> None:
    ended = zen("defaults", *words)
    assert ended.code == code
    assert "expected" in ended.err


@pytest.mark.usefixtures("accepts")
def test_submission_gets_them(zen: Zen, api: Api) -> None:
    """What the line says wins; a number of GPUs leaves the default cluster out."""
    for name, value in (("tenant", "vision"), ("user", "bob"), ("cluster", "1xl4")):
        zen("defaults", "set", name, value)
    zen("submit", "--user", "ann", "--", "true")
    said = {name: api.body()[name] for name in ("tenant_id", "user_id", "cluster")}
    assert said == {"tenant_id": "vision", "user_id": "ann", "cluster": "1xl4"}
    zen("submit", "--gpus", "2", "--", "true")
    assert "cluster" not in api.body()
