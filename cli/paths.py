"""Where things are on this machine: the checkout, its state directory, and what runs there."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from core.errors import ZenError

ROOT = Path(__file__).resolve().parents[1]
WITH_TESTS = (ROOT / "tests" / "clients" / "programs").is_dir()
"""False in a wheel: it has neither the tests nor the commands that run them."""
# How people call us: the launcher of a checkout, or the installed console script.
_NAME = Path(sys.argv[0]).name


def _program(name: str, root: Path, here: Path) -> str:
    """What to type here to call us again."""
    if name in ("zen", "tgpu", "gpu-cli"):
        return name
    launcher = root / "zen"
    if here == root or not launcher.is_file():
        return "./zen"
    from shutil import which

    on_path = which("zen")
    same = on_path is not None and Path(on_path).resolve() == launcher.resolve()
    return "zen" if same else str(launcher)


def here() -> Path:
    """The working directory; the checkout if it was deleted."""
    try:
        return Path.cwd().resolve()
    except OSError:  # the directory was deleted
        return ROOT


PROGRAM = _program(_NAME, ROOT, here())


class BadPlace(ZenError):
    """The state directory cannot be used as it is."""

    code = "bad_place"


@dataclass(frozen=True, slots=True)
class Running:
    """What `zen up` says about itself in run.json, for the other commands."""

    pid: int
    api: str
    sim: str
    bus: str
    bus_rest: str
    started_at: str
    vm_cap: int = 0
    note: str = ""
    config: str = ""
    """The file to edit."""
    processes: Mapping[str, int] = field(default_factory=dict)
    apis: Sequence[str] = ()
    """Of every replica, the first one's among them: each answers everything."""
    database: str = ""
    """Its URL; the directory is its owner's alone."""
    node: bool = False
    """`zen node`: jobs run on this machine, in the directories they were submitted from."""
    key_file: str = ""
    """Holds the owner's key; readable by the owner alone."""


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory: everything that a local run keeps."""

    path: Path

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def config(self) -> Path:
        return self.path / "zen.yaml"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def up_log(self) -> Path:
        return self.logs / "up.log"

    def make(self) -> None:
        """Makes the directory for its owner alone: it holds people's logs and a database."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
                self.path.chmod(0o700)
            self.logs.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise BadPlace(
                f"cannot use {self.path} as state directory: {error.strerror}; "
                "name another with ZEN_HOME"
            ) from error

    def read(self) -> Running | None:
        """What the last `zen up` wrote, if it is there and whole; it need not run any more."""
        try:
            raw = json.loads(self.run_file.read_text(encoding="utf-8"))
            return Running(**raw)
        except (OSError, ValueError, TypeError):
            return None

    def write(self, running: Running) -> None:
        """Replaces run.json in one step, so that a reader never sees half of it."""
        fresh = self.run_file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(running), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.run_file)

    def forget(self) -> None:
        """Nothing runs here any more."""
        self.run_file.unlink(missing_ok=True)


def home() -> Home:
    """ZEN_HOME, else `.zen` in the checkout, else (installed elsewhere) `.zen` right here."""
    named = os.environ.get("ZEN_HOME")
    if named:
        return Home(Path(named).expanduser().absolute())
    base = ROOT if (ROOT / "pyproject.toml").is_file() else Path.cwd()
    return Home(base / ".zen")


def settings_directory() -> Path:
    """What the person keeps for all commands: in ZEN_HOME if that is set, else where other programs
    keep theirs."""
    named = os.environ.get("ZEN_HOME")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "zen"


def alive(pid: int) -> bool:
    """Whether that process exists (a zombie counts as gone)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True  # no /proc here: the signal was delivered, so it exists
    return state != "Z"


def send_signal(pid: int, number: signal.Signals) -> None:
    """Nothing happens if that process has ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
