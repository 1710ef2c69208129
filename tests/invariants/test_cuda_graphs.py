"""While a graph is recorded, Python's garbage is left lying, and only then."""

import gc

import pytest

from manyheads.cuda.graphs import gc_paused


def test_garbage_collection_is_paused_until_the_block_ends_or_fails() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="spoilt"), gc_paused():
        raise RuntimeError("spoilt")
    assert gc.isenabled()


def test_disabled_garbage_collection_stays_disabled() -> None:
    with gc_paused():
        with gc_paused():
            pass
        assert not gc.isenabled()
