"""The page of all configuration keys, made from the table that checks them."""

from __future__ import annotations

from cli.reference.markdown import MADE_BY, cell, meanings
from config.keys import Key
from config.reload import RESTART_KEYS
from config.schema import DECLARED, KEYS, NAMES, SECTIONS

_HEAD = f"""\
# Configuration

{MADE_BY}
Values come from a YAML file (without one: `config/zen.yaml`, which ships with the service), then
from the environment, which wins. A key that is not in these tables is refused, and so is one that
stands twice. All faults are reported at once, each with its place, what came and what was expected.

Single values can be set by a variable: `ZEN_` + the path in capitals, `__` between section and key,
e.g. `ZEN_TIMERS__IDLE_TIMEOUT_S=30`. `DATABASE_URL` and `PUBSUB_EMULATOR_HOST` work too; `ZEN_…`
wins over them, and an empty one of the two counts as unset.

Edits of the file take effect while the service runs ([Configure](../operator/configure.md)), but
for keys that need a restart.

`*` stands for a name that you choose:
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *(f"- `{path}`: {cell(kind.expected)}" for path, kind in NAMES.items())]
    said = {
        f"{section}.{name}": words
        for section, (kind, _) in DECLARED.items()
        for name, words in meanings(kind).items()
    }
    for section, title in SECTIONS.items():
        keys = [key for key in KEYS if _section(key) == section]
        assert keys, f"no key in section {section!r}"
        heading = f"`{section}`: {title[0].lower()}{title[1:]}" if section else title
        parts += [f"\n## {heading}\n", "| Key | Value | Default | Meaning |", "|---|---|---|---|"]
        parts += [_row(key, said) for key in keys]
    return "\n".join(parts) + "\n\n" + _RELATIONS


def _section(key: Key) -> str:
    return key.path.split(".")[0] if "." in key.path else ""


def _row(key: Key, said: dict[str, str]) -> str:
    default = "**required**" if key.required else f"`{_default(key.default)}`"
    doc = key.doc or said[key.path]
    also = f" Also `{key.alias}`." if key.alias else ""
    once = " *Needs a restart.*" if key.path in RESTART_KEYS else ""
    return f"| `{key.path}` | {cell(key.kind.expected)} | {default} | {doc}{also}{once} |"


def _default(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


_RELATIONS = """\
## What must hold between keys

- A cluster is called `<GPUs per VM>x<GPU type>`, and the type stands in `gpus`.
- Its machine stands in `machines`; a machine with built-in GPUs has exactly those of the cluster.
- `vm_min` is at most `vm_max`. There is no default for `vm_max`.
- `regions` may be a list of names, or names with `zones`, `vm_max` and prices of their own.
- Zones belong to their region; each region has zones and a price, from the catalogue or its own.
- `<prefix>-<cluster>-<region>-vm`, the base instance name, has at most 58 characters: Google adds
  five. With the default prefix, `8xa100-80gb` in `northamerica-northeast1` gives 56.
- `pool: static` clusters have no group: no limit on that name, and no price means 0.
- `capacity.search_band` is at least `capacity.price_band`.
- A floor is `{days: mon-fri, from: "08:00", to: "18:00", timezone: Europe/Berlin, vm_min: 2}`; its
  `vm_min` is at most the cluster's `vm_max`.
- Timers: `self_stop_after_s` + `publish_timeout_s` < `lost_after_s`;
  `lost_after_s` ≥ 3 × `heartbeat_s`; `publish_timeout_s` ≤ `heartbeat_s`;
  3 × `leader_renew_s` ≤ `leader_lease_s`; `stockout_block_s` ≤ `stockout_block_max_s`.
"""
