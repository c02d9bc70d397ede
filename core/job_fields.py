"""Every field of a job, declared once.

The declaration says what the field is called, its type and default, how a submission's value is
checked, and where it goes: `told()` has one word for each. REST, Pub/Sub, the command line, job
files, the database, OpenAPI and the documentation are made from it.

A field of WorkerSpec travels to the worker that runs the job; a field of JobSpec stays here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_type_hints

from core import field_kinds as kinds
from core.field_kinds import ID_WORDS, Kind, named, number, pairs, text, whole
from core.field_options import Option, Said
from core.names import JOB_ID
from core.queueing import PRIORITIES, PRIORITY_HIGHEST
from core.slots import slots_of

GPU_COUNT_MAX = 64
JOB_ID_CHARS_MAX = 63
ENVIRONMENT_MAX = 256
LABELS_MAX = 64
RESIZE_SIGNALS = ("USR1", "USR2", "none")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,128}\Z")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# v1 workers look for a script of that name: it must not lead anywhere else.
_WORKFLOW = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?\Z")
_WORKFLOW_WORDS = "1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
_DIRECTORY = re.compile(r"(?:/[^\x00-\x1f\x7f]{0,1023})?\Z")
_TREE = re.compile(r"(?:[0-9a-f]{64})?\Z")
_DIRECTORY_WORDS = "a path from the root, e.g. /app"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobField:
    """What is said about one field beside its type and default."""

    name: str
    """In a submission."""
    kind: Kind | None
    """None: no submission has it."""
    doc: str
    attribute: str = ""
    """In JobSpec; empty: it is folded into others when a submission is read."""
    default: object = None
    configured: bool = False
    """Its default is the timer of that name in the configuration."""
    option: Option | None = None
    shown: bool = False
    """Stands in GET /jobs under its own name and in its own type."""
    line: str = ""
    """The name of its line in `zen show`; empty: it has no line of its own."""
    only: str = ""
    """What `GET /jobs?name=` and `zen jobs --name` are restricted to; empty: there is no filter."""
    column: str = ""
    """The column of the table `jobs`; empty: it is in the document alone."""
    wire: str = ""
    """What a start message calls it; empty: the worker does not get it."""
    sent: Callable[[Any], bool] | None = None
    """Whether a start message has it; None: if it differs from its default. What the first version
    sent is always there."""


def _said(kind: Kind | None, doc: str, **where: Any) -> dict[str, Any]:
    # The name is filled in when the class is read: the dataclass knows it.
    return {"job": {"kind": kind, "doc": doc, **where}}


def told(default: T, kind: Kind | None, doc: str, **where: Any) -> T:
    """The declaration of a field; `where` has the words of JobField."""
    metadata = _said(kind, doc, **where)
    if isinstance(default, dict):
        made: T = field(default_factory=dict, metadata=metadata)  # type: ignore[assignment]
        return made
    return field(default=default, metadata=metadata)


def _in_container(spec: WorkerSpec) -> bool:
    return spec.image is not None


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What the worker must know to run the job."""

    job_id: str = field(
        metadata=_said(
            kinds.ID,
            f"Your own id ({ID_WORDS}).",
            option=Option("--id", "JOB", "Your own id; a repeat submits nothing new."),
            shown=True,
            column="job_id",
        )
    )
    user_id: str = told(
        "0",
        text(_TENANT, ID_WORDS),
        "Who asks; with the tenant and the job id the identity of a job.",
        option=Option("--user", "ID", "Who asks."),
        shown=True,
        only="Only this user's.",
        column="user_id",
    )
    workflow: str = told("", text(_WORKFLOW, _WORKFLOW_WORDS), "For v1 workers.")
    workflow_args: Mapping[str, object] = told({}, kinds.ARGUMENTS, "For v1 workers.", wire="args")
    gpu_type: str | None = told(None, kinds.GPU_TYPE, "Without it: the cheapest cluster that fits.")
    gpu_count: int = told(
        1,
        whole(0, GPU_COUNT_MAX),
        "GPUs on one VM; 0: on a VM without GPUs, of a CPU cluster.",
        option=Option("--gpus -g", "N", "Default: 1; 0: a VM without GPUs."),
        shown=True,
        wire="num_gpus",
    )
    keep_alive: bool = told(False, kinds.FLAG, "Keep the VM after the job (v1 workers).")
    environment: Mapping[str, str] = told(
        {},
        pairs(_ENV_NAME, ENVIRONMENT_MAX, "variables"),
        "For the job.",
        option=Option("--env -e", "K=V", "Repeatable."),
        shown=True,
        wire="env",
    )
    secrets: Mapping[str, str] = told(
        {},
        kinds.SECRETS,
        "Variables whose values are put into the job's environment when it starts: `zen://NAME` of "
        "`zen secrets set`, or `sm://PROJECT/NAME` of Secret Manager. Stored is the reference.",
        option=Option("--secret", "K=REF", "zen://NAME or sm://PROJECT/NAME; repeatable."),
        shown=True,
        line="secrets",
    )
    google_token: bool = told(
        False,
        kinds.FLAG,
        "The job may call Google as its tenant's service account (`tenants.*.google_account`): "
        "Google's libraries in it find tokens where `GCE_METADATA_HOST` says.",
        option=Option("--google-token", None, "It may call Google as its tenant's account."),
        shown=True,
        line="google token",
    )
    command: tuple[str, ...] = told(
        (), kinds.ARGV, "The program and its arguments; no shell unless asked.", shown=True
    )
    shell: bool = told(False, kinds.FLAG, "Run the one string in `command` with /bin/sh -c.")
    tenant_id: str = told(
        "default",
        text(_TENANT, ID_WORDS),
        "Who pays.",
        option=Option("--tenant", "ID", "Who pays."),
        shown=True,
        only="Only this tenant's.",
        column="tenant_id",
    )
    stop_grace_s: float = told(
        60.0,
        number(0, 3600, "seconds"),
        "From SIGTERM to SIGKILL.",
        configured=True,
        option=Option("--grace", "60s", "From SIGTERM to SIGKILL.", Said.SECONDS),
    )
    max_runtime_s: float = told(
        7 * 86400.0,
        number(0.01, 60 * 24 * 30, "minutes", times=60),
        "Stopped, then FAILED, after this long.",
        name="max_runtime_minutes",
        configured=True,
        option=Option("--max-runtime", "2h", "Stopped after this long.", Said.MINUTES),
    )
    name: str = told(
        "",
        text(_NAME, "at most 128 printable characters"),
        "For people.",
        option=Option("--name", "TEXT", "For people."),
        shown=True,
        column="name",
    )
    image: str | None = told(
        None,
        kinds.IMAGE,
        "Runs in a container of this image; without it: as a process. `command` replaces the "
        "image's entrypoint; `args` alone are given to it. `cpu_cores` and `memory_mb` are "
        "limits there.",
        option=Option("--image", "IMG", "In a container of this image."),
        shown=True,
        sent=_in_container,
    )
    working_dir: str = told(
        "",
        text(_DIRECTORY, _DIRECTORY_WORDS),
        "Where the container starts; without it: as the image says. A process starts there in "
        "static pools alone; without it: in a directory of its own.",
        option=Option(
            "--working-dir", "DIR", "Where the container (on zen node: the process) starts."
        ),
        sent=lambda spec: _in_container(spec) or spec.working_dir,
    )
    code: str = told(
        "",
        text(_TREE, "the id of code that was sent: 64 hexadecimal digits"),
        "The directory that the job starts in, as a copy of its own: code that was sent before "
        "(`PUT /api/v1/code/trees/{id}`; `zen submit` does so).",
        shown=True,
        line="code",
    )
    keep_entrypoint: bool = told(
        False,
        None,
        "The command is arguments for the image's own entrypoint, not a program.",
        sent=_in_container,
    )
    cpu_cores: float = told(
        0,
        number(0, 1024, "cores"),
        "At least this many cores on the VM; the job gets no more.",
        option=Option("--cpus", "N", "Cores, at least; the job gets no more."),
        shown=True,
        sent=lambda spec: _in_container(spec) or spec.cpu_cores,
    )
    memory_mb: int = told(
        0,
        whole(0, 16 * 1024 * 1024),
        "At least this much on the VM; a job that takes more is ended.",
        option=Option(
            "--memory", "GB", "Of the VM, at least; the job gets no more.", Said.GIGABYTES
        ),
        shown=True,
        sent=lambda spec: _in_container(spec) or spec.memory_mb,
    )
    resize_signal: str = told(
        "USR1",
        kinds.one_of(*RESIZE_SIGNALS),
        "Sent to those processes of an elastic job that catch it, when its size has changed.",
        option=Option("--resize-signal", "S", "USR1, USR2 or none: it has a new size."),
    )


@dataclass(frozen=True, slots=True)
class JobSpec(WorkerSpec):
    """What the submitter asked for. Never changes after submission."""

    gpu_types: tuple[str, ...] = told(
        (),
        kinds.GPU_TYPES,
        "Several that will do, the preferred one first: the next one is taken when there is "
        "none of those before it to be had.",
        option=Option(
            "--gpu-type",
            "T",
            "Default: the cheapest that fits. Repeatable: the preferred one first.",
        ),
    )
    cluster: str | None = told(
        None,
        kinds.CLUSTER,
        "Exactly this one.",
        option=Option("--cluster", "C", "Exactly this cluster."),
    )
    gpu_memory_mb: int = told(
        0,
        whole(0, 1024 * 1024),
        "At least this much memory on each GPU.",
        option=Option("--gpu-memory", "GB", "Of each GPU, at least.", Said.GIGABYTES),
        shown=True,
    )
    priority: int = told(
        PRIORITIES["normal"],
        named(whole(0, PRIORITY_HIGHEST), PRIORITIES),
        f"Higher runs earlier; 500 is normal. Or a class: {', '.join(PRIORITIES)}.",
        option=Option("--priority", "N", "Higher runs earlier (500), or a class.", Said.NAMED),
        shown=True,
        column="priority",
    )
    regions: tuple[str, ...] = told(
        (),
        kinds.REGIONS,
        "Only these regions; empty: any.",
        option=Option("--region", "R", "Only there; repeatable."),
        shown=True,
    )
    regions_denied: tuple[str, ...] = told(
        (),
        kinds.REGIONS,
        "Never in these regions.",
        option=Option("--not-region", "R", "Never there; repeatable."),
        shown=True,
    )
    max_usd_per_hour: float | None = told(
        None,
        number(0.001, 100_000, "USD per hour"),
        "The VM may cost at most this much; dearer ones are not asked for.",
        option=Option("--max-price", "USD", "Most that the VM may cost per hour."),
        shown=True,
    )
    spot: bool | None = told(
        None,
        kinds.FLAG,
        "true: on spot VMs, which are cheaper and which Google may take back, as long as the "
        "deadline allows; false: never. Without it: the tenant's default, else never.",
        option=Option(
            "--spot/--no-spot", None, "Cheaper VMs that the cloud may reclaim: yes or never."
        ),
        shown=True,
    )
    """None: stored before consent was asked, as its cluster comes."""
    allow_larger: bool | None = told(
        None,
        kinds.FLAG,
        "true: a VM with more GPUs than asked for (or with GPUs, for a job without) may be "
        "taken if no other fits; all of it is paid for. Without it: the tenant's default, "
        "else the job is refused and the nearest fit offered.",
        option=Option(
            "--allow-larger/--no-allow-larger",
            None,
            "VMs with more GPUs than asked for may be taken, and are paid for.",
        ),
        shown=True,
    )
    """None: stored before consent was asked, they may."""
    agreed_usd_per_hour: float | None = told(
        None, None, "What one of its VMs may cost in a cluster that it is moved to; none: any."
    )
    deadline: datetime | None = told(  # noqa: RUF009  # told() makes a dataclass field
        None,
        kinds.MOMENT,
        "When the result is wanted: as it comes near, price counts less.",
        option=Option(
            "--deadline", "TIME", "Result wanted by: 12h, or 2030-09-01T18:00Z.", Said.MOMENT
        ),
    )
    queue_timeout_s: float = told(
        30 * 86400.0,
        number(1, 90 * 86400, "seconds"),
        "FAILED if it has not started by then.",
        configured=True,
        option=Option("--queue-timeout", "1d", "Fails if still waiting.", Said.SECONDS),
    )
    retries: int = told(
        0,
        whole(0, 100),
        "How often a non-zero exit is tried again.",
        option=Option("--retries", "N", "After a non-zero exit."),
    )
    labels: Mapping[str, str] = told(
        {},
        pairs(_LABEL, LABELS_MAX, "labels"),
        "To find it again.",
        option=Option("--label -l", "K=V", "Repeatable."),
        shown=True,
        line="labels",
        column="labels",
    )
    group: str | None = told(
        None,
        text(JOB_ID, ID_WORDS),
        "To watch and stop several as one.",
        option=Option("--group", "G", "To watch and stop several as one."),
        shown=True,
        line="group",
        only="Only of this group (an array is the group of its id).",
        column="group_id",
    )
    after: tuple[str, ...] = told(
        (),
        kinds.AFTER,
        "Starts after these jobs (or all jobs of these groups) ended: `ID` or `ID:ok` well, "
        "`ID:any` in any way.",
        option=Option("--after", "JOB", "JOB[:ok|:any] or a group; repeatable."),
        shown=True,
        line="after",
    )
    array: str | None = told(
        None,
        kinds.ARRAY,
        "One job for each index, as the group of the job id: job `ID-INDEX` with "
        "ZEN_ARRAY_ID and ZEN_ARRAY_INDEX in its environment.",
        option=Option("--array", "1-1000", "One job per index: 1-9, 1,5,9 or 0-90:10."),
    )
    replicas: int = told(
        1,
        kinds.REPLICAS,
        "On so many VMs at once, all or none, in one region: a gang. Each has its RANK. "
        "With `min` and `max` it is elastic: it starts with `min`, grows while there is room, "
        "and shrinks when others need it.",
        option=Option("--replicas", "N", "On N VMs at once; 2-8: elastic.", Said.REPLICAS),
        shown=True,
    )
    """Of an elastic job: at most."""
    replicas_min: int | None = told(
        None, None, "It runs as soon as there are so many, and gets more when there is room."
    )
    reschedulable: bool = told(
        True,
        kinds.FLAG,
        "false: never preempted, and FAILED if its VM is lost.",
        option=Option(
            "--reschedulable/--not-reschedulable",
            None,
            "May be preempted, and begins again after a lost VM.",
        ),
        shown=True,
    )
    same_zone: bool = told(
        False,
        kinds.FLAG,
        "The VMs of a gang are in one zone.",
        option=Option("--same-zone", None, "The VMs of a gang are in one zone.", Said.YES),
    )
    replace_members: bool = told(
        False,
        kinds.FLAG,
        "A gang goes on when it loses a VM other than the first, and gets another one.",
        option=Option(
            "--replace-members", None, "A lost VM of a gang is replaced while it runs.", Said.YES
        ),
    )

    @property
    def slots(self) -> int:
        """How many parts of a VM it is given: its GPUs, or one without a GPU."""
        return slots_of(self.gpu_count)

    @property
    def least(self) -> int:
        """How many members must run at once."""
        return self.replicas if self.replicas_min is None else self.replicas_min

    @property
    def elastic(self) -> bool:
        return self.least < self.replicas

    def allows_region(self, region: str) -> bool:
        """Whether a VM there may serve it."""
        return region not in self.regions_denied and (not self.regions or region in self.regions)

    def affords(self, usd_per_hour: float) -> bool:
        """Whether a VM at that price may serve it."""
        return self.max_usd_per_hour is None or usd_per_hour <= self.max_usd_per_hour


FOLDED = (
    JobField("args", kinds.ARGV, "More arguments, put after the command."),
    JobField("script", kinds.SCRIPT, "Runs with /bin/sh -c, instead of a command."),
    JobField("gang_scheduling", kinds.FLAG, "All GPUs or none, as always; see `replicas`."),
)
"""Fields of a submission that are not kept under their own name."""


def _read(spec: type[WorkerSpec]) -> tuple[JobField, ...]:
    worker = {one.name for one in fields(WorkerSpec)}
    made = []
    for one in fields(spec):
        words = {"name": one.name, "attribute": one.name, **one.metadata["job"]}
        if one.default_factory is not MISSING:
            words["default"] = one.default_factory()
        elif one.default is not MISSING:
            words["default"] = one.default
        if one.name in worker:
            words.setdefault("wire", one.name)
        made.append(JobField(**words))
    return tuple(made)


SPEC_FIELDS = _read(JobSpec)
"""The fields of JobSpec, in its order; those of WorkerSpec first."""
FIELDS: Mapping[str, JobField] = {
    one.name: one for one in (*SPEC_FIELDS, *FOLDED) if one.kind is not None
}
"""The fields of a submission, by name."""
FILTERS = tuple(one for one in SPEC_FIELDS if one.only)
CONFIGURED = tuple(one.attribute for one in SPEC_FIELDS if one.configured)
_WORKER_FIELDS = tuple(one.name for one in fields(WorkerSpec))


@cache
def types() -> Mapping[str, Any]:
    """The type of each field of JobSpec."""
    return get_type_hints(JobSpec)


def worker_spec(spec: JobSpec) -> WorkerSpec:
    """What the worker gets of it."""
    return WorkerSpec(**{name: getattr(spec, name) for name in _WORKER_FIELDS})
