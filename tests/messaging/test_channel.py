"""What the client decides before and after the wire: cutting requests, reading errors."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as google_errors
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BusDown, Forbidden, ZenError
from core.messages import OutMessage
from messaging.channel import explain
from messaging.errors import BusRefused, ContentRefused
from messaging.pubsub import PUBLISH_BYTES_MAX, PUBLISH_MESSAGES_MAX, _chunks


@given(
    st.lists(st.sampled_from([0, 10, 1_000_000, 4_000_000, PUBLISH_BYTES_MAX + 1]), max_size=30),
    st.sampled_from([1, 900]),
)
def test_chunks_keep_order_and_limits(sizes: list[int], repeat: int) -> None:
    """Every message is in one request, in order; none exceeds a limit unless one alone does."""
    shapes = {size: OutMessage("t", b"x" * size) for size in set(sizes)}
    messages = [shapes[size] for size in sizes for _ in range(repeat if size < 100 else 1)]
    chunks = list(_chunks(messages, range(len(messages))))
    assert [place for chunk in chunks for place in chunk] == list(range(len(messages)))
    for chunk in chunks:
        assert 1 <= len(chunk) <= PUBLISH_MESSAGES_MAX
        size = sum(len(messages[place].body) for place in chunk)
        assert len(chunk) == 1 or size <= PUBLISH_BYTES_MAX


@pytest.mark.parametrize(
    ("kind", "ours", "word"),
    [
        (google_errors.ServiceUnavailable, BusDown, "as Google says it"),
        (google_errors.DeadlineExceeded, BusDown, "does not answer"),
        (google_errors.InternalServerError, BusDown, "does not answer"),
        (google_errors.Aborted, BusDown, "does not answer"),
        (google_errors.ResourceExhausted, BusDown, "quota"),
        (google_errors.NotFound, BusRefused, "zen infra apply --pubsub"),
        (google_errors.InvalidArgument, ContentRefused, "refuses what was sent"),
        (google_errors.FailedPrecondition, BusRefused, "as Google says it"),
        (google_errors.PermissionDenied, Forbidden, "credentials"),
        (google_errors.Unauthenticated, Forbidden, "credentials"),
    ],
)
def test_google_errors_name_the_next_move(
    kind: type[Exception], ours: type[ZenError], word: str
) -> None:
    """What may pass is BusDown, what a human must mend is not, and both name the topic."""
    told = explain(kind("as Google says it"), "topic t-1")
    assert type(told) is ours
    assert "topic t-1" in str(told)
    assert word in str(told)
