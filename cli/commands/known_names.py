"""Filters that match nothing: a name that does not exist is a mistake, not an empty answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import BadInput

if TYPE_CHECKING:
    from cli.client import Client, Json


def refuse_unknown(
    client: Client,
    *,
    cluster: str | None = None,
    region: str | None = None,
    tenant: str | None = None,
) -> None:
    """BadInput for names that the service does not know. Asked only when nothing was found: what
    is left of a cluster that the configuration has lost is still shown."""
    from core.submission import unknown

    faults = []
    if cluster is not None or region is not None:
        clusters = client.get("/clusters")["clusters"]
        names = [found["name"] for found in clusters]
        regions = {place["region"] for found in clusters for place in found["regions"]}
        if cluster is not None and cluster not in names:
            faults.append(unknown("cluster", cluster, names, "--cluster"))
        if region is not None and region not in regions:
            faults.append(unknown("region", region, regions, "--region"))
    if tenant is not None:
        tenants = [found["tenant_id"] for found in every_tenant(client)]
        if tenant not in tenants:
            faults.append(unknown("tenant", tenant, tenants, "--tenant"))
    if faults:
        raise BadInput(faults)


def every_tenant(client: Client) -> list[Json]:
    """Of all pages, by name."""
    page = client.get("/tenants")
    found = list(page["tenants"])
    while page.get("next_after") is not None:
        page = client.get("/tenants", {"after": page["next_after"]})
        found += page["tenants"]
    return found
