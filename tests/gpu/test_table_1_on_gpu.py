"""Table 1 measured on a GPU: with its kernels, and the allocator's count of memory."""

from dataclasses import replace

import pytest

from manyheads.paper import table1

pytestmark = pytest.mark.gpu


def test_every_layer_type_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = {
        name: replace(sweep, n=(4096, 8192), d=(512, 1024), k=tuple(k // 8 or 0 for k in sweep.k[:2]))
        if "attention" in name
        else replace(sweep, n=(16, 32) if name == "recurrent" else (4096, 8192), d=(512, 1024), k=sweep.k[:2])
        for name, sweep in table1.SWEEPS["cuda"].items()
    }
    monkeypatch.setattr(table1, "SWEEPS", {"cuda": sweeps})
    results = table1.measure_layers("cuda", rounds=2, report_progress=lambda stage, done, total: None)
    assert all(cost.seconds > 0 and cost.bytes > 0 for cost in results.costs)
    for fit in results.fits:
        assert fit.measure != "FLOPs" or fit.within_tolerance, fit  # at such sizes the others mean little
