"""Shows that the tests of attacks would notice: each defence is taken out, and its test must fail.

    python -m tests.attacks.mutations [WORD …]      # the ones whose name has a word; none: all

In a copy of the checkout: nothing of it is changed. Minutes, so not in CI. Attacks on a real stack
need root, as tests/attacks does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_S = 600


@dataclass(frozen=True, slots=True)
class Mutation:
    """One defence, what the code is without it, and the test of the attack."""

    name: str
    file: str
    before: str
    after: str
    test: str


CYCLE, AGENT, API = "tests/scheduler/cycle", "tests/agent", "tests/scheduler/api"
MUTATIONS = (
    Mutation(
        "1 rights of endpoints",
        "scheduler/api/http/gate.py",
        "if not principal.may(right):",
        "if False:",
        "tests/attacks/test_04_change_quotas.py",
    ),
    Mutation(
        "3 tenant of a submission",
        "scheduler/access/claims.py",
        "return Owner(_tenant(principal, named.tenant_id), ",
        "return Owner(named.tenant_id, ",
        "tests/attacks/test_03_submit_as_another_tenant.py",
    ),
    Mutation(
        "9 pages of other sites",
        "core/browser_checks.py",
        "        return fetch_site not in _OWN_PAGES\n",
        "        return False\n",
        "tests/attacks/test_09_cross_site_request.py",
    ),
    Mutation(
        "10 names of hosts",
        "core/browser_checks.py",
        "        name = host_name(header)\n",
        "        return True\n",
        "tests/attacks/test_10_dns_rebinding.py",
    ),
    Mutation(
        "33 guesses",
        "scheduler/access/authenticator.py",
        "FAILURES_MAX = 20",
        "FAILURES_MAX = 2_000_000",
        "tests/attacks/test_33_guessed_keys.py",
    ),
    Mutation(
        "secrets of keys",
        "core/api_keys.py",
        "return hmac.compare_digest(key.hash, presented)",
        "return True",
        "tests/attacks/test_39_dead_keys.py",
    ),
    Mutation(
        "13 signatures of heartbeats",
        "messaging/proofs/heartbeats.py",
        "signing.verify(from_text(text), _SIGNATURE_CONTEXT + body)",
        "pass",
        f"{CYCLE}/test_worker_checks.py::test_forged_end_changes_nothing",
    ),
    Mutation(
        "13 MACs of heartbeats",
        "messaging/proofs/heartbeats.py",
        "if not hmac.compare_digest(to_text(digest).encode(), text.encode()):",
        "if False:",
        f"{CYCLE}/test_worker_checks.py::test_forged_end_changes_nothing",
    ),
    Mutation(
        "14 keys of a later token alone",
        "scheduler/cycle/worker_checks.py",
        "verdict.issued_at <= vm.worker_keys.issued_at",
        "False",
        f"{CYCLE}/test_worker_checks.py::test_ready_of_an_earlier_boot_changes_nothing",
    ),
    Mutation(
        "15 the instance of a token",
        "scheduler/cycle/worker_checks.py",
        "proven.instance_name == vm.name == said.vm_name",
        "True",
        f"{CYCLE}/test_worker_checks.py::test_forged_ready_of_another_boot_takes_no_vm",
    ),
    Mutation(
        "15 no token before Compute lists the VM",
        "scheduler/cycle/worker_checks.py",
        " and vm.instance_id == proven.instance_id\n",
        "\n",
        f"{CYCLE}/test_worker_checks.py::test_no_token_counts_before_compute_has_listed_the_vm",
    ),
    Mutation(
        "introductions by dice",
        "scheduler/cycle/introductions.py",
        "sorted(_thrown(asking, waiting, seed())[: max(0, room)])",
        "list(range(min(WAITING_EACH, len(asking))))",
        f"{CYCLE}/test_worker_admission.py::test_no_flood_of_forged_ones_crowds_out_the_worker",
    ),
    Mutation(
        "room of each VM",
        "scheduler/cycle/introductions.py",
        "WAITING_EACH = 100",
        "WAITING_EACH = 1_000",
        f"{CYCLE}/test_worker_admission.py::test_flood_for_one_vm_leaves_room_for_others",
    ),
    Mutation(
        "boots of different seconds",
        "agent/boot_order.py",
        "if at is None or at > before:",
        "if True:",
        f"{AGENT}/test_boot_order.py",
    ),
    Mutation(
        "16 signatures of control messages",
        "messaging/proofs/control.py",
        '        _check(publics, attributes.get(PROOF, ""), _bound(attributes) + message.body)\n',
        "",
        "tests/messaging/proofs/test_control.py",
    ),
    Mutation(
        "16 numbers of control messages",
        "messaging/proofs/control.py",
        "if not self.numbers.take(int(number)):",
        "if False:",
        "tests/messaging/proofs/test_control.py",
    ),
    Mutation(
        "heartbeats that come again",
        "scheduler/cycle/heartbeats.py",
        "return heartbeat.version == 1 or heartbeat.seq > max(",
        "return True or heartbeat.seq > max(",
        f"{CYCLE}/test_worker_checks.py::test_repeated_heartbeat_shows_no_life",
    ),
    Mutation(
        "21 users of jobs",
        "agent/sandbox/enter.py",
        "    os.setresuid(uid, uid, uid)",
        "    os.setresuid(0, 0, 0)",
        f"{AGENT}/sandbox/test_isolation.py::test_no_rights_and_no_groups",
    ),
    Mutation(
        "no job is root",
        "agent/runtimes.py",
        "if isolation.refuses:",
        "if False:",
        f"{AGENT}/sandbox/test_isolation.py::test_no_job_runs_where_it_would_be_root",
    ),
    Mutation(
        "answers of other issuers",
        "core/identity.py",
        "    return said == issuer\n",
        "    return True\n",
        f"{API}/routes/test_sign_in.py",
    ),
    Mutation(
        "groups of other issuers",
        "core/access_rules.py",
        "alone = len(self.issuers) == 1 and person.issuer in self.issuers",
        "alone = True",
        "tests/scheduler/access/test_people.py",
    ),
    Mutation(
        "names of tenants",
        "scheduler/submission/tenant_access.py",
        " if name in visible}",
        "}",
        "tests/scheduler/submission/test_tenant_access.py",
    ),
    Mutation(
        "roles of the database",
        "db/store.py",
        "if self._role_required and connection in self._lacking:",
        "if False:",
        "tests/db/test_roles.py",
    ),
    Mutation(
        "row-level security",
        "db/roles.py",
        'yield f"CREATE POLICY tenants ON {table} AS RESTRICTIVE TO {API} USING {condition}"',
        'yield f"CREATE POLICY tenants ON {table} AS RESTRICTIVE TO {API} USING (true)"',
        "tests/db/test_roles.py",
    ),
)


def copied(to: Path) -> None:
    """What git knows, and what is new."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / ".venv").symlink_to(ROOT / ".venv")


def is_noticed(mutation: Mutation, checkout: Path) -> bool:
    """Whether its test fails without the defence."""
    file = checkout / mutation.file
    whole = file.read_text()
    assert whole.count(mutation.before) == 1, f"{mutation.name}: not once in {mutation.file}"
    file.write_text(whole.replace(mutation.before, mutation.after))
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "slow or not slow"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, mutation.test],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},  # the environment knows another one
            capture_output=True,
            text=True,
            timeout=TEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(whole)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == 1


def main(words: list[str]) -> int:
    """How many went unnoticed."""
    chosen = [one for one in MUTATIONS if not words or any(word in one.name for word in words)]
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="zen-mutations-") as place:
        checkout = Path(place)
        checkout.chmod(0o755)
        copied(checkout)
        for mutation in chosen:
            noticed = is_noticed(mutation, checkout)
            unnoticed += not noticed
            verdict = "noticed " if noticed else "UNNOTICED"
            print(f"{verdict}  {mutation.name:42} {mutation.test}", flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
