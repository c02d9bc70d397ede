"""The keys of `tenants` that say what jobs of a tenant may use."""

from __future__ import annotations

from typing import Final

from config.keys import Key
from config.value_types import PROJECTS, SERVICE_ACCOUNT, optional

TENANT_USE_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "tenants.*.secret_projects",
        PROJECTS,
        [],
        "Google projects whose secrets (`sm://PROJECT/NAME`) its jobs may use. The scheduler reads "
        "them with its own account, so name only projects that are the tenant's.",
    ),
    Key(
        "tenants.*.google_account",
        optional(SERVICE_ACCOUNT),
        None,
        "The service account that its jobs may call Google as (`google_token: true`). The "
        "scheduler's account needs `roles/iam.serviceAccountTokenCreator` on it.",
    ),
)
