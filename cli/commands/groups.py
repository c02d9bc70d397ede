"""Jobs that are watched and stopped as one: what jobs, stop and submit do with a group."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from cli.client import Client, Json, Refused, path
from cli.output.printing import Answer, emit, note
from cli.paths import PROGRAM
from core.errors import NotFound

PAUSE_S = 1.0
BAD_SHOWN_MAX = 10
BY_CHARS_MAX = 128


def summary(client: Client, group: str, user: str | None) -> Json:
    """The group's jobs, counted by status."""
    return client.get(path("groups", group), {"user_id": user})


def stop_body(reason: str | None) -> Json:
    """Why, and who says so: the local user name and the machine."""
    return {"by": whoami(), **({"reason": reason} if reason else {})}


def whoami() -> str:
    """The local user at this machine, for timelines and histories."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as containers have it
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"[:BY_CHARS_MAX]


def one_by_one(ids: Sequence[str], call: Callable[[str], Json], name: str, together: str) -> Answer:
    """Each of several ids by itself: what is refused is told, and the others are not held up. The
    JSON of one is its answer, that of several has a list under `together`."""
    answers: list[Json] = []
    said = []
    for one in ids:
        try:
            answers.append(answer := call(one))
            said.append(f"{one}: {answer.get('message') or answer.get('status')}")
        except (Refused, NotFound) as error:
            note(str(error))
            answers.append({name: one, "error": str(error), "code": error.code})
    json = answers[0] if len(answers) == 1 else {together: answers}
    return Answer(json, said, code=int(len(said) < len(ids)))


def wait_for_group(client: Client, answer: Json, quiet: bool, as_json: bool) -> int:
    """Tells how it goes until all jobs have ended; 0 if all of them went well."""
    group, user = answer["job_id"], answer.get("user_id")
    if not quiet:
        note(f"{group}: {answer.get('message', 'submitted')}")
    try:
        ended = _follow(client, group, user, quiet)
    except KeyboardInterrupt:
        look, stop = f"{PROGRAM} jobs --group {group}", f"{PROGRAM} stop --group {group}"
        note(f"{group} goes on; look at it: {look}, stop it: {stop}")
        return 130
    if as_json:
        emit(ended)
    if not ended["succeeded"]:
        _tell_bad(client, group, user)
    return 0 if ended["succeeded"] else 1


def _follow(client: Client, group: str, user: str | None, quiet: bool) -> Json:
    from cli.output.follow import patiently

    told = ""
    while True:
        now: Json = patiently(lambda: summary(client, group, user))
        if now["message"] != told and not quiet:
            told = now["message"]
            note(f"{group}: {told}")
        if now["done"]:
            return now
        time.sleep(PAUSE_S)


def _tell_bad(client: Client, group: str, user: str | None) -> None:
    from cli.output.follow import ending

    query = {
        "group": group,
        "user_id": user,
        "status": ["FAILED", "CANCELLED"],
        "page_size": BAD_SHOWN_MAX,
    }
    page = client.get("/jobs", query)
    for job in page["jobs"]:
        note(ending(job))
    if page["total"] > BAD_SHOWN_MAX:
        note(f"and {page['total'] - BAD_SHOWN_MAX} more: {PROGRAM} jobs --group {group}")
