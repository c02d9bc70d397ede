"""What an image has beside its lock is named."""

from __future__ import annotations

from deploy.installed import differences

LOCK = """\
click==8.5 \\
    --hash=sha256:aa
colorama==0.4 ; sys_platform == 'win32' \\
    --hash=sha256:bb
google-auth==2.6 \\
    --hash=sha256:cc
"""


def test_packages_of_the_lock_are_in_order() -> None:
    """Names are compared as the index does; a pin of another platform may be missing."""
    assert differences(LOCK, [("click", "8.5"), ("Google_Auth", "2.6")]) == []


def test_more_other_and_missing_packages_are_told() -> None:
    """Each with its name and version."""
    assert differences(LOCK, [("click", "8.4"), ("pytest", "9.2")]) == [
        "pytest 9.2 is not in the lock",
        "click: 8.4, the lock has 8.5",
        "google-auth: missing, the lock has 2.6",
    ]
