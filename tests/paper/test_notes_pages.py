"""The report of the notes: placeholders, conditions, languages, and a self-contained page."""

import base64
import json
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from manyheads.cli import main
from manyheads.errors import RequestError
from manyheads.look.fonts import fonts_covering
from manyheads.paper.notes import report
from manyheads.paper.notes.answers import QUESTIONS, STEPS, Answers, measure_all
from manyheads.paper.notes.drawing import smooth_curve
from manyheads.paper.notes.pages import (
    LANGUAGES,
    fill_template,
    list_conditions,
    list_placeholders,
    load_prose,
)
from manyheads.paper.notes.report import write_notes
from manyheads.paper.report import save_figure
from manyheads.plot_style import import_pyplot
from support.untrained_model import save_untrained_model

pytest.importorskip("matplotlib")

OF_THE_PAPER = re.compile(r"Table \d|표 \d|row \(A\)|ConvS2S")  # references to it
OF_MATHEMATICS = re.compile(r"(합이|크기가) 1인|평균이 0, 분산이 1이면|f\(x\) = 0")  # not spelled out
OF_THE_RUN = {"provenance", "seconds", "questions"}


@pytest.fixture(scope="module")
def answers() -> Answers:
    """All experiments in very few steps: the numbers are meaningless, the report is complete."""
    return measure_all(steps_fraction=0.01)


@pytest.fixture(autouse=True)
def use_quick_results(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Reuse the results, and draw figures without writing them."""

    def save(figure: Any, folder: Path, name: str) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.svg").write_text("<svg/>")
        import_pyplot().close(figure)
        return [folder / f"{name}.svg"]

    monkeypatch.setattr(report, "save_figure", save)
    monkeypatch.setattr(report, "measure_all", lambda *_, **__: request.getfixturevalue("answers"))


# ---- the prose


def test_both_languages_have_the_same_parts_placeholders_conditions_and_labels() -> None:
    english, korean = (load_prose(language) for language in LANGUAGES)
    assert list(english.parts) == list(korean.parts)
    for name, text in english.parts.items():
        assert list_placeholders(text) == list_placeholders(korean.parts[name]), name
        assert list_conditions(text) == list_conditions(korean.parts[name]), name
    assert {name: set(labels) for name, labels in english.labels.items()} == {
        name: set(labels) for name, labels in korean.labels.items()
    }
    for name, labels in english.labels.items():
        if name in QUESTIONS:
            assert list_placeholders(labels["effect"]) == list_placeholders(korean.labels[name]["effect"]), (
                name
            )


def test_every_finding_has_a_paragraph_for_either_outcome(answers: Answers) -> None:
    one_sided = {("residuals", "post_norm_learns")}  # an optional remark
    for language in LANGUAGES:
        for name, results in answers.by_question().items():
            conditions = list_conditions(load_prose(language).parts[name])
            for finding in results.findings:
                expected = (
                    {(finding, False)}
                    if (name, finding) in one_sided
                    else {(finding, True), (finding, False)}
                )
                assert {condition for condition in conditions if condition[0] == finding} == expected, (
                    name,
                    finding,
                )
            assert {finding for finding, _ in conditions} == set(results.findings)
            assert set(results.EXPECTED) <= set(results.findings)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_placeholder_has_a_value(language: str, answers: Answers) -> None:
    prose = load_prose(language)  # type: ignore[arg-type]
    for name, results in answers.by_question().items():
        xavier = answers.xavier[name].placeholders if name in answers.xavier else {}
        known = set(results.placeholders) | {"table", "figure", "grammar_relation"}
        known |= {f"xavier_{key}" for key in xavier}
        assert list_placeholders(prose.parts[name]) <= known, name
        assert list_placeholders(prose.labels[name]["effect"]) <= known, name
        assert {"table", "figure"} <= list_placeholders(prose.parts[name])
    assert list_placeholders(prose.parts["intro"]) <= OF_THE_RUN


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_prose_contains_no_numbers(language: str) -> None:
    for name, text in load_prose(language).parts.items():  # type: ignore[arg-type]
        remaining = OF_MATHEMATICS.sub("", OF_THE_PAPER.sub("", text))
        digits = re.findall(r"\d", re.sub(r"\{\w+\}", "", remaining))
        assert not digits, (name, digits)


def test_a_paragraph_is_kept_if_its_condition_is_true() -> None:
    text = "Always {a}.\n\n[if x] It shows {a}.\n\n[if not x] It does not."
    assert fill_template(text, {"a": "7"}, {"x": True}) == "Always 7.\n\nIt shows 7."
    assert fill_template(text, {"a": "7"}, {"x": False}) == "Always 7.\n\nIt does not."
    with pytest.raises(KeyError):
        fill_template("{missing}", {}, {})


def test_the_conclusion_follows_the_numbers(answers: Answers) -> None:
    figures = {name: Path(f"{name}.svg") for name in QUESTIONS}

    def render(tied: float) -> tuple[str, str]:
        accuracy = {"apart": 0.9, "tied": tied}
        changed = replace(answers, projections=replace(answers.projections, accuracy=accuracy))
        page = report.make_page(changed, "en", figures, "here", 1.0)
        (section,) = (section for section in page.sections if section.name == "projections")
        return section.body, page.to_markdown()

    assert "shows what this costs" in render(0.5)[0]
    assert "did not show the difference in this run: 90.0%" in render(0.9)[0]
    assert "| no, see below |" in render(0.9)[1]


def test_every_trained_question_is_measured_from_both_initial_weights(answers: Answers) -> None:
    """At the default the effects may differ; the summary shows both, and the numbers are not the same."""
    assert set(answers.xavier) == set(STEPS)
    page = report.make_page(answers, "en", {name: Path(f"{name}.svg") for name in QUESTIONS}, "here", 1.0)
    for section in page.sections:
        assert (section.xavier is not None) == (section.name in STEPS), section.name
    assert answers.warmup.losses["with"][0] != answers.xavier["warmup"].losses["with"][0]
    assert "From Xavier's initial weights" in page.summary.to_markdown()


# What each of the five study notes says, computes and asks, one entry for each of its points, and where the
# report answers it: the part of the text and the numbers that it needs.
NOTE_LINES = {
    "A": [
        ("lines", "chain_recurrent chain_attention short_batch long_batch"),
        ("relations", "above syntactic"),
        ("residuals", "healthy_gradient healthy_loss loss_identity loss_zero branch deep_pre"),
        ("lines", "distance_self cosine_self learned_self learned_asymmetry kernel_change"),
        ("lines", "weight_entropy sample_error_few sample_error_many output_deviation"),
    ],
    "B": [
        ("lines", "factor_share chain_factorized"),
        ("lines", "hops_contiguous hops_dilated hops_attention one_head_difference two_head_difference"),
        ("lines", "thinking_products thinking_scores thinking_values thinking_output"),
        ("lines", "table time_narrow memory_wide additive_wide dot_wide scaled_dot_wide"),
    ],
    "C": [
        ("projections", "diagonal_raw diagonal_tied diagonal_apart"),
        ("scale", "variance variance_scaled entropy_dot accuracy_dot accuracy_scaled"),
        ("lines", "one_head_similarity two_head_similarity"),
        ("lines", "left right sum node node_normalized vector_layer vector_group affine_numbers"),
        ("residuals", "deepest deep_none deep_post"),
        ("lines", "mask_difference mask_gap after_is_nan after_gradient_nan hidden_rows_nan"),
    ],
    "D": [
        ("example", "words tokens table"),
        ("lines", "convolution_difference embedding_without position_size shortest_wave longest_wave"),
        ("lines", "beta_1 beta_2 epsilon dropout smoothing"),
    ],
    "E": [
        ("lines", "rate_first"),  # LSTMN and structured self-attention stand beside it in words
        ("lines", "thinking machines"),
        ("lines", "rate_first_fall rate_first_rise rate_last_fall rate_last_rise rate_factor rate_last"),
        ("lines", "target_others target_all overfit_valid_plain overfit_valid_smoothed"),
    ],
}


def test_every_line_of_the_five_notes_is_answered() -> None:
    assert {note: len(points) for note, points in NOTE_LINES.items()} == {
        "A": 5,
        "B": 4,
        "C": 6,
        "D": 3,
        "E": 4,
    }
    for language in LANGUAGES:
        parts = load_prose(language).parts
        for note, points in NOTE_LINES.items():
            for part, names in points:
                assert set(names.split()) <= list_placeholders(parts[part]), (language, note, names)
        for name in ("LSTMN", "ConvS2S", "ByteNet", "Thinking"):
            assert name in parts["lines"]


# ---- the files


class References(HTMLParser):
    """Every address in a page, every id, and every element."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "data", "xlink:href", "poster"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_report_is_complete_in_both_languages_and_self_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_only = save_figure

    def save(figure: Any, folder: Path, name: str) -> list[Path]:
        if name.endswith("ko"):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            import_pyplot().close(figure)
        return [folder / f"{name}.svg"] if name.endswith("ko") else drawn_only(figure, folder, name)

    monkeypatch.setattr(report, "save_figure", save)
    notes_report = write_notes(tmp_path)
    assert [path.name for path in notes_report.files] == [
        "notes.en.md",
        "notes.ko.md",
        "notes.html",
        "notes.json",
    ]
    for language in LANGUAGES:
        text = (tmp_path / f"notes.{language}.md").read_text(encoding="utf-8")
        assert not re.search(r"\{\w*\}|\[if |<!--", text)
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
        assert len(pictures) == len(QUESTIONS)
        assert all((tmp_path / picture).exists() for picture in pictures)
        assert text.count("\n## ") == len(QUESTIONS)
    page = (tmp_path / "notes.html").read_text(encoding="utf-8")
    references = References()
    references.feed(page)
    assert not references.elements & {"script", "link", "iframe", "object", "embed", "base"}
    inside = [address for address in references.addresses if address.startswith("data:image/svg+xml;base64,")]
    assert len(inside) == len(LANGUAGES) * len(QUESTIONS)
    anchors = [address for address in references.addresses if address not in inside]
    assert {address.removeprefix("#") for address in anchors} <= set(references.ids)
    assert len(references.ids) == len(set(references.ids))
    assert "url(" not in page
    assert "@import" not in page
    for picture in inside:
        drawn = base64.b64decode(picture.partition(",")[2]).decode("utf-8")
        assert all(address.startswith(("#", "data:")) for address in re.findall(r'href="([^"]*)"', drawn))
        assert "mathdefault" not in drawn
    data = json.loads((tmp_path / "notes.json").read_text(encoding="utf-8"))
    assert set(data) == {"files", "provenance", "seconds", "xavier", *QUESTIONS}
    assert data["scale"]["widths"] == [4, 16, 64, 256, 1024]
    assert set(data["warmup"]["findings"]) == {"first_updates", "learning"}


def test_a_single_language_has_no_switch(tmp_path: Path) -> None:
    notes_report = write_notes(tmp_path, language="ko")
    assert [path.name for path in notes_report.files] == ["notes.ko.md", "notes.html", "notes.json"]
    page = (tmp_path / "notes.html").read_text(encoding="utf-8")
    assert 'lang="ko"' in page
    assert 'type="radio"' not in page


def test_without_a_hangul_font_figures_are_english_and_the_korean_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    monkeypatch.setattr(report, "has_hangul_font", lambda: False)
    monkeypatch.setattr(report, "fonts_covering", lambda text: (texts.append(text), fonts_covering(text))[1])
    monkeypatch.setattr(report, "render_html", lambda *_: "")
    write_notes(tmp_path, language="ko")
    assert not re.search("[가-힣]", "".join(texts))
    assert "한글 글꼴이 없어서" in (tmp_path / "notes.ko.md").read_text(encoding="utf-8")


def test_a_curve_is_smoothed_except_its_first_value() -> None:
    values = [float(number) for number in range(30)]
    assert smooth_curve(values)[:20] == pytest.approx(values[:20])
    assert smooth_curve([8.0, 0.0, 0.0])[0] == 8.0


# ---- the command

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", "paper", "notes", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


def test_the_command_writes_to_the_given_folder_and_reports_as_json(notes: Call, tmp_path: Path) -> None:
    code, out, _ = notes("--language", "en", "--out", "here", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["files"] == ["here/notes.en.md", "here/notes.html", "here/notes.json"]
    assert data["provenance"].startswith("`manyheads paper notes`; ")
    assert (tmp_path / "here" / "notes" / "scale.en.svg").exists()


def test_a_usage_error_of_the_notes_is_one_line(
    notes: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notes("--language", "fr")[::2] == (
        2,
        "manyheads: --language is 'fr', but must be ko, en or both\n",
    )
    code, _, err = notes("--out", "/dev/null/x")
    assert code == 2
    assert err.startswith("manyheads: /dev/null/x: cannot be written (")
    monkeypatch.setattr(report, "measure_all", measure_all)
    code, _, err = notes("nowhere")
    assert code == 3
    assert err.startswith("manyheads: nowhere: not a model folder")


def test_an_unsuitable_model_is_rejected_before_the_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_untrained_model(tmp_path / "model")

    def too_late(*_: object, **__: object) -> None:
        raise RequestError("the long work began")

    monkeypatch.setattr("manyheads.paper.notes.translation.TranslationData.generate", too_late)
    with pytest.raises(RequestError, match="the long work began"):
        measure_all(model, steps_fraction=0.01)
    monkeypatch.setattr("manyheads.paper.notes.relations.LANGUAGE", "de")
    with pytest.raises(RequestError, match="translates from 'en'"):
        measure_all(model, steps_fraction=0.01)
