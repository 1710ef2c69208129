"""Checkpoints that take a while to write."""

import time
from typing import Any

import pytest

from manyheads import checkpoint


def slow_down_saves(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    save = checkpoint.save

    def save_slowly(*arguments: Any, **options: Any) -> None:
        time.sleep(seconds)
        save(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save", save_slowly)
