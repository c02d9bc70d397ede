"""build/sbom.cdx.json: the packages of the image, in CycloneDX, checked against its schema.

`.ci/supply` runs it. The tool lists this checkout's environment, with licences and who needs whom;
what only tests and checks need is taken out again, and the hashes of the lock are added.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.runtime_lock import ROOT, RUNTIME_LOCK

TOOLS = ROOT / ".venv-tools" / "bin"
TARGET = ROOT / "build" / "sbom.cdx.json"
SPEC_VERSION = "1.6"
INDEX = "https://pypi.org/simple"
TIMEOUT_S = 120
_ENTRY = re.compile(r"^([a-z0-9._-]+)==.*\n((?:    --hash=sha256:\w+.*\n)+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:(\w+)")
_VALIDATE = f"""\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
validator = JsonStrictValidator(SchemaVersion.from_version("{SPEC_VERSION}"))
fault = validator.validate_str(sys.stdin.read())
sys.exit(str(fault) if fault else 0)
"""


def runtime_sbom(whole: Mapping[str, Any], lock: str) -> dict[str, Any]:
    """The list of an environment, cut down to the packages of the lock."""
    hashes = {name: _HASH.findall(lines) for name, lines in _ENTRY.findall(lock)}
    kept = [part for part in whole["components"] if _name(part["name"]) in hashes]
    refs = {part["bom-ref"] for part in kept} | {whole["metadata"]["component"]["bom-ref"]}
    dependencies = [
        {**row, "dependsOn": [ref for ref in row.get("dependsOn", []) if ref in refs]}
        for row in whole["dependencies"]
        if row["ref"] in refs
    ]
    components = [_with_hashes(part, hashes[_name(part["name"])]) for part in kept]
    return {**whole, "components": components, "dependencies": dependencies}


def _with_hashes(part: Mapping[str, Any], hashes: list[str]) -> dict[str, Any]:
    found = {
        "type": "distribution",
        "url": f"{INDEX}/{_name(part['name'])}/",
        "comment": "the files that the lock accepts",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
    }
    return {**part, "externalReferences": [*part.get("externalReferences", []), found]}


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def _tool(*words: str, given: str = "") -> str:
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=ROOT
    )
    if done.returncode:
        sys.exit(f"sbom: {Path(words[0]).name} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> None:
    words = ("environment", "--pyproject", "pyproject.toml", "--output-reproducible")
    form = ("--sv", SPEC_VERSION, "--of", "JSON", "-o", "-", sys.executable)
    whole = json.loads(_tool(str(TOOLS / "cyclonedx-py"), *words, *form))
    made = runtime_sbom(whole, RUNTIME_LOCK.read_text(encoding="utf-8"))
    text = json.dumps(made, indent=1, sort_keys=True) + "\n"
    _tool(str(TOOLS / "python"), "-c", _VALIDATE, given=text)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    count = len(made["components"])
    print(f"sbom: {TARGET.relative_to(ROOT)}: {count} packages, valid CycloneDX {SPEC_VERSION}")


if __name__ == "__main__":
    main()
