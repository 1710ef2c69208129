"""While a graph is recorded, Python's garbage is left lying, and only then."""

import gc

import pytest

from manyheads.cuda.graphs import garbage_left_lying


def test_garbage_is_left_lying_until_the_recording_ends_or_fails() -> None:
    with garbage_left_lying():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="spoilt"), garbage_left_lying():
        raise RuntimeError("spoilt")
    assert gc.isenabled()


def test_whoever_had_switched_collecting_off_finds_it_so() -> None:
    with garbage_left_lying():
        with garbage_left_lying():
            pass
        assert not gc.isenabled()
