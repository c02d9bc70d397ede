"""References become values, at the last moment: when a start message is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from core.errors import Conflict, SecretRefused, SecretsAway
from core.ports import ManagedSecrets
from core.secret_references import (
    VALUE_BYTES_MAX,
    VALUES_BYTES_MAX,
    ManagedSecret,
    SecretReference,
    StoredSecret,
    missing_secret,
    parse_reference,
    project_fault,
)
from scheduler.secrets.tenant_secrets import TenantSecrets, value_bytes
from scheduler.secrets.vault import KeyMissing


class SecretResolver:
    """`projects`: tenant → the projects whose secrets its jobs may use."""

    def __init__(
        self,
        stored: TenantSecrets,
        manager: ManagedSecrets,
        projects: Callable[[str], Collection[str]],
    ) -> None:
        self._stored, self._manager, self._projects = stored, manager, projects

    async def resolve(self, tenant_id: str, references: Mapping[str, str]) -> dict[str, str]:
        """Variable → value, all of them; SecretRefused, SecretsAway, StoreDown."""
        values: dict[str, str] = {}
        for variable, text in references.items():
            reference = parse_reference(text)
            if reference is None:
                raise SecretRefused(f"secrets.{variable}: {text[:80]} is no reference to a secret")
            values[variable] = await self._value(tenant_id, variable, reference)
        if sum(len(value.encode()) for value in values.values()) > VALUES_BYTES_MAX:
            raise SecretRefused(f"secrets: more than {VALUES_BYTES_MAX} bytes together")
        return values

    async def _value(self, tenant_id: str, variable: str, reference: SecretReference) -> str:
        match reference:
            case StoredSecret():
                try:
                    found = await self._stored.value(tenant_id, reference.name)
                except KeyMissing as error:  # it is given to one replica after another
                    raise SecretsAway(f"secrets.{variable}: {error}") from None
                except Conflict as error:
                    raise SecretRefused(f"secrets.{variable}: {error}") from None
            case ManagedSecret():
                found = await self._managed(tenant_id, variable, reference)
            case _:
                assert_never(reference)
        if found is None:
            raise SecretRefused(f"secrets.{variable}: {missing_secret(tenant_id, reference.name)}")
        return found

    async def _managed(self, tenant_id: str, variable: str, secret: ManagedSecret) -> str:
        if (
            fault := project_fault(tenant_id, secret.project, self._projects(tenant_id))
        ) is not None:
            raise SecretRefused(f"secrets.{variable}: {fault}")
        try:
            found = (await self._manager.access(secret)).decode()
        except SecretRefused as error:
            raise SecretRefused(f"secrets.{variable}: {error}") from None
        except UnicodeDecodeError:
            found = ""
        if value_bytes(found) is None:
            expected = f"1 to {VALUE_BYTES_MAX} bytes of text without NUL characters"
            name = f"sm://{secret.project}/{secret.name}"
            raise SecretRefused(f"secrets.{variable}: {name} is not {expected}")
        return found
