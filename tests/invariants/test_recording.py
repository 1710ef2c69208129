"""While a graph is recorded, Python's garbage is left lying, and only then."""

import gc

import pytest

from manyheads.cuda.graphs import gc_paused


def test_garbage_is_left_lying_until_the_recording_ends_or_fails() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="spoilt"), gc_paused():
        raise RuntimeError("spoilt")
    assert gc.isenabled()


def test_whoever_had_switched_collecting_off_finds_it_so() -> None:
    with gc_paused():
        with gc_paused():
            pass
        assert not gc.isenabled()
