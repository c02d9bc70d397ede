"""GPU readings with and without a driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent import gpus
from agent.gpus import Gpus, NvmlGpus, PretendGpus, UnusableGpus, open_gpus, wait_for_gpus
from core.messages import GpuReading


class NvmlError(Exception):
    """What the driver raises."""


def driver(**changes: object) -> SimpleNamespace:
    """An NVML with two GPUs."""
    words = {
        "NVMLError": NvmlError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87),
        "nvmlDeviceGetTemperature": lambda *_: 61,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=5 * 2**20),
        "nvmlDeviceGetTotalEccErrors": lambda *_: 1,
    }
    return SimpleNamespace(**{**words, **changes})


def refuses(*_: object) -> object:
    raise NvmlError


def test_pretend_gpus_only_where_that_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretend VM has as many quiet GPUs as it was told; a real one without a driver has none, and
    says so. A machine without GPUs needs no driver."""
    monkeypatch.setattr(gpus, "_LIBRARY", "libno-such-thing.so")
    found = open_gpus(3, pretend=True)
    assert isinstance(found, PretendGpus)
    assert found.read() == (GpuReading(0), GpuReading(1), GpuReading(2))
    assert open_gpus(0, pretend=False).count == 0
    with pytest.raises(UnusableGpus, match=r"no NVIDIA driver: libno-such-thing\.so"):
        open_gpus(3, pretend=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the driver sees 2 of 4 GPUs"),
        ({"nvmlInit": refuses}, "the NVIDIA driver does not answer"),
    ],
)
def test_fewer_gpus_than_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], words: str
) -> None:
    """Fewer than the machine type has, or a driver that refuses: not usable, with the reason."""
    monkeypatch.setattr(gpus, "_LIBRARY", "libc.so.6")
    monkeypatch.setitem(sys.modules, "pynvml", driver(**changes))
    with pytest.raises(UnusableGpus, match=words):
        open_gpus(4, pretend=False)


async def test_a_driver_that_is_being_installed_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is looked for again and again, within a bound; then the last reason is told."""
    monkeypatch.setattr(gpus, "DRIVER_LOOK_S", 0.0)
    tries: Iterator[Gpus | UnusableGpus] = iter(
        [UnusableGpus("no driver"), UnusableGpus("no driver"), PretendGpus(1)]
    )

    def attempt() -> Gpus:
        found = next(tries)
        if isinstance(found, UnusableGpus):
            raise found
        return found

    assert (await wait_for_gpus(attempt)).count == 1

    def never() -> Gpus:
        raise UnusableGpus("still no driver")

    with pytest.raises(UnusableGpus, match="still no driver"):
        await wait_for_gpus(never, wait_s=0.0)


def test_with_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are NVML's, in our units."""
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    found = NvmlGpus()
    assert found.count == 2
    assert found.read()[1] == GpuReading(1, 87.0, 61.0, 5.0, 1)


def test_what_a_gpu_cannot_tell_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without ECC, or one that fell off the bus, does not silence the others; the one that
    is gone says so."""

    def handle(index: int) -> object:
        return refuses() if index == 0 else index

    changed = driver(nvmlDeviceGetTotalEccErrors=refuses, nvmlDeviceGetHandleByIndex=handle)
    monkeypatch.setitem(sys.modules, "pynvml", changed)
    gone, other = NvmlGpus().read()
    assert gone.fault.startswith("does not answer: ")
    assert other == GpuReading(1, 87.0, 61.0, 5.0, 0)


def test_pretend_gpus_are_as_the_file_says(tmp_path: Path) -> None:
    """To see what a hot GPU leads to; without the file, or without a word on one, it is well. A
    file that cannot be read is a fault that somebody will see."""
    said = tmp_path / "gpus.json"
    pretend = PretendGpus(2, said)
    assert pretend.read() == (GpuReading(0), GpuReading(1))
    said.write_text('[{"index": 1, "temp_c": 93}]')
    assert pretend.read() == (GpuReading(0), GpuReading(1, temp_c=93))
    said.write_text("[{")
    assert "gpus.json cannot be read" in pretend.read()[0].fault
