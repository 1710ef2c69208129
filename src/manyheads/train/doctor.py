"""A report on this machine: versions, devices, free disk, and what would make training fail."""

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from manyheads.config import TransformerConfig
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.dispatch import choose_attention

PACKAGES = (
    "manyheads",
    "torch",
    "numpy",
    "sentencepiece",
    "safetensors",
    "sacrebleu",
)
MIN_FREE_DISK = 5 * 2**30  # bytes; five checkpoints of the base model with its optimizer are about 3.8 GB


def report() -> dict[str, Any]:
    """Return what to look at first when something does not work."""
    return {
        "python": f"{sys.version.split()[0]} on {platform.platform()}",
        **{name: installed_version(name) for name in PACKAGES},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": f"{torch.get_num_threads()}, which wait {describe_wait_policy()}",
        "gpus": list_gpus() or "none",
        "attention": attention_backend(),
        "free disk": f"{shutil.disk_usage('.').free / 2**30:.1f} GiB here",
        "warnings": collect_warnings() or "none",
    }


def installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def describe_wait_policy() -> str:
    """Return how OpenMP's threads wait for work; commands set it to passive, unless the environment does."""
    policy = os.environ.get("OMP_WAIT_POLICY", "").lower()
    if policy == "passive":
        return "asleep (OMP_WAIT_POLICY=passive)"
    return f"by spinning (OMP_WAIT_POLICY={policy or 'not set'}): slow beside other busy processes"


def list_gpus() -> list[str]:
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in gpus]


def attention_backend() -> str:
    """Return the attention implementation that trains the base model here."""
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    width = TransformerConfig().head_dim_k
    q = torch.empty(1, 1, width, device=device, dtype=dtype)
    return f"{choose_attention(q, q, AttentionSpec())} ({device}, {str(dtype).removeprefix('torch.')})"


def collect_warnings() -> list[str]:
    warnings = []
    if shutil.disk_usage(".").free < MIN_FREE_DISK:
        warnings.append("less than 5 GiB of disk space is free: checkpoints of a base model may not fit")
    if not torch.cuda.is_available():
        warnings.append("no GPU: small models train here, but the paper's would take weeks")
    elif not torch.cuda.is_bf16_supported():
        warnings.append('the GPU has no bfloat16: set train.precision = "float32"')
    if torch.get_num_threads() == 1 and (os.cpu_count() or 1) > 1:
        warnings.append("torch uses one thread although there are several cores: unset OMP_NUM_THREADS")
    return warnings
