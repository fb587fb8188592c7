"""The cost of compression on a device, compared with a copy there, `torch.topk` and torch's threshold.

The times of our passes contain the transfer of the kept entries to the host. The others leave them on the device.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import torch

from benchmarks.compress import in_torch, lean_top_k, naive_top_k
from benchmarks.measure import Work, medians, residual_and_update, show_seconds
from gammafl.core.compressors import HardThreshold, TopK
from gammafl.core.device.places import place_named
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.errors import InputError
from gammafl.core.moment import Moment
from gammafl.report.tables import TextTable

COPY = "copy there, 8 bytes an element"
OURS, OUR_TOP_K, KERNEL = "fused pass, torch's operations", "our Top-k", "fused pass, Triton's kernel (experimental)"


def tables(dims: list[int], device: str, kept: float, repeats: int) -> Iterator[TextTable]:
    """A table for each dimension. With device "cpu", tensors are compressed by the same torch operations."""
    place_named(device)  # an `InputError` if it can't be used
    for dim in dims:
        seconds = medians(_contenders(dim, torch.device(device), kept), repeats)
        rows = [[name, show_seconds(value), f"{value / seconds[COPY]:.2f}×"] for name, value in seconds.items()]
        title = f"compression on {device}: d = {dim:,}, {kept:.2%} kept"
        yield TextTable(title, ["", "median", "of the copy"], rows, "Only ours includes the transfer to the host.")


def _contenders(dim: int, device: torch.device, kept: float) -> dict[str, Work]:
    values, change = residual_and_update(dim)
    residual, update = (torch.from_numpy(vector).to(device, copy=True) for vector in (values, change))
    k = max(1, round(kept * dim))
    threshold = float(torch.topk((residual + update).abs(), k).values[-1])
    updates = (update, -update)
    room = torch.empty_like(residual)
    works: dict[str, Work] = {
        COPY: lambda: room.copy_(residual),
        OURS: _ours(HardThreshold(threshold), residual, updates),
        OUR_TOP_K: _ours(TopK(k), residual, updates),
        "torch.topk alone": lambda: torch.topk(update.abs(), k),
        "torch.topk with error feedback": in_torch(lambda rest, new: naive_top_k(rest, new, k), residual, updates),
        "torch.topk with error feedback, lean": in_torch(
            lambda rest, new: lean_top_k(rest + new, k), residual, updates
        ),
        "torch threshold with error feedback": in_torch(
            lambda rest, new: _above(rest + new, threshold), residual, updates
        ),
    }
    if device.type == "cuda" and (kernel := _kernel()) is not None:
        works[KERNEL] = _ours(HardThreshold(threshold), residual, updates, kernel)
    return {name: _waited_for(work, device) for name, work in works.items()}


def _ours(compressor: Any, residual: torch.Tensor, updates: tuple[torch.Tensor, ...], passes: Any = None) -> Work:
    rest, turns, moment = TorchVector(residual.clone()), cycle([TorchVector(update) for update in updates]), Moment()

    def work() -> Any:
        before, TorchVector.passes = TorchVector.passes, passes
        try:
            return compressor.add_and_take(next(turns), rest, moment)
        finally:
            TorchVector.passes = before

    return work


def _kernel() -> Any:
    """Triton's kernel, if Triton is installed."""
    try:
        from gammafl.core.device.triton_pass import add_and_look
    except InputError:
        return None
    return staticmethod(add_and_look)


def _above(wanted: torch.Tensor, threshold: float) -> Any:
    mask = wanted.abs() > threshold
    return mask.nonzero().squeeze(1), wanted[mask], wanted * ~mask


def _waited_for(work: Work, device: torch.device) -> Work:
    """Waits for the device at the end of `work`, because it still computes when Python is done."""
    if device.type == "cpu":
        return work
    module = getattr(torch, device.type)  # torch.cuda, torch.xpu, …

    def waited() -> None:
        work()
        module.synchronize()

    return waited
