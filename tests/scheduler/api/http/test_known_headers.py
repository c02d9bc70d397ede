"""Headers that are found by one look-up."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from scheduler.api.http.known_headers import KnownHeaders

RAW = [(b"host", b"zen"), (b"x-one", b"first"), (b"x-one", b"second"), (b"x-word", b"caf\xe9")]


@pytest.mark.parametrize("name", ["host", "Host", "X-ONE", "x-word", "x-none"])
def test_they_answer_as_the_framework_does(name: str) -> None:
    """Any case; of several the first; what is not there is not there."""
    known, usual = KnownHeaders({"headers": RAW}), Headers(raw=RAW)
    assert known.get(name) == usual.get(name)
    assert known.get(name, "none") == usual.get(name, "none")
    assert (name in known) == (name in usual)
    if name in usual:
        assert known[name] == usual[name]
    else:
        with pytest.raises(KeyError):
            known[name]
