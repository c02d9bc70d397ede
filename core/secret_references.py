"""References to secrets: what a job stores instead of a value, and what a reference may name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

SECRETS_MAX = 64
"""Of one job."""
VALUE_BYTES_MAX = 64 * 1024
"""As in Secret Manager; the kernel takes 128 KiB for one variable."""
VALUES_BYTES_MAX = 512 * 1024
"""Of one job, together."""
SECRET_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
NAME_WORDS = "1 to 128 letters, digits, '_' or '-'"
REFERENCE_WORDS = "zen://NAME, sm://PROJECT/NAME or sm://PROJECT/NAME/versions/3"
_STORED = "zen://"
_PROJECT = r"(?:[a-z0-9.-]{1,64}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"
_MANAGED = re.compile(
    rf"sm://(?P<project>{_PROJECT})/(?P<name>[A-Za-z0-9_-]{{1,255}})"
    r"(?:/versions/(?P<version>latest|[1-9][0-9]{0,9}))?\Z"
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
REFERENCE_PATTERN = (
    rf"^(?:{_STORED}[A-Za-z0-9_-]{{1,128}}|sm://{_PROJECT}/[A-Za-z0-9_-]{{1,255}}"
    r"(?:/versions/(?:latest|[1-9][0-9]{0,9}))?)$"
)
"""As OpenAPI says it."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """One that the tenant has set here (`zen secrets set`)."""

    name: str


@dataclass(frozen=True, slots=True)
class ManagedSecret:
    """One in Google Secret Manager."""

    project: str
    name: str
    version: str = "latest"


SecretReference = StoredSecret | ManagedSecret


def parse_reference(text: str) -> SecretReference | None:
    """What the text refers to; None: nothing."""
    if text.startswith(_STORED):
        name = text.removeprefix(_STORED)
        return StoredSecret(name) if SECRET_NAME.match(name) else None
    found = _MANAGED.match(text)
    if found is None:
        return None
    return ManagedSecret(found["project"], found["name"], found["version"] or "latest")


def check_secrets(value: object) -> str | None:
    """What was expected of the field `secrets`; None if it is right."""
    right = (
        isinstance(value, Mapping)
        and len(value) <= SECRETS_MAX
        and all(isinstance(name, str) and VARIABLE.match(name) for name in value)
        and all(isinstance(text, str) and parse_reference(text) for text in value.values())
    )
    if right:
        return None
    return f"an object of at most {SECRETS_MAX} variables with references: {REFERENCE_WORDS}"


def projects_of(references: Mapping[str, str]) -> dict[str, str]:
    """Variable → the project that its reference names, where it names one."""
    parsed = {name: parse_reference(text) for name, text in references.items()}
    return {name: one.project for name, one in parsed.items() if isinstance(one, ManagedSecret)}


def stored_of(references: Mapping[str, str]) -> dict[str, str]:
    """Variable → the name of the tenant's own secret, where it refers to one."""
    parsed = {name: parse_reference(text) for name, text in references.items()}
    return {name: one.name for name, one in parsed.items() if isinstance(one, StoredSecret)}


def missing_secret(tenant_id: str, name: str) -> str:
    """The tenant has no secret of this name, and what to do."""
    return (
        f"tenant {tenant_id} has no secret {_STORED}{name}; set it with: zen secrets set {name} "
        f"--tenant {tenant_id}"
    )


def project_fault(tenant_id: str, project: str, allowed: Collection[str]) -> str | None:
    """Why a tenant may not use secrets of a project; None: it may."""
    if project in allowed:
        return None
    return (
        f"tenant {tenant_id} may not use secrets of project {project}: an operator can allow it "
        f"with tenants.{tenant_id}.secret_projects in the configuration"
    )
