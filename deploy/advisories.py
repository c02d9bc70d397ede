"""Known vulnerabilities in the packages of the image, by pip-audit. `.ci/supply` runs it.

The advisories come from an index that CI may not reach. A check that did not take place is told as
such, never as a check that found nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.runtime_lock import ROOT, RUNTIME_LOCK

TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What pip-audit found."""

    vulnerable: tuple[str, ...]
    checked: int
    unknown: tuple[str, ...]
    """Packages about which the index had no answer."""

    def words(self) -> str:
        if self.vulnerable:
            return "\n".join(("known vulnerabilities:", *self.vulnerable))
        if not self.checked:
            return "skipped: the index of advisories answered for none of the packages"
        less = f"; no answer for {', '.join(self.unknown)}" if self.unknown else ""
        return f"{self.checked} packages without a known vulnerability{less}"


def verdict_of(report: Mapping[str, Any]) -> Verdict:
    """From pip-audit's JSON."""
    rows: Sequence[Mapping[str, Any]] = report["dependencies"]
    return Verdict(
        vulnerable=tuple(
            f"  {row['name']} {row['version']}: {found['id']}, "
            f"mended in {', '.join(found['fix_versions']) or 'no version yet'}"
            for row in rows
            for found in row.get("vulns", ())
        ),
        checked=sum("skip_reason" not in row for row in rows),
        unknown=tuple(row["name"] for row in rows if "skip_reason" in row),
    )


def main() -> int:
    words = (str(ROOT / ".venv-tools" / "bin" / "pip-audit"), "--disable-pip", "--require-hashes")
    form = ("--progress-spinner", "off", "--format", "json", "-r", str(RUNTIME_LOCK))
    try:
        done = subprocess.run(
            (*words, *form), capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        verdict = verdict_of(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        print("advisories: skipped: the index of advisories does not answer")
        return 0
    print(f"advisories: {verdict.words()}")
    return 1 if verdict.vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
