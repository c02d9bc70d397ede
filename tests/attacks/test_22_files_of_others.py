"""A job in the files that the store keeps of others: logs, checkpoints, outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: else jobs run as you"),
]
VICTIM = """
echo planted-log
echo planted-checkpoint > $ZEN_CHECKPOINT_DIR/state
echo planted-output > $ZEN_OUTPUT_DIR/result
"""
# Each line that it prints is an attempt that worked. $STORE is where the store lies.
ATTACK = """
find $STORE -type f 2>/dev/null | head -3
ls $ZEN_CHECKPOINT_DIR/.. $ZEN_CHECKPOINT_DIR/../.. 2>/dev/null | grep $VICTIM
for file in $FILES; do
  cat $file 2>/dev/null
  (echo poisoned > $file) 2>/dev/null && echo "wrote $file"
  rm -f $file 2>/dev/null && ! test -e $file && test -d $(dirname $file) && echo "removed $file"
  ln $file $ZEN_OUTPUT_DIR/stolen 2>/dev/null && echo "linked $file"
  ln -s $file $ZEN_OUTPUT_DIR/link-$(basename $file) 2>/dev/null
  ln -s $file $ZEN_CHECKPOINT_DIR/link-$(basename $file) 2>/dev/null
done
exit 0
"""


def test_a_job_finds_nothing_of_others(up: Stack) -> None:
    """It reads no log, poisons no checkpoint, forges no manifest; links to them store nothing."""
    victim = up.submit("/bin/sh", "-c", VICTIM, gpu_type="l4")
    assert up.wait(victim, seconds=120)["status"] == "SUCCEEDED"
    store = up.home / "store"
    files = [path for path in store.rglob("*") if path.is_file() and victim in str(path)]
    kinds = {path.relative_to(store).parts[0] for path in files}
    assert {"logs", "checkpoints", "artifacts"} <= kinds
    before = {path: path.read_bytes() for path in files}
    facts = {"STORE": str(store), "VICTIM": victim, "FILES": " ".join(map(str, files))}
    attacker = up.submit("/bin/sh", "-c", ATTACK, gpu_type="l4", environment=facts)
    assert up.wait(attacker, seconds=120)["status"] in ("SUCCEEDED", "FAILED")
    # The agent's own note about the links, which it did not store, is the only line.
    assert [line for line in up.log(attacker).splitlines() if not line.startswith("[zen: ")] == []
    assert {path: path.read_bytes() for path in files} == before
    own = [path for path in store.rglob("*") if path.is_file() and attacker in str(path)]
    assert not [path for path in own if _holds_planted(path)]


def _holds_planted(path: Path) -> bool:
    return not path.is_symlink() and b"planted" in path.read_bytes()
