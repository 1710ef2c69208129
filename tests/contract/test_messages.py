"""Messages in Korean: where the locale is Korean, for the demo and for the errors that beginners meet."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads import demo
from manyheads.cli import app, messages
from manyheads.evaluate.bleu import Score
from manyheads.translation import Translation
from support.source_messages import source_messages
from support.source_tree import ROOT, SOURCE

HANGUL = re.compile(r"[가-힣]")
CATALOG = messages.read_catalog()
TROUBLESHOOTING = [ROOT / "docs" / "troubleshooting.md", ROOT / "docs" / "troubleshooting.ko.md"]


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko"}, "ko"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "kok_IN"}, "en"),  # Konkani
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "C", "LC_ALL": "", "LC_MESSAGES": "ko_KR.UTF-8"}, "ko"),
    ],
)
def test_the_locale_decides_the_language(environment: dict[str, str], language: str) -> None:
    assert messages.message_language(environment) == language


@pytest.mark.parametrize("english", CATALOG["errors"])
def test_errors_of_the_catalog_are_raised_by_the_source(english: str) -> None:
    pattern = re.compile("(.*?)".join(map(re.escape, english.split("{}"))), re.DOTALL)
    assert any(pattern.fullmatch(text) for text in source_messages())


@pytest.mark.parametrize("english", CATALOG["demo"])
def test_messages_of_the_demo_are_printed_by_it(english: str) -> None:
    assert english in (SOURCE / "cli" / "demo.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("english", "korean"), [*CATALOG["errors"].items(), *CATALOG["demo"].items()])
def test_korean_messages_insert_only_what_the_english_ones_do(english: str, korean: str) -> None:
    assert HANGUL.search(korean)
    assert {int(place) for place in re.findall(r"{(\d)}", korean)} <= set(range(english.count("{}")))
    assert "{}" not in korean
    for option in re.findall(r"--[a-z-]+", english):
        assert option in korean


def test_the_most_specific_error_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    assert messages.localize_error(
        "run: exists already; choose another folder, or replace it with --force"
    ) == ("run: 이미 있습니다. 다른 폴더를 고르거나 --force로 바꾸십시오")
    assert messages.localize_error("an error that has no translation") == "an error that has no translation"
    monkeypatch.setenv("LC_ALL", "C")
    assert messages.localize_error("out of memory") == "out of memory"


@pytest.mark.parametrize(
    ("arguments", "korean", "english", "exit_code"),
    [
        (
            ["inspect", "base", "model.haeds=4"],
            "모르는 키 model.haeds. model.heads",
            "unknown key model.haeds",
            2,
        ),
        (["inspect", "base", "model.heads=7"], "model.heads의 값 7", "model.heads is 7, which does not", 2),
        (["prepare", "data"], "학습할 글이 없습니다", "no training text", 2),
        (
            ["models", "--jsn"],
            "manyheads models에는 옵션 --jsn이(가) 없습니다",
            "manyheads models has no option",
            2,
        ),
    ],
)
def test_a_command_explains_an_error_in_the_language_of_the_locale(
    arguments: list[str], korean: str, english: str, exit_code: int
) -> None:
    for locale, text in (("ko_KR.UTF-8", korean), ("C.UTF-8", english)):
        done = subprocess.run(
            [sys.executable, "-m", "manyheads", *arguments],
            env={"LC_ALL": locale, "PYTHONPATH": str(SOURCE.parent)},
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == exit_code
        assert done.stderr.startswith(f"manyheads: {text}")


def test_the_demo_closes_in_the_language_of_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translation = Translation(source="Taxes rose.", text="세금.", score=-1.0)
    result = demo.DemoResult(
        tmp_path / "model", [("I go.", "나는 간다.", "나는 간다.")] * 2, 1.0, Score("BLEU", 100.0, "sig"),
        tmp_path / "page.html", 144, translation,
    )  # fmt: skip
    monkeypatch.setattr(demo, "translate_with_box", lambda out: None)
    monkeypatch.setattr(demo, "run_demo", lambda *arguments: result)
    for locale, texts in {
        "ko_KR.UTF-8": ("떼어 둔 2문장: 100.0% 일치", "서로 다른 단어가 144개뿐", "신뢰도 알 수 없음"),
        "C": ("2 held-out sentences: 100.0% exact", "only 144 different words", "confidence unknown"),
    }.items():
        monkeypatch.setenv("LC_ALL", locale)
        output = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)], catch_exceptions=False).stdout
        assert [text for text in texts if text not in output] == []
        assert f"manyheads translate {tmp_path}/model" in output
        pages = re.findall(r" -o (\S+)", output)
        assert pages == [f"{tmp_path}/page.html", f"{tmp_path}/training.html"], "in the folder of the demo"


def messages_of(document: Path) -> list[str]:
    """Return what the first columns of a document's tables have between back-ticks."""
    return re.findall(r"^\| `([^`]+)` \|", document.read_text(encoding="utf-8"), flags=re.M)


@pytest.mark.parametrize("document", TROUBLESHOOTING, ids=lambda path: path.name)
def test_the_messages_of_the_troubleshooting_tables_exist(document: Path) -> None:
    listed = messages_of(document)
    assert len(listed) > 30
    patterns = {text: re.compile(".*".join(map(re.escape, text.split("…"))), re.DOTALL) for text in listed}
    missing = [text for text, pattern in patterns.items() if not any(map(pattern.search, source_messages()))]
    assert not missing


def test_both_troubleshooting_tables_have_the_same_messages() -> None:
    english, korean = map(messages_of, TROUBLESHOOTING)
    assert english == korean


def quoted_messages() -> list[tuple[str, str]]:
    """Return the messages of the Korean table that it quotes in Korean, and these quotations."""
    text = TROUBLESHOOTING[1].read_text(encoding="utf-8")
    return re.findall(r'^\| `([^`]+)` \| "([^"]+)"\.', text, flags=re.M)


def fits(pattern: str, text: str) -> bool:
    """Return whether the parts of a pattern, with … between them, are in a text in this order."""
    return bool(re.search(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL))


def test_the_korean_messages_of_the_troubleshooting_table_are_those_of_the_catalog() -> None:
    quoted = quoted_messages()
    assert len(quoted) > 25
    for english, korean in quoted:
        translations = [text for message, text in CATALOG["errors"].items() if fits(english, message)]
        assert any(fits(korean, text) for text in translations), korean


def test_messages_that_are_in_the_catalog_are_quoted_in_korean() -> None:
    quoted = {english for english, _ in quoted_messages()}
    translated = {
        english
        for english in messages_of(TROUBLESHOOTING[1])
        if any(fits(english, message) for message in CATALOG["errors"])
    }
    assert translated == quoted
