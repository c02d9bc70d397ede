"""zen job …: job files: begin one, check one, the schema for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.options import command, group, pairs
from cli.output.printing import Answer
from core.errors import ZenError

SCHEMA_FILE = ".zen-job.schema.json"
TEMPLATE = """\
# yaml-language-server: $schema={schema}
#
# Submit it:  zen submit -f {name} -p lr=1e-4 --wait
# Check it:   zen job check {name}
name: training
gpu_type: l4
gpu_count: 1
max_runtime_minutes: 240
retries: 1

# Values for -p NAME=VALUE, with their defaults; used as ${{{{ NAME }}}}.
parameters:
  lr: 0.001
  epochs: 3

# One job for each combination of values; used as ${{{{ matrix.seed }}}}:
#
# matrix:
#   seed: [1, 2, 3]

environment:
  PYTHONUNBUFFERED: "1"

command:
  - python3
  - -c
  - print("lr ${{{{ lr }}}}, ${{{{ epochs }}}} epochs")
"""
app = group("Job files: init, check, schema.")


class FileThere(ZenError):
    """The file exists; name another one."""

    code = "file_there"


@app.command()
@command
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Default: job.yaml.")] = Path(
        "job.yaml"
    ),
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="URL", help=f"For editors. Default: {SCHEMA_FILE}, written beside."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> Answer:
    """Writes a job file to begin with, and the schema with which editors complete its fields.

    \b
    Examples:
      zen job init
      zen job init train.yaml --schema https://example.com/job.schema.json
    """
    if file.exists() and not force:
        raise FileThere(f"{file} is there: name another file, or replace it with --force")
    written = [file]
    if schema is None:
        beside = file.parent / SCHEMA_FILE
        beside.write_text(schema_text(), encoding="utf-8")
        written.append(beside)
    text = TEMPLATE.format(schema=schema or SCHEMA_FILE, name=file)
    file.write_text(text, encoding="utf-8")
    names = [str(one) for one in written]
    lines = [f"wrote {' and '.join(names)}", f"  submit it: zen submit -f {file} --wait"]
    return Answer({"files": names}, lines)


@app.command()
@command
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON; - is stdin.")],
    params: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="K=V", help="Of a parameter; repeatable."),
    ] = None,
) -> Answer:
    """Names every fault of a job file with its line and column, without a service. Exit code 1 if
    there is one.

    Whether clusters, regions and secrets exist is for the service: zen submit -f FILE --dry-run.

    \b
    Examples:
      zen job check examples/train.yaml
      zen job check examples/sweep.yaml -p epochs=5 --json
    """
    from cli.job_files.submissions import check_job_file

    faults = check_job_file(file, pairs(params, "--param"))
    told = [
        {
            "file": fault.place.file,
            "line": fault.place.line or None,
            "column": fault.place.column or None,
            "message": fault.words,
        }
        for fault in faults
    ]
    lines = [str(fault) for fault in faults] or [f"{file}: no faults"]
    return Answer({"file": str(file), "faults": told}, lines, code=int(bool(faults)))


@app.command()
@command
def schema() -> Answer:
    """The JSON Schema of job files, for editors and other tools.

    \b
    Examples:
      zen job schema > job.schema.json
    """
    return Answer(_schema(), [schema_text().rstrip("\n")])


def schema_text() -> str:
    """As it is published."""
    return json.dumps(_schema(), indent=2, ensure_ascii=False) + "\n"


def _schema() -> dict[str, object]:
    from core.job_file_schema import job_file_schema

    return job_file_schema()
