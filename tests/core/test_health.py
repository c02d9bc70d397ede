"""When a GPU or a VM is left alone."""

from __future__ import annotations

from core.health import (
    WELL,
    FailedRun,
    HealthRules,
    VmHealth,
    job_failed,
    job_went_well,
    read_gpus,
    verdict,
)
from core.messages import GpuReading
from tests.builders import NOW, at

RULES = HealthRules()


def read(*gpus: GpuReading, health: VmHealth = WELL, second: float = 0) -> VmHealth:
    return read_gpus(health, gpus, RULES, at(second))


def says(health: VmHealth, second: float = 0, *, gpus: int = 2, idle: bool = False) -> str:
    return verdict(health, gpus, idle=idle, rules=RULES, now=at(second))


def fails(*kinds: str, step_s: float = 10.0) -> VmHealth:
    health = WELL
    for number, kind in enumerate(kinds):
        run = FailedRun(at(number * step_s), f"job-{number}", kind)
        health = job_failed(health, run, RULES)
    return health


def test_healthy_readings_cost_nothing() -> None:
    """The same object: nothing is written for a heartbeat that brings no news."""
    assert read(GpuReading(0, temp_c=84), GpuReading(1)) is WELL
    assert read() is WELL


def test_hot_gpu_is_avoided_until_it_has_cooled_down() -> None:
    """Five degrees below the threshold; in between nothing changes, not even the words."""
    hot = read(GpuReading(0, temp_c=91), GpuReading(1))
    assert hot.bad == {0}
    assert hot.words == "GPU 0 is hot (91 °C)"
    assert read(GpuReading(0, temp_c=83), GpuReading(1), health=hot, second=10) is hot
    assert read(GpuReading(0, temp_c=79), GpuReading(1), health=hot, second=20) == WELL


def test_memory_errors_and_faults_name_themselves() -> None:
    """Each with its reason."""
    ill = read(GpuReading(0, ecc_errors=2), GpuReading(1, fault="does not answer: lost"))
    assert ill.words == "GPU 0 has uncorrected memory errors (2); GPU 1 does not answer: lost"


def test_vm_goes_when_all_its_gpus_are_bad() -> None:
    """One of two is avoided; both mean that it is of no use. When nothing runs there, one is
    enough: a whole VM is better."""
    one = read(GpuReading(0, ecc_errors=1), GpuReading(1))
    assert says(one) == ""
    assert says(one, idle=True).startswith("bad GPUs: GPU 0")
    both = read(GpuReading(0, ecc_errors=1), GpuReading(1, ecc_errors=1))
    assert says(both).startswith("all its GPUs are bad")


def test_heat_is_waited_for_a_while() -> None:
    """What a job left behind goes by itself."""
    hot = read(GpuReading(0, temp_c=95), GpuReading(1, temp_c=95))
    assert says(hot, 60, idle=True) == ""
    assert says(hot, 121).startswith("all its GPUs are bad")


def test_different_jobs_that_fail_in_a_row_blame_the_vm() -> None:
    """Three within the hour; the same work again and again is to blame itself."""
    assert says(fails("a", "b")) == ""
    assert says(fails("a", "b", "c")) == (
        "3 different jobs failed on it in a row: job-0, job-1, job-2"
    )
    assert says(fails("a", "a", "a", "a")) == ""
    assert says(fails("a", "b", "c", step_s=2000)) == ""


def test_success_clears_the_vm() -> None:
    """A VM that can finish a job is not to blame for the others."""
    assert job_went_well(fails("a", "b")) == WELL
    assert job_went_well(WELL) is WELL


def test_zero_failures_means_never() -> None:
    """The rule can be switched off."""
    off = HealthRules(failures=0)
    assert verdict(fails("a", "b", "c"), 2, idle=True, rules=off, now=NOW) == ""
