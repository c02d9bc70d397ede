"""A podman of a setup's own: its storage, its socket, and stand-ins for the images that programs
name. A stand-in is busybox with a few scripts: no registry is asked, and nothing real is trained.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.containers.docker import Docker, DockerError
from tests.clients.programs.frame import ClientFailed, last_words

NEEDED = ("podman", "runc", "conmon", "busybox")
_TIMEOUT_S = 60.0
_SOCKET = "podman.sock"


def address(scratch: Path) -> str:
    """DOCKER_HOST of the stack: the workers look there when a job brings an image."""
    return f"unix://{scratch / _SOCKET}"


def why_not() -> str:
    """Why no container can be run here; empty: nothing speaks against it."""
    absent = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    if absent:
        return f"{', '.join(absent)}: not installed"
    return "" if os.geteuid() == 0 else "containers are started as root only"


@contextmanager
def podman(scratch: Path, images: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Serves the Docker API with these images, each with its scripts (path → text) beside
    busybox; nothing of it is left afterwards."""
    home = scratch / "podman"
    home.mkdir()
    words = _podman(home)
    for image, scripts in images.items():
        _import(words, home, image, scripts)
    with (home / "service.log").open("ab") as log:
        argv = [*words, "system", "service", "--time", "0", address(scratch)]
        service = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait(Docker(address(scratch)), home / "service.log")
            yield
        finally:
            service.terminate()
            service.wait(_TIMEOUT_S)
            _run(words, "rm", "--all", "--force", "--time", "0")
            shutil.rmtree(home / "root", ignore_errors=True)


def _podman(home: Path) -> list[str]:
    """With settings that also work inside another container, where the usual ones do not."""
    return [
        shutil.which("podman", path=_path()) or "podman",
        *("--root", str(home / "root"), "--runroot", str(home / "run")),
        *("--tmpdir", str(home / "tmp"), "--storage-driver", "vfs"),
        *("--cgroup-manager", "cgroupfs"),
        *("--runtime", shutil.which("runc", path=_path()) or "runc"),
    ]


def _import(words: list[str], home: Path, image: str, scripts: Mapping[str, str]) -> None:
    tar = home / "image.tar"
    tar.write_bytes(_tar(scripts))
    # What a short name stands for, for Docker and for the workers.
    first = image.partition("/")[0]
    whole = image if "." in first or first == "localhost" else f"docker.io/{_in_library(image)}"
    _run(words, "import", "--change", 'CMD ["/bin/sh"]', str(tar), whole)


def _in_library(image: str) -> str:
    return image if "/" in image else f"library/{image}"


def _run(words: list[str], *more: str) -> None:
    done = subprocess.run(
        [*words, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = last_words(done.stdout.decode(errors="replace"))
        raise ClientFailed(f"podman {more[0]} failed: {said}")


def _wait(docker: Docker, log: Path) -> None:
    for _ in range(int(_TIMEOUT_S * 10)):
        try:
            docker.labelled("none")
            return
        except DockerError:
            time.sleep(0.1)
    raise ClientFailed(f"podman does not answer: {last_words(log.read_text(errors='replace'))}")


def _path() -> str:
    """runc and conmon lie where only root looks."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def _tar(scripts: Mapping[str, str]) -> bytes:
    busybox = Path(shutil.which("busybox", path=_path()) or "busybox").resolve()
    listed = subprocess.run([busybox, "--list"], check=True, capture_output=True).stdout
    names = {name.decode() for name in listed.split()} - {"busybox"}
    names -= {Path(path).name for path in scripts if Path(path).parent == Path("/bin")}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in sorted(names):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for directory in ("tmp", "proc", "dev", "sys"):
            made = tarfile.TarInfo(directory)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(made)
        _add(tar, "etc/passwd", "root:x:0:0::/:/bin/sh\n", 0o644)
        for path, text in scripts.items():
            _add(tar, path.lstrip("/"), text, 0o755)
    return out.getvalue()


def _add(tar: tarfile.TarFile, path: str, text: str, mode: int) -> None:
    body = text.encode()
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(body), mode
    tar.addfile(entry, io.BytesIO(body))
