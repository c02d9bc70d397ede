"""GPU readings with and without a driver."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent import gpus
from agent.gpus import NvmlGpus, PretendGpus, open_gpus
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


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no NVML the VM has as many quiet GPUs as it was told."""
    monkeypatch.setattr(gpus, "_LIBRARY", "libno-such-thing.so")
    found = open_gpus(3)
    assert isinstance(found, PretendGpus)
    assert found.read() == (GpuReading(0), GpuReading(1), GpuReading(2))


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
