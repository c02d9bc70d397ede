"""The people of a machine under `zen node`: their jobs run as them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

OWNER = "0"
"""The user of submissions with the owner's key: the person who started the node."""
FIRST_PERSON = 1000
"""Below are the accounts of the system, as whom nobody submits."""

NOBODY = 65_534


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """A user of the machine."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def groups(self) -> list[int]:
        return os.getgrouplist(self.name, self.gid)

    @property
    def variables(self) -> dict[str, str]:
        """What the environment of the user's processes says."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


@dataclass(frozen=True, slots=True)
class UnixAccounts:
    """`starter`: who typed `zen node`, perhaps through sudo; None: root itself."""

    starter: UnixAccount | None
    refused: str = ""
    """Why nobody can be given a job here; then only root's own jobs run."""

    def of(self, user_id: str) -> UnixAccount | None:
        """As whom a job of this user runs; None: as root, whose node it is. OSError: the machine
        has no such person."""
        if user_id == OWNER and (self.starter is None or not self.refused):
            return self.starter
        if self.refused:
            raise OSError(f"no job can run as its user on this machine: {self.refused}")
        try:
            found = pwd.getpwnam(user_id)
        except KeyError:
            raise OSError(f"this machine has no user {user_id}, whose job this is") from None
        if found.pw_uid < FIRST_PERSON or found.pw_uid == NOBODY:
            raise OSError(f"{user_id} is an account of the system: no job runs as it")
        return _account(found)


def accounts_of(environ: Mapping[str, str], refused: str = "") -> UnixAccounts:
    """For an agent that is root."""
    said = environ.get("SUDO_UID", "")
    if not said.isdecimal() or int(said) == 0:
        return UnixAccounts(None, refused)
    return UnixAccounts(_account(pwd.getpwuid(int(said))), refused)


def _account(found: pwd.struct_passwd) -> UnixAccount:
    return UnixAccount(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)
