"""Files of environment variables: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.env_file import BadEnvFile, read_env_file

TEXT = r"""
# a comment
PLAIN=one two   # and why
export EXPORTED = x=y
EMPTY=
SINGLE='a # $b \n'
DOUBLE="say \"hi\"\nagain"  # twice
URL=http://host/#anchor
"""


def test_values_are_read_as_dotenv_reads_them(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(TEXT)
    assert read_env_file(file) == {
        "PLAIN": "one two",
        "EXPORTED": "x=y",
        "EMPTY": "",
        "SINGLE": r"a # $b \n",
        "DOUBLE": 'say "hi"\nagain',
        "URL": "http://host/#anchor",
    }


@pytest.mark.parametrize("line", ["hush", "1A=hush", "A='hush", 'A="hush', "A-B=hush", "=hush"])
def test_a_wrong_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / ".env"
    file.write_text(f"GOOD=1\n{line}\n")
    with pytest.raises(BadEnvFile, match="line 2") as refused:
        read_env_file(file)
    assert "hush" not in str(refused.value)
