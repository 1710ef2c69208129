"""Table 1 measured on a GPU: through the fused kernels, with the allocator's own count of memory."""

from dataclasses import replace

import pytest

from manyheads.paper import table1

pytestmark = pytest.mark.gpu


def test_every_layer_is_measured_there(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = {
        name: replace(sweep, n=(4096, 8192), d=(512, 1024), k=tuple(one // 8 or 0 for one in sweep.k[:2]))
        if "attention" in name
        else replace(sweep, n=(16, 32) if name == "recurrent" else (4096, 8192), d=(512, 1024), k=sweep.k[:2])
        for name, sweep in table1.SWEEPS["cuda"].items()
    }
    monkeypatch.setattr(table1, "SWEEPS", {"cuda": sweeps})
    found = table1.measure_layers("cuda", rounds=2, report_progress=lambda stage, done, total: None)
    assert all(one.seconds > 0 and one.bytes > 0 for one in found.costs)
    for fit in found.fits:
        assert fit.measure != "FLOPs" or fit.within_tolerance, fit  # at such sizes the others mean little
