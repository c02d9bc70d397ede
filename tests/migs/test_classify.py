"""What Google's error codes mean to us."""

from __future__ import annotations

import pytest

from core.region_blocks import BlockKind
from migs.classify import ComputeError, classify, is_global

K = BlockKind


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", K.STOCKOUT),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", K.STOCKOUT),
        ("RESOURCE_POOL_EXHAUSTED", "", K.STOCKOUT),
        ("STOCKOUT", "", K.STOCKOUT),
        ("QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded.", K.QUOTA),
        ("REGIONAL_QUOTA_LIMIT", "", K.QUOTA),
        ("IP_SPACE_EXHAUSTED", "", K.ADDRESS_SPACE),
        ("IP_SPACE_EXHAUSTED_WITH_DETAILS", "", K.ADDRESS_SPACE),
        ("PERMISSIONS_ERROR", "", K.PERMISSION),
        ("FORBIDDEN", "", K.PERMISSION),
        ("UNSUPPORTED_OPERATION", "", K.UNSUPPORTED),
        ("INVALID_FIELD", "", K.UNSUPPORTED),
        ("RESOURCE_NOT_FOUND", "zones/us-east1-b/machineTypes/a3-highgpu-8g", K.UNSUPPORTED),
        ("RESOURCE_NOT_FOUND", "Machine type a3-highgpu-8g does not exist", K.UNSUPPORTED),
        ("RESOURCE_NOT_FOUND", "global/images/gone was not found", K.OTHER),
        ("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", "", K.PERMISSION),
        ("", "The zone 'z' does not have enough resources available to fulfil it.", K.STOCKOUT),
        ("CONDITION_NOT_MET", "", K.OTHER),
        ("UNSUPPORTED_OPERATION", "Instance failed to start due to preemption.", K.STOCKOUT),
        ("PREEMPTED", "", K.STOCKOUT),
        ("SERVICE_ACCOUNT_ACCESS_DENIED", "", K.PERMISSION),
        ("X", "The user does not have access to service account 'a@b'.", K.PERMISSION),
        ("", "", K.OTHER),
    ],
)
def test_classify(code: str, message: str, kind: BlockKind) -> None:
    """Each family of codes has its own kind of region block; an unknown one is OTHER, not an
    error."""
    assert classify(ComputeError(code, message)) is kind


@pytest.mark.parametrize(
    ("error", "everywhere"),
    [
        (ComputeError("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0"), True),
        (ComputeError("QUOTA_EXCEEDED", "", quota="GPUS-ALL-REGIONS-per-project"), True),
        (ComputeError("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded.  Limit: 8.0 globally."), True),
        (ComputeError("QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded in region r."), False),
        (ComputeError("STOCKOUT", "globally"), False),
    ],
)
def test_a_quota_over_all_regions_is_known(error: ComputeError, everywhere: bool) -> None:
    """By its metric, or by Google's words."""
    assert is_global(error) is everywhere


def test_reason_counts_as_well() -> None:
    """Google's errorInfo.reason decides where the code is a general one."""
    error = ComputeError("UNKNOWN_ERROR", "", reason="resource_availability")
    assert classify(error) is K.STOCKOUT
