"""zen workers …: how the scheduler and its workers know each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import command, group
from cli.output.printing import Answer
from core.ids import RandomIds

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="What workers.key_file names (mode 0600).")
]

app = group("How the scheduler and its workers know each other: keys.")
keys_app = group("The scheduler's keys for speaking with its workers: create, show.")
app.add_typer(keys_app, name="keys")


@keys_app.command("create")
@command
def create(file: File) -> Answer:
    """Makes the scheduler's key file, or adds a new key to one that there is.

    Give the file to every replica and restart them, then create new instance templates with the
    public keys. A key that no VM was started with any more may be taken out of the file.

    \b
    Example:
      zen workers keys create workers.key
    """
    from messaging.proofs.key_file import add_scheduler_key, public_text

    keys = add_scheduler_key(file, RandomIds())
    words = [f"{file} has {len(keys)} keys" if len(keys) > 1 else f"{file} has a key", _NEXT]
    return Answer({"file": str(file), "public": public_text(keys)}, words)


_NEXT = "  next: workers.key_file names it (an absolute path); zen infra gcloud for new templates"


@keys_app.command("show")
@command
def show(file: File) -> Answer:
    """The public keys, as `zen-scheduler-keys` of an instance template says them.

    \b
    Example:
      zen workers keys show workers.key
    """
    from messaging.proofs.key_file import public_text, read_scheduler_keys

    keys = read_scheduler_keys(file)
    return Answer(
        {"ids": [key.public.key_id for key in keys], "public": public_text(keys)},
        [public_text(keys)],
    )
