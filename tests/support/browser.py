"""Fixtures for tests in headless Chromium, which the conftest.py of a folder imports.

Tests are skipped where playwright or Chromium is not installed. With CI=true that is a failure, unless
.ci/run may not install Chromium, without root, and says so with MANYHEADS_NO_BROWSER=1.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

VIEWPORT = {"width": 1100, "height": 900}


def skip_without_browser(reason: str) -> NoReturn:
    """Skip a test, or fail it where the browser must be there."""
    if os.environ.get("CI") == "true" and os.environ.get("MANYHEADS_NO_BROWSER") != "1":
        pytest.fail(f"{reason}, but with CI=true browser tests must run: .ci/run installs what they need")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        skip_without_browser("Chromium is not installed")
    try:
        from playwright import sync_api
    except ImportError:
        skip_without_browser("playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class BrowserPages:
    """Opens pages in contexts of their own, and collects what goes wrong in them."""

    browser: Any
    problems: list[str] = field(default_factory=list)  # console messages, errors, dialogs, foreign requests
    contexts: list[Any] = field(default_factory=list)

    def create(self, is_allowed: Callable[[str], bool], **settings: Any) -> Any:
        """Create a page that may request only the allowed URLs."""
        context = self.browser.new_context(**{"viewport": VIEWPORT, "locale": "en-US", **settings})
        self.contexts.append(context)
        page = context.new_page()
        problems = self.problems
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: is_allowed(request.url) or problems.append(request.url))
        page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}") or dialog.dismiss())
        return page


@pytest.fixture
def pages(browser: Any) -> Iterator[BrowserPages]:
    """At the end asserts that nothing went wrong in the pages that a test opened."""
    browser_pages = BrowserPages(browser)
    yield browser_pages
    for context in browser_pages.contexts:
        context.close()
    assert browser_pages.problems == []
