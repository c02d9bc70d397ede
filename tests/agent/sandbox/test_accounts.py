"""Under `zen node` a job runs as the person who submitted it."""

from __future__ import annotations

import os
import pwd

import pytest

from agent.sandbox.accounts import OWNER, accounts_of

PEOPLE = {
    "root": (0, "/root"),
    "daemon": (2, "/"),
    "ada": (1000, "/home/ada"),
    "nobody": (65_534, "/"),
}


@pytest.fixture(autouse=True)
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(name: str) -> pwd.struct_passwd:
        uid, home = PEOPLE[name]
        return pwd.struct_passwd((name, "x", uid, uid, "", home, "/bin/sh"))

    by_uid = {uid: name for name, (uid, _) in PEOPLE.items()}
    monkeypatch.setattr(pwd, "getpwnam", entry)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry(by_uid[uid]))


def test_the_owners_jobs_run_as_who_typed_zen_node() -> None:
    """Through sudo, or as root itself."""
    starter = accounts_of({"SUDO_UID": "1000"}).of(OWNER)
    assert starter is not None
    assert (starter.name, starter.uid, starter.home) == ("ada", 1000, "/home/ada")
    assert starter.variables["USER"] == "ada"
    assert accounts_of({}).of(OWNER) is None
    assert accounts_of({"SUDO_UID": "0"}).of(OWNER) is None
    assert accounts_of({"SUDO_UID": "-1"}).of(OWNER) is None


def test_others_run_as_themselves_and_never_as_the_system() -> None:
    found = accounts_of({}).of("ada")
    assert found is not None
    assert found.uid == 1000
    for name in ("root", "daemon", "nobody"):
        with pytest.raises(OSError, match="account of the system"):
            accounts_of({}).of(name)
    with pytest.raises(OSError, match="no user eve"):
        accounts_of({}).of("eve")


def test_where_nobody_can_be_given_a_job_root_does_not_run_it() -> None:
    """Its own jobs go on."""
    refusing = accounts_of({}, "mounts are refused")
    assert refusing.of(OWNER) is None
    for user, environ in (("ada", {}), (OWNER, {"SUDO_UID": "1000"})):
        with pytest.raises(OSError, match="mounts are refused"):
            accounts_of(environ, "mounts are refused").of(user)


def test_groups_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 44] if name == "ada" else [])
    found = accounts_of({}).of("ada")
    assert found is not None
    assert found.groups == [1000, 44]
