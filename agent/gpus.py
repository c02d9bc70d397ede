"""GPU readings: from NVML where there is one, else as many zeros as the VM says it has."""

from __future__ import annotations

import ctypes
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
    """GPUs that exist by agreement."""

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(GpuReading(index) for index in range(self.count))


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
        except nvml.NVMLError:
            return GpuReading(index)  # fallen off the bus
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


def open_gpus(count: int) -> Gpus:
    """NVML's if its library is there, else `count` pretend ones."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return PretendGpus(count)
    return NvmlGpus()
