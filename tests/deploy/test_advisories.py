"""A check for vulnerabilities that did not take place is not told as a good one."""

from __future__ import annotations

from deploy.advisories import verdict_of

GOOD = {"name": "click", "version": "8.5", "vulns": []}
UNKNOWN = {"name": "rich", "skip_reason": "not found"}
BAD = {
    "name": "urllib3",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def test_vulnerabilities_are_named_with_the_version_that_mends_them() -> None:
    """One line each."""
    words = verdict_of({"dependencies": [GOOD, BAD, UNKNOWN]}).words()
    assert words.splitlines()[1:] == [
        "  urllib3 1.0: PYSEC-1, mended in 1.1",
        "  urllib3 1.0: PYSEC-2, mended in no version yet",
    ]


def test_an_index_without_answers_is_a_skipped_check() -> None:
    """Nothing was checked: nobody may take it for a clean result."""
    assert verdict_of({"dependencies": [UNKNOWN]}).words().startswith("skipped:")


def test_packages_without_an_answer_are_told() -> None:
    """The others were checked."""
    words = verdict_of({"dependencies": [GOOD, UNKNOWN]}).words()
    assert words == "1 packages without a known vulnerability; no answer for rich"
