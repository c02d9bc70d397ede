"""The table of tenant settings: one declaration, from which checks, REST and options follow."""

from __future__ import annotations

import pytest

from core.errors import BadInput
from core.tenant_settings import FIELDS, LIMITS, QUOTA_FIELDS, SETTINGS, changed
from core.tenants import Quota, Tenant


def test_every_setting_is_declared_whole() -> None:
    """Each has a check that takes its default, a schema, and an option of its own."""
    tenant = Tenant("a")
    for name, setting in {**SETTINGS, **LIMITS}.items():
        owners = [part for part in (tenant, tenant.consent, tenant.quota) if hasattr(part, name)]
        assert setting.check(getattr(owners[0], name)) is None, name
        assert setting.schema["type"]
        assert setting.option.flags.startswith("--")
    flags = [setting.option.flag for setting in (*SETTINGS.values(), *LIMITS.values())]
    assert len(set(flags)) == len(flags)
    assert set(QUOTA_FIELDS) == set(Quota.__dataclass_fields__)


def test_what_is_left_out_stays_and_null_takes_a_limit_away() -> None:
    """A change of one setting is a change of nothing else."""
    first = changed("a", None, {"weight": 2, "spot": True, "quota": {"gpus": 4, "jobs": 1}}, ())
    then = changed("a", first, {"quota": {"gpus": None}}, ())
    assert (then.weight, then.consent.spot, then.quota) == (2, True, Quota(jobs=1))
    assert (first.version, then.version) == (1, 2)


@pytest.mark.parametrize(("word", "number"), [("low", 499), ("High", 1999), (7, 7)])
def test_the_highest_priority_may_be_a_class(word: object, number: int) -> None:
    """The class as a whole: up to its highest number."""
    assert changed("a", None, {"priority_max": word}, ()).priority_max == number


@pytest.mark.parametrize(
    ("data", "field", "expected"),
    [
        ({"weight": 0}, "weight", "a number above 0"),
        ({"weight": None}, "weight", "a number above 0"),
        ({"weight": float("inf")}, "weight", "a number above 0"),
        ({"spot": 1}, "spot", "true or false"),
        ({"name": "a\nb"}, "name", "at most 128 printable characters"),
        ({"confirm_above_usd_per_hour": -1}, "confirm_above_usd_per_hour", "from 0 on, or null"),
        ({"quota": {"gpus": 1.5}}, "quota.gpus", "a whole number from 0 to 10000000, or null"),
        ({"priority_max": "huge"}, "priority_max", "9999, or low, normal, high, urgent"),
    ],
)
def test_a_wrong_value_is_told_with_its_field(
    data: dict[str, object], field: str, expected: str
) -> None:
    """The field as it was sent, and what it takes."""
    with pytest.raises(BadInput) as caught:
        changed("a", None, data, ())
    (fault,) = caught.value.faults
    assert fault.field == field
    assert fault.expected.endswith(expected)


def test_all_faults_are_told_at_once() -> None:
    """Unknown names as well."""
    with pytest.raises(BadInput) as caught:
        changed("a b", None, {"wieght": 1, "spot": 3, "quota": {"gpu": 1}}, ())
    assert [fault.field for fault in caught.value.faults] == [
        "tenant_id",
        "wieght",
        "spot",
        "quota.gpu",
    ]
    assert "quota" in FIELDS
