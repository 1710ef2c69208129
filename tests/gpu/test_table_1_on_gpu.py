"""Table 1 measured on a GPU: with its kernels, and the allocator's count of memory."""

from dataclasses import replace

import pytest

from manyheads.paper import layer_costs
from manyheads.paper.size_sweeps import SWEEPS

pytestmark = pytest.mark.gpu


def test_every_layer_type_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = {
        name: replace(sweep, n=(4096, 8192), d=(512, 1024), k=tuple(k // 8 or 0 for k in sweep.k[:2]))
        if "attention" in name
        else replace(sweep, n=(16, 32) if name == "recurrent" else (4096, 8192), d=(512, 1024), k=sweep.k[:2])
        for name, sweep in SWEEPS["cuda"].items()
    }
    monkeypatch.setattr(layer_costs, "SWEEPS", {"cuda": sweeps})
    results = layer_costs.measure_layers("cuda", rounds=2, report_progress=lambda stage, done, total: None)
    assert all(cost.seconds > 0 and cost.bytes > 0 for cost in results.costs)
    for fit in results.fits:
        assert fit.measure != "FLOPs" or fit.within_tolerance, fit  # at such sizes the others mean little
