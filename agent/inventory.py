"""Which GPUs this machine has: from NVML, else from nvidia-smi, else none."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_SMI_S = 20.0
"""The first question after a boot loads the driver."""
_MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro|graphics|generation|ada)\b")
_FORMS = re.compile(r"\b(sxm\d*|pcie|nvl|hbm\d*e?)\b")
_MEMORY = re.compile(r"\b(\d+)\s?gb\b")


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """One GPU as its driver calls it."""

    product: str
    memory_mb: int

    @property
    def gpu_type(self) -> str:
        """As clusters are called: `NVIDIA A100-SXM4-40GB` is a100-40gb, `NVIDIA L4` is l4."""
        words = self.product.lower().replace("-", " ")
        memory = _MEMORY.search(words)
        plain = _FORMS.sub(" ", _MAKERS.sub(" ", _MEMORY.sub(" ", words)))
        parts = re.sub(r"[^a-z0-9]+", " ", plain).split()
        if memory is not None:
            parts.append(f"{memory[1]}gb")
        return "-".join(parts)[:30].strip("-") or "gpu"


def find_gpus() -> Sequence[FoundGpu]:
    """In the driver's order. Empty where there is no driver, or it does not answer."""
    found = _from_nvml()
    return found if found is not None else _from_smi()


def most_of_a_kind(found: Sequence[FoundGpu]) -> Sequence[FoundGpu]:
    """A worker has GPUs of one type: the most frequent here, the first of two equals."""
    counted = Counter(gpu.gpu_type for gpu in found)
    kind = max(counted, key=lambda gpu_type: counted[gpu_type], default="")
    return [gpu for gpu in found if gpu.gpu_type == kind]


def _from_nvml() -> Sequence[FoundGpu] | None:
    try:
        import pynvml  # noqa: PLC0415  # an extra, only where there is a driver

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver: each has its own error
        return None
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [
        FoundGpu(
            str(pynvml.nvmlDeviceGetName(handle)),
            int(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**20),
        )
        for handle in handles
    ]


def _from_smi() -> Sequence[FoundGpu]:
    try:
        said = subprocess.run(_SMI, capture_output=True, text=True, timeout=_SMI_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return read_smi(said.stdout)


def read_smi(text: str) -> Sequence[FoundGpu]:
    """Lines such as `NVIDIA L4, 23034`; a GPU that cannot tell its memory says [N/A]."""
    found = []
    for line in text.splitlines():
        product, comma, memory = line.rpartition(",")
        if comma:
            digits = memory.strip()
            found.append(FoundGpu(product.strip(), int(digits) if digits.isdecimal() else 0))
    return found
