"""References to secrets: what is one, and what is refused."""

from __future__ import annotations

import pytest

from core.secret_references import (
    SECRETS_MAX,
    ManagedSecret,
    StoredSecret,
    check_secrets,
    parse_reference,
    projects_of,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("zen://HF_TOKEN", StoredSecret("HF_TOKEN")),
        ("sm://my-project/hf-token", ManagedSecret("my-project", "hf-token")),
        ("sm://my-project/hf/versions/3", ManagedSecret("my-project", "hf", "3")),
        ("sm://my-project/hf/versions/latest", ManagedSecret("my-project", "hf")),
        ("sm://example.com:my-project/hf", ManagedSecret("example.com:my-project", "hf")),
    ],
)
def test_a_reference_names_one_secret(text: str, found: object) -> None:
    assert parse_reference(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "hush", "zen://", "zen://a/b", "zen://../x", "zen://a\n", "sm://my-project"),
        *("sm://my-project/", "sm://my-project/x/versions/0", "sm://my-project/x/versions/-1"),
        *(
            "sm://my-project/x/versions/3/..",
            "sm://../x",
            "sm://my-project/x?y",
            "SM://my-project/x",
        ),
        *("sm://my-project/x\n", "sm://my-project/x/versions/3\n", "sm://my project/x"),
    ],
)
def test_everything_else_is_none(text: str) -> None:
    assert parse_reference(text) is None


def test_the_field_takes_variables_with_references() -> None:
    assert check_secrets({"HF_TOKEN": "zen://HF_TOKEN"}) is None
    many = {f"V{n}": "zen://a" for n in range(SECRETS_MAX + 1)}
    for wrong in (
        {"HF-TOKEN": "zen://a"},
        {"A": "hush"},
        {"A": None},
        ["zen://a"],
        "zen://a",
        many,
    ):
        assert "zen://NAME" in (check_secrets(wrong) or "")


def test_projects_are_named_by_variable() -> None:
    references = {"A": "zen://a", "B": "sm://my-project/b"}
    assert projects_of(references) == {"B": "my-project"}
