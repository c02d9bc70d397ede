"""zen secrets: values come from stdin or a file, never from the command line, and are not shown."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.secret_references import VALUE_BYTES_MAX
from scheduler.api.examples import example_of
from scheduler.api.routes.secrets import SecretOut

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
PATH = "/api/v1/secrets"
EXAMPLE = {**example_of(SecretOut), "reference": "zen://hf-token", "version": 3}


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_value_comes_from_stdin_without_its_newline(
    zen: Zen, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("PUT", f"{PATH}/hf-token", EXAMPLE)
    piped(monkeypatch, b"hush hush\n")
    ended = zen("secrets", "set", "hf-token", "--tenant", "ml")
    assert ended.code == 0, ended.err
    assert api.body() == {"value": "hush hush"}
    assert api.query() == {"tenant_id": "ml"}
    assert "--secret HF_TOKEN=zen://hf-token" in ended.out
    assert "hush" not in ended.out + ended.err


def test_a_value_comes_from_a_file(zen: Zen, api: Api, tmp_path: Path) -> None:
    api.on("PUT", f"{PATH}/hf-token", EXAMPLE)
    file = tmp_path / "token"
    file.write_text("line one\nline two\r\n")
    assert zen("secrets", "set", "hf-token", "--file", str(file)).code == 0
    assert api.body() == {"value": "line one\nline two"}


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe", b"x" * (VALUE_BYTES_MAX + 1)])
def test_what_no_variable_can_hold_is_not_sent(
    zen: Zen, api: Api, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    piped(monkeypatch, data)
    assert zen("secrets", "set", "hf-token").code == 1
    assert api.requests == []


def test_a_value_on_the_command_line_is_a_wrong_call(zen: Zen, api: Api) -> None:
    assert zen("secrets", "set", "hf-token", "hush").code == 2
    assert api.requests == []


def test_the_list_has_names_and_versions(zen: Zen, api: Api) -> None:
    api.on("GET", PATH, {"secrets": [EXAMPLE]})
    assert "zen://hf-token" in zen("secrets").out
    assert "3" in zen("secrets", "list").out


def test_a_secret_is_deleted(zen: Zen, api: Api) -> None:
    api.on("DELETE", f"{PATH}/hf-token", {"name": "hf-token", "tenant_id": "ml"})
    assert "hf-token of ml is gone" in zen("secrets", "delete", "hf-token").out


def test_a_key_file_is_made_then_gets_a_newer_key(zen: Zen, tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    assert "1 keys" in zen("secrets", "key", str(file)).out
    assert "2 keys" in zen("secrets", "key", str(file)).out
    assert file.stat().st_mode & 0o777 == 0o600
