"""Settings of all tests, and the table of parameter counts at the end of the report."""

import os
import signal

import hypothesis
import pytest
import torch

# The same examples every time, so that only the code changes the result; `thorough` draws new ones.
hypothesis.settings.register_profile("default", max_examples=30, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=400, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton kernels run in NumPy


@pytest.fixture(autouse=True)
def seed_torch() -> None:
    torch.manual_seed(0)


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ:  # threads of several workers would compete
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from support.parameter_counts import format_table

    terminalreporter.section("parameters: ours and the paper's")
    terminalreporter.write_line(format_table())
