"""A podman of the tests' own: its storage, its socket, and an image that needs no registry."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.containers.docker import Docker, DockerError
from core.clock import SystemClock

IMAGE = "localhost/zen-busybox"
IMAGE_OF_NOBODY = "localhost/zen-nobody"
"""The same, with a user of its own."""
NEEDED = ("podman", "runc", "conmon", "busybox")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_TIMEOUT_S = 60


def missing() -> list[str]:
    """What is not installed. Debian: podman, runc, busybox-static."""
    return [name for name in NEEDED if shutil.which(name, path=_path()) is None]


@cache
def why_not() -> str:
    """Why no container can run here; empty if one has just run."""
    with TemporaryDirectory(prefix="zen-podman-") as home:
        podman = Podman(Path(home))
        why = podman.prepare()
        if not why:
            podman.clear()
        return why


class Podman:
    """Settings that also work inside another container, where the usual ones do not."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "api.sock"
        self.address = f"unix://{self.socket}"
        self.docker = Docker(self.address)
        self._words = [
            shutil.which("podman", path=_path()) or "podman",
            *("--root", str(home / "root"), "--runroot", str(home / "run")),
            # Or it would share with every other podman what it knows of how containers ended.
            *("--tmpdir", str(home / "tmp")),
            *("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"),
            *("--runtime", shutil.which("runc", path=_path()) or "runc"),
        ]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._words, *words],
            env={**os.environ, "PATH": _path()},
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout.decode()

    def prepare(self) -> str:
        """Loads the image and runs it once; why that is not possible, or nothing."""
        if found := missing():
            return f"not installed: {', '.join(found)}"
        if os.geteuid() != 0:
            return "tests start containers as root only"
        try:
            self.load_image()
            self.run("run", "--rm", "--network", "host", *LIMITS, IMAGE, "true")
        except subprocess.CalledProcessError as error:
            return f"podman cannot run a container: {error.stderr.decode(errors='replace')[-300:]}"
        except subprocess.TimeoutExpired:
            return f"podman did not run a container within {_TIMEOUT_S} s"
        return ""

    def load_image(self) -> None:
        """Busybox, its links, and an entrypoint that says its arguments."""
        tar = self.home / "image.tar"
        tar.write_bytes(_image_tar())
        changes = ['ENTRYPOINT ["/bin/echo", "entry"]', 'CMD ["usual"]', "WORKDIR /srv"]
        for image, more in ((IMAGE, []), (IMAGE_OF_NOBODY, ["USER nobody"])):
            flags = [word for change in (*changes, *more) for word in ("--change", change)]
            self.run("import", *flags, str(tar), f"{image}:latest")

    @contextmanager
    def serve(self) -> Iterator[Podman]:
        """The Docker API, as `systemctl start podman.socket` would give it."""
        try:
            with self.api(self.socket):
                yield self
        finally:
            self.clear()

    @contextmanager
    def api(self, socket: Path) -> Iterator[str]:
        """One more door to the same containers: its address. They outlive it."""
        address = f"unix://{socket}"
        with (self.home / "service.log").open("ab") as log:
            words = [*self._words, "system", "service", "--time", "0", address]
            service = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # It looks for iptables itself, for the bridge.
                env={**os.environ, "PATH": _path()},
            )
            try:
                self._await(Docker(address), service)
                yield address
            finally:
                service.terminate()
                service.wait(_TIMEOUT_S)

    def _await(self, docker: Docker, service: subprocess.Popen[bytes]) -> None:
        clock = SystemClock().monotonic
        give_up_at = clock() + _TIMEOUT_S
        while clock() < give_up_at and service.poll() is None:
            try:
                docker.labelled("none")
                return
            except DockerError:
                subprocess.run(["sleep", "0.05"], check=True)
        raise AssertionError((self.home / "service.log").read_text(errors="replace"))

    def clear(self) -> None:
        """vfs keeps every layer as a directory, some of them read-only."""
        self.run("rm", "--all", "--force", "--time", "0")
        shutil.rmtree(self.home / "root", ignore_errors=True)


def _path() -> str:
    """runc and conmon lie where only root looks."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def _image_tar() -> bytes:
    busybox = Path(shutil.which("busybox", path=_path()) or "busybox").resolve()
    names = subprocess.run([busybox, "--list"], check=True, capture_output=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in sorted({name.decode() for name in names} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        users = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        tar.addfile(passwd, io.BytesIO(users))
        for directory in ("tmp", "srv", "proc", "dev", "sys"):
            made = tarfile.TarInfo(directory)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(made)
    return out.getvalue()
