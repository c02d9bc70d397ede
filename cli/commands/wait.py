"""zen wait: until jobs have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer

from cli.client import Client, Json, Refused, path
from cli.options import AsJson, User, command
from cli.output.durations import seconds
from cli.output.follow import ending, exit_code, patiently
from cli.output.printing import Answer, note
from core.clock import SystemClock
from core.job_status import FINAL

PAUSE_S = 0.5
PAUSE_MAX_S = 5.0
TIMED_OUT = 124
"""As timeout(1) ends."""


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How `zen wait` waits."""

    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="SPAN", help="Give up after 90s, 2h…: exit code 124."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False
    user: User = None
    as_json: AsJson = False


@command
def wait(
    client: Client,
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB…", help="Ids of jobs, arrays or groups.")
    ],
    own: WaitOptions,
) -> None:
    """Waits until all the jobs have ended. Prints no log: that is `zen logs -f`.

    The exit code is that of the first of them (in the order given) that did not end well: a job's
    own exit code, or 1 if it has none; 0 if all went well; 124 after --timeout. Of an array: 1 if
    one of its jobs did not end well.

    \b
    Examples:
      zen wait train-7
      zen wait train-7 --timeout 2h
      zen wait train-7 --quiet && echo 'it went well'
    """
    limit_s = None if own.timeout is None else seconds(own.timeout, "--timeout")
    waits = [_Wait(client, name, own.user) for name in dict.fromkeys(jobs)]
    left = _left(waits, limit_s, own.quiet)
    ended = [one.found for one in waits]
    if left:
        names = ", ".join(one.name for one in left)
        note(f"not over after {own.timeout}: {names}; the jobs go on")
    answer = ended[0] if len(ended) == 1 else {"jobs": ended}
    code = next((one.code for one in waits if one.over and one.code), 0)
    Answer(answer, code=TIMED_OUT if left else code).print(own.as_json)


@dataclass(slots=True)
class _Wait:
    """A job, or all jobs of an array or a group."""

    client: Client
    name: str
    user: str | None
    group: bool = False
    found: Json = field(default_factory=dict)

    def look(self) -> None:
        """Asks how it is now; rides out an outage, unless nobody has answered yet. NotFound if
        there is no such thing."""
        self.found = patiently(self._ask) if self.found else self._ask()

    def _ask(self) -> Json:
        owner = {"user_id": self.user}
        if self.group:
            return self.client.get(path("groups", self.name), owner)
        try:
            return self.client.get(path("jobs", self.name), owner)
        except Refused as error:
            from cli.commands.arrays import group_of

            found = group_of(self.client, self.name, self.user, error)
            self.group = True
            return found

    @property
    def over(self) -> bool:
        return bool(self.found["done"] if self.group else self.found["status"] in FINAL)

    @property
    def code(self) -> int:
        if self.group:
            return 0 if self.found["succeeded"] else 1
        return exit_code(self.found)

    @property
    def words(self) -> str:
        return f"{self.name}: {self.found['message']}" if self.group else ending(self.found)


def _left(waits: list[_Wait], limit_s: float | None, quiet: bool) -> list[_Wait]:
    """Waits for all of them; returns the ones that are not over when the time is."""
    left = waits
    for _ in _looks(limit_s):
        for one in left:
            one.look()
            if one.over and not quiet:
                note(one.words)
        left = [one for one in left if not one.over]
        if not left:
            break
    return left


def _looks(limit_s: float | None) -> Iterator[None]:
    """When to look: at once, then after pauses that grow, and at last when the time is over."""
    clock, pause_s = SystemClock(), PAUSE_S
    began = clock.monotonic()
    while True:
        yield
        left_s = None if limit_s is None else limit_s - (clock.monotonic() - began)
        if left_s is not None and left_s <= 0:
            return
        time.sleep(pause_s if left_s is None else min(pause_s, left_s))
        pause_s = min(PAUSE_MAX_S, pause_s * 1.2)
