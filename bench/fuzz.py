"""Schemathesis over the whole OpenAPI document, with a key of each role and without one.

    python -m bench.fuzz --examples 20        # needs .venv-tools: .ci/tools makes it

What counts as a fault: an answer of 500 or more, a call that is served though its credentials are
missing or wrong, an answer that the document does not name, and a value that the document forbids
and the service takes. Nothing runs: the clusters of the stack may have
no VM.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import yaml

from bench.local import ROOT, LocalStack, local_stack

TOOL = ROOT / ".venv-tools" / "bin" / "schemathesis"
ROLES = {
    "viewer": "default",
    "submitter": "default",
    "member": "default",
    "operator": "*",
    "admin": "*",
}
"""Role → tenant of its key."""
ANSWERS_500 = "/jobs/{job_id}/abort"
"""For a job that is not there, because the suite of another system's client expects it."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="of each operation and role")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--role", choices=[*ROLES, "none"], action="append")
    given = parser.parse_args()
    if not TOOL.exists():
        print(f"fuzz: skipped: there is no {TOOL.relative_to(ROOT)}: run .ci/tools")
        return 0
    words = yaml.safe_load((ROOT / "config" / "zen.yaml").read_text(encoding="utf-8"))
    no_vms = {"clusters": {name: {"vm_min": 0, "vm_max": 0} for name in words["clusters"]}}
    bounds = ["--max-examples", str(given.examples), "--seed", str(given.seed)]
    wrong = []
    with local_stack(no_vms) as stack:
        document = stack.home / "openapi.json"
        document.write_text(stack.client.get("/openapi.json").text, encoding="utf-8")
        for role in given.role or [*ROLES, "none"]:
            key = "" if role == "none" else _key(stack, role)
            if not _fuzz(stack, document, key, bounds):
                wrong.append(role)
            print(f"fuzz: {role}: {'faults, see above' if role in wrong else 'no fault'}")
    return 1 if wrong else 0


def _key(stack: LocalStack, role: str) -> str:
    body = {"name": f"fuzz-{role}", "tenant_id": ROLES[role], "role": role}
    answer = stack.client.post("/api/v1/keys", json=body)
    answer.raise_for_status()
    return str(answer.json()["key"])


def _fuzz(stack: LocalStack, document: Path, key: str, bounds: list[str]) -> bool:
    """Whether nothing was found; what was found is printed."""
    # With a key the tool would try wrong ones too, and be told to wait: without one it tries both.
    checks = CHECKS if key else (*CHECKS, "ignored_auth")
    most = _run(stack, document, key, [*checks], ["--exclude-path", ANSWERS_500, *bounds])
    rest = [check for check in checks if check != "not_a_server_error"]
    return _run(stack, document, key, rest, ["--include-path", ANSWERS_500, *bounds]) and most


def _run(stack: LocalStack, document: Path, key: str, checks: list[str], more: list[str]) -> bool:
    words = ["run", str(document), "--url", str(stack.client.base_url), *more]
    words += ["--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing"]
    words += ["--warnings", "off"]
    words += ["--continue-on-failure", "--generation-database", "none", "--no-color"]
    if key:
        words += ["--header", f"Authorization: Bearer {key}"]
    done = subprocess.run([str(TOOL), *words], cwd=stack.home, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
