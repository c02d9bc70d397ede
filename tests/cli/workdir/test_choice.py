"""Which directory a job is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.workdir.choice import BadWorkdir, chosen

HOME = Path("/home/ada")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("train.py", "conf/a.yaml", "pkg/__main__.py", "with space.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path.resolve()


@pytest.mark.parametrize(
    "body",
    [
        {"command": ["python3", "train.py", "--steps", "5"]},
        {"command": ["python3", "./train.py"]},
        {"command": ["torchrun", "--config=conf/a.yaml"]},
        {"command": ["python3", "-m", "pkg"]},
        {"command": ["python3", "-m", "train"]},
        {"command": ["cd /x && python3 'with space.py' | tee log"], "shell": True},
        {"script": "python3 train.py\n"},
        {"command": ["python3"], "args": ["train.py"]},
        {"command": ["python3", "train.py"], "image": "python:3.12"},
    ],
)
def test_a_command_that_names_a_file_here_is_given_the_directory(
    body: dict[str, object], here: Path
) -> None:
    assert chosen(None, body, here, HOME) == here
    assert chosen("none", body, here, HOME) is None


@pytest.mark.parametrize(
    "body",
    [
        {"command": ["python3", "-c", "print(42)"]},
        {"command": ["python3", "/srv/train.py"]},
        {"command": ["cat", "../other"]},
        {"command": ["sleep", "60"]},
        {"command": ["ls", "conf"]},
        {"command": ["x" * 5000]},
        {"command": ["it's"], "shell": True},
        {"command": ["python3", "train.py"], "code": "a" * 64},
        {"command": ["python3", "train.py"], "working_dir": "/app"},
        {"workflow": "train.py"},
        {"image": "a"},
        {},
    ],
)
def test_others_are_not(body: dict[str, object], here: Path) -> None:
    assert chosen(None, body, here, HOME) is None
    assert chosen("copy", body, here, HOME) == here


def test_a_named_directory_is_sent(here: Path) -> None:
    assert chosen("conf", {}, here, HOME) == here / "conf"
    assert chosen(str(here), {}, Path("/"), HOME) == here
    with pytest.raises(BadWorkdir, match="--working-dir"):
        chosen("/app-that-is-in-an-image", {}, here, HOME)


def test_a_home_directory_is_sent_only_if_named(here: Path) -> None:
    body = {"command": ["python3", "train.py"]}
    with pytest.raises(BadWorkdir, match=r"train\.py is in .* not sent by itself"):
        chosen(None, body, here, here)
    assert chosen(".", body, here, here) == here
