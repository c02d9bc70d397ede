"""GPU readings: from NVML, or from GPUs that the VM was told to pretend."""

from __future__ import annotations

import asyncio
import ctypes
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Protocol

from core.errors import ZenError
from core.messages import GpuReading

_LIBRARY = "libnvidia-ml.so.1"
DRIVER_WAIT_S = 420.0
"""An image that installs its driver at the first boot takes minutes. Shorter than boot_timeout_s,
so that the reason is said before the VM is deleted."""
DRIVER_LOOK_S = 5.0


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

    def _ask(self, question: Callable[[], float]) -> float:
        try:
            return float(question())
        except self._nvml.NVMLError:
            return 0.0


def is_real(gpus: Gpus) -> bool:
    """Whether there is a device that a container would have to be handed."""
    return isinstance(gpus, NvmlGpus)


class UnusableGpus(ZenError):
    """The GPUs that the machine should have are not there, or not yet."""

    code = "unusable_gpus"


def open_gpus(count: int, *, pretend: bool, said: Path | None = None) -> Gpus:
    """As many as the machine should have, or UnusableGpus. May take a while, or hang with the
    driver: call it from a thread. Nothing is pretended unless that was said: a job would start, and
    fail for want of its GPUs."""
    if pretend or count == 0:
        return PretendGpus(count, said)
    try:
        ctypes.CDLL(_LIBRARY)
        gpus = NvmlGpus()
    except OSError as error:
        raise UnusableGpus(f"no NVIDIA driver: {error}") from error
    except Exception as error:  # NVML's own, which exist only where it does
        raise UnusableGpus(f"the NVIDIA driver does not answer: {error}") from error
    if gpus.count < count:
        raise UnusableGpus(f"the driver sees {gpus.count} of {count} GPUs")
    return gpus


async def wait_for_gpus(attempt: Callable[[], Gpus], wait_s: float = DRIVER_WAIT_S) -> Gpus:
    """The GPUs, when the driver has them: it may still be installing. UnusableGpus after the wait,
    with the last reason."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        try:
            return await _in_a_thread(attempt, max(1.0, until - loop.time()))
        except TimeoutError:
            raise UnusableGpus("the NVIDIA driver hangs") from None
        except UnusableGpus:
            if loop.time() + DRIVER_LOOK_S > until:
                raise
        await asyncio.sleep(DRIVER_LOOK_S)


async def _in_a_thread(attempt: Callable[[], Gpus], wait_s: float) -> Gpus:
    """A thread that nobody waits for at the end, as NVML may hang for ever."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Gpus] = loop.create_future()

    def settle(result: Gpus | Exception) -> None:
        if found.done():
            return
        if isinstance(result, Exception):
            found.set_exception(result)
        else:
            found.set_result(result)

    def run() -> None:
        result: Gpus | Exception
        try:
            result = attempt()
        except Exception as error:  # it is raised where somebody waits
            result = error
        with suppress(RuntimeError):  # the loop is closed: we are leaving
            loop.call_soon_threadsafe(settle, result)

    Thread(target=run, name="gpus", daemon=True).start()
    async with asyncio.timeout(wait_s):
        return await found
