"""The wire under arbitrary input: round trips, and nothing but BadMessage for the rest."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from core.job_fields import WorkerSpec
from core.messages import (
    ContinueJob,
    Control,
    DrainVm,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    Peer,
    Progress,
    ResizeJob,
    Size,
    StartJob,
    StopJob,
    VmReadings,
)
from core.names import Names
from messaging import wire
from messaging.codec import (
    BadMessage,
    decode_control,
    decode_heartbeat,
    decode_submission,
    encode_control,
    encode_heartbeat,
)
from tests.messaging.mail import arrived, raw

NAMES = Names()


def refusal(decode: Callable[[InMessage], object], message: InMessage) -> str | None:
    """Why the message was refused, or None; anything but BadMessage goes through."""
    try:
        decode(message)
    except BadMessage as error:
        return str(error)
    return None


def _is_good(reason: str) -> bool:
    """A reason names a field, and can itself be stored in PostgreSQL."""
    return ":" in reason and "\0" not in reason and len(reason) < 1000


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ids = st.text("abcXYZ019._-", min_size=1, max_size=63)
counts = st.integers(0, 2**31 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
spans = st.floats(0, 1e9)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
specs = st.builds(
    WorkerSpec,
    job_id=ids,
    user_id=ids,
    tenant_id=ids,
    name=text,
    command=st.lists(text, max_size=4).map(tuple),
    shell=st.booleans(),
    environment=st.dictionaries(ids, text, max_size=3),
    gpu_type=st.none() | ids,
    gpu_count=st.integers(1, 64),
    max_runtime_s=spans,
    stop_grace_s=spans,
    keep_alive=st.booleans(),
    workflow=text,
    workflow_args=st.dictionaries(text, json_values, max_size=3),
)
job_sizes = st.builds(
    Size,
    generation=st.integers(0, 2**63 - 1),
    least=counts,
    most=counts,
    members=st.lists(st.builds(Peer, rank=counts, address=text), max_size=3).map(tuple),
)
controls: st.SearchStrategy[Control] = st.one_of(
    st.builds(
        StartJob,
        vm_name=ids,
        boot_nonce=ids,
        spec=specs,
        cluster=st.just("4xl4"),
        region=ids,
        attempt=counts,
        lease_id=ids,
        slots=st.lists(st.integers(0, 15), max_size=4).map(tuple),
        rank=counts,
        world_size=counts,
        leader_address=text,
        resume=st.booleans(),
        size=st.none() | job_sizes,
    ),
    st.builds(
        ResizeJob,
        vm_name=ids,
        boot_nonce=ids,
        job_id=ids,
        user_id=ids,
        attempt=counts,
        lease_id=ids,
        size=job_sizes,
    ),
    st.builds(
        StopJob,
        vm_name=ids,
        boot_nonce=ids,
        job_id=ids,
        user_id=ids,
        attempt=counts,
        lease_id=ids,
        grace_s=spans,
        reason=text,
    ),
    st.builds(
        ContinueJob,
        vm_name=ids,
        boot_nonce=ids,
        job_id=ids,
        user_id=ids,
        attempt=counts,
        lease_id=ids,
        answers=counts,
    ),
    st.builds(DrainVm, vm_name=ids, boot_nonce=ids, reason=text),
)
job_heartbeats = st.builds(
    Heartbeat,
    status=st.sampled_from(HeartbeatStatus),
    vm_name=ids,
    job_id=ids,
    user_id=ids,
    attempt=counts,
    lease_id=ids,
    seq=st.integers(0, 2**63 - 1),
    instance_id=ids,
    boot_nonce=ids,
    zone=ids,
    exit_code=st.none() | st.integers(-(2**31), 2**31 - 1),
    reason=text,
    progress=st.none() | st.builds(Progress, step=numbers, total=st.none() | numbers),
    checkpoint_step=st.none() | numbers,
    readings=st.builds(
        VmReadings,
        st.lists(st.builds(GpuReading, counts, numbers, numbers, numbers, counts), max_size=3).map(
            tuple
        ),
    ),
)


@given(controls)
def test_control_round_trip(control: Control) -> None:
    """Whatever the scheduler tells a v2 worker arrives whole."""
    assert decode_control(arrived(encode_control(control, NAMES))) == control


@given(job_heartbeats)
def test_heartbeat_round_trip(heartbeat: Heartbeat) -> None:
    """Whatever a v2 worker says arrives whole."""
    assert decode_heartbeat(arrived(encode_heartbeat(heartbeat, NAMES))) == heartbeat


@given(
    st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()),
    st.dictionaries(
        st.sampled_from(["kind", "vm_name", "boot_nonce"]),
        st.sampled_from(["start", "stop", "continue", "drain", "canary", ""]),
    ),
)
def test_no_bytes_raise_anything_but_bad_message(body: bytes, attributes: dict[str, str]) -> None:
    """Random input is decoded or refused with BadMessage; nothing else ever escapes."""
    message = raw(body, **attributes)
    for decode in (decode_heartbeat, decode_control, decode_submission):
        reason = refusal(decode, message)
        assert reason is None or _is_good(reason)


@given(
    st.dictionaries(
        st.sampled_from([*wire.WireHeartbeat.__struct_fields__, *wire.WireStart.__struct_fields__]),
        json_values,
    )
)
def test_known_fields_with_any_value_never_escape(body: dict[str, object]) -> None:
    """The right field names with the wrong values are refused with BadMessage alone."""
    for kind in ("heartbeat", "canary", "start", "stop", "continue", "drain"):
        message = raw(body, vm_name="v", boot_nonce="n", kind=kind)
        for decode in (decode_heartbeat, decode_control):
            reason = refusal(decode, message)
            assert reason is None or _is_good(reason)
