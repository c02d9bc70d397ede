"""GPU readings: from NVML where there is one, else as many zeros as the VM says it has."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Protocol

from core.messages import GpuReading

_LIBRARY = "libnvidia-ml.so.1"


class Gpus(Protocol):
    """All GPUs of this VM."""

    @property
    def count(self) -> int: ...
    def read(self) -> tuple[GpuReading, ...]:
        """May take a while: call it from a thread."""
        ...


class PretendGpus:
    """GPUs that exist by agreement. A file may say how they are, to see what a hot or broken one
    leads to: a list of readings, e.g. [{"index": 0, "temp_c": 93}]."""

    def __init__(self, count: int, said: Path | None = None) -> None:
        self.count = count
        self._said = said

    def read(self) -> tuple[GpuReading, ...]:
        found = {reading.index: reading for reading in self._read_file()}
        return tuple(found.get(index) or GpuReading(index) for index in range(self.count))

    def _read_file(self) -> list[GpuReading]:
        if self._said is None or not self._said.exists():
            return []
        try:
            return [GpuReading(**words) for words in json.loads(self._said.read_bytes())]
        except (ValueError, TypeError) as error:
            return [GpuReading(0, fault=f"{self._said.name} cannot be read: {error}")]


class NvmlGpus:
    """GPUs as the driver sees them. What a GPU cannot tell reads as zero."""

    def __init__(self) -> None:
        import pynvml  # noqa: PLC0415  # only where there is a driver

        self._nvml = pynvml
        pynvml.nvmlInit()
        self.count = int(pynvml.nvmlDeviceGetCount())

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(self._reading(index) for index in range(self.count))

    def _reading(self, index: int) -> GpuReading:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            return GpuReading(index, fault=f"does not answer: {error}")  # fallen off the bus
        return GpuReading(
            index=index,
            util=self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            temp_c=self._ask(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            mem_used_mb=self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20),
            ecc_errors=int(
                self._ask(
                    lambda: nvml.nvmlDeviceGetTotalEccErrors(
                        handle,
                        nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                        nvml.NVML_VOLATILE_ECC,
                    )
                )
            ),
        )

    def _ask(self, question: _Question) -> float:
        try:
            return float(question())
        except self._nvml.NVMLError:
            return 0.0


class _Question(Protocol):
    def __call__(self) -> float: ...


def is_real(gpus: Gpus) -> bool:
    """Whether there is a device that a container would have to be handed."""
    return isinstance(gpus, NvmlGpus)


def open_gpus(count: int, said: Path | None = None) -> Gpus:
    """NVML's if its library is there, else `count` pretend ones."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return PretendGpus(count, said)
    return NvmlGpus()
