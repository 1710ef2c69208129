"""Tasks of the worker thread that translate and score texts."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.html_document import HtmlDocument
from manyheads.errors import RequestError
from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import TranslationOptions
from manyheads.pipeline.preparation import TextPreparer
from manyheads.serve.jobs import JobSize
from manyheads.serve.schemas import TranslateRequest
from manyheads.serve.served_model import ServedModel, suppress_warnings
from manyheads.text.term_matching import Glossary
from manyheads.translation import Translation

MakeResults = Callable[[list[Translation]], list[Translation]]

SCORE_LENGTH_FACTOR = 4  # scored sentences may be so many times longer than those of training


@dataclass(frozen=True)
class TextTask:
    """Base of the tasks that translate: what their items need is the translation of texts."""

    model: ServedModel
    nbest: int = 1
    glossary: Glossary | None = field(default=None, kw_only=True)
    space: str | None = field(default=None, kw_only=True)  # of the corrections that are used, if any are

    @property
    def can_join(self) -> bool:
        return self.model.can_join

    def begin(self, items: Sequence[str]) -> tuple[list[str], MakeResults]:
        """Return the texts of items, and what makes the results of these of their translations."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Translator.translate`."""
        beam = max(self.nbest, self.model.translator.decoding.beam)
        terms = {} if self.glossary is None else {"glossary": self.glossary}
        return {"beam": beam, "nbest": self.nbest, "corrections": self.space or False, **terms}

    @property
    def stage_key(self) -> Hashable:
        """Tasks with the same key can share their stages; None: they are for this task alone."""
        return None if self.glossary is not None else (self.model, *self.options.items())

    def size(self, items: Sequence[str]) -> JobSize:
        return self.estimate_size(self.begin(items)[0])

    def estimate_size(self, texts: Sequence[str]) -> JobSize:
        """Return the tokens and lines of texts: a line has at least one sentence."""
        num_lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
        num_tokens = sum(map(self.model.count_tokens, texts)) + self.count_forced_tokens(texts, num_lines)
        return JobSize(num_tokens, num_lines, self.options["beam"])

    @property
    def forces_tokens(self) -> bool:
        return self.glossary is not None

    def count_forced_tokens(self, texts: Sequence[str], num_lines: int) -> int:
        """Return the tokens of the translations of terms, each as often as its term occurs."""
        if self.glossary is None:
            return 0
        matches = [match for text in texts for match in self.glossary.find(text, self.model.source)]
        lengths = {
            own: self.model.count_target_tokens(own) for own in {match.translation for match in matches}
        }
        return sum(lengths[match.translation] for match in matches)

    def run(self, items: Sequence[str], check_canceled: Callable[[], None]) -> list[Translation]:
        texts, make_results = self.begin(items)
        with suppress_warnings():
            return make_results(
                self.model.translator.translate(texts, check_canceled=check_canceled, **self.options)
            )

    def create_stages(self) -> tuple[TranslationOptions, TextPreparer, Assembler]:
        """Return what comes before and after decoding, for sentences that join a running batch."""
        return self.model.translator.create_stages(**self.options)


@dataclass(frozen=True)
class TranslateTask(TextTask):
    """Translate texts."""

    details: bool = False  # with the scores of tokens, and the alignment where the engine has one
    prefix: str = ""  # of the translation of each sentence
    forbid: tuple[str, ...] = ()  # words that must not come out

    def begin(self, items: Sequence[str]) -> tuple[list[str], MakeResults]:
        return list(items), lambda translations: translations

    @property
    def forces_tokens(self) -> bool:
        return bool(self.prefix) or super().forces_tokens

    def count_forced_tokens(self, texts: Sequence[str], num_lines: int) -> int:
        prefix = self.model.count_target_tokens(self.prefix) if self.prefix else 0
        return prefix * num_lines + super().count_forced_tokens(texts, num_lines)

    @property
    def stage_key(self) -> Hashable:
        """What is the user's own text is for this task alone, so that stages that are kept stay few."""
        return None if self.prefix or self.forbid else super().stage_key

    @property
    def options(self) -> dict[str, Any]:
        return {
            **super().options,
            "alignment": self.details and self.model.can_align,
            "scores": "tokens" if self.details else "total",
            **({"prefix": self.prefix} if self.prefix else {}),
            **({"forbid": self.forbid} if self.forbid else {}),
        }


@dataclass(frozen=True)
class DocumentTask(TextTask):
    """Translate texts of a document, with the alignment that places what is inside them."""

    def begin(self, items: Sequence[str]) -> tuple[list[str], MakeResults]:
        return list(items), lambda translations: translations

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "alignment": self.model.can_align, "scores": "total"}


@dataclass(frozen=True)
class TranslateHtmlTask(TextTask):
    """Translate HTML and keep its tags. html_document.py states the rules."""

    policy: ConfidencePolicy | None = None  # for each of the texts of a page

    def begin(self, items: Sequence[str]) -> tuple[list[str], MakeResults]:
        documents = [HtmlDocument(page) for page in items]

        def render(translations: list[Translation]) -> list[Translation]:
            remaining = iter(translations)
            return [
                render_page(page, document, [next(remaining) for _ in document.texts], self.policy)
                for page, document in zip(items, documents, strict=True)
            ]

        return [text for document in documents for text in document.texts], render

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "alignment": self.model.can_align, "scores": "total"}


def create_translate_task(
    model: ServedModel,
    query: TranslateRequest,
    policy: ConfidencePolicy | None,
    glossary: Glossary | None,
    space: str | None,
) -> TextTask:
    """Return the task of a request. HTML uses no corrections: to place its tags takes an alignment."""
    if query.format == "html":
        return TranslateHtmlTask(model, query.alternatives + 1, policy, glossary=glossary)
    return TranslateTask(
        model,
        query.alternatives + 1,
        query.details,
        prefix=query.prefix,
        forbid=tuple(query.forbid),
        glossary=glossary,
        space=space,
    )


def render_page(
    page: str, document: HtmlDocument, translations: Sequence[Translation], policy: ConfidencePolicy | None
) -> Translation:
    """Fill a page. Its n-th alternative holds the n-th best translation of each of its texts.

    Its confidence is the lowest of its texts.
    """
    nbest_lists = [[best, *best.alternatives] for best in translations]
    num_ranks = max(map(len, nbest_lists), default=1)
    alternatives = [
        Translation(page, document.render([nbest[min(rank, len(nbest) - 1)] for nbest in nbest_lists]))
        for rank in range(1, num_ranks)
    ]
    confidences = [best.confidence for best in translations if best.confidence is not None]
    return Translation(
        page,
        document.render(translations, policy),
        alternatives=alternatives,
        confidence=min(confidences, default=None),
        notes=list(dict.fromkeys(note for best in translations for note in best.notes)),
    )


@dataclass(frozen=True)
class ScoreTask:
    """Score given translations of texts."""

    model: ServedModel
    can_join: ClassVar[bool] = False

    def size(self, pairs: Sequence[tuple[str, str]]) -> JobSize:
        return JobSize(sum(self.model.count_tokens(text) for pair in pairs for text in pair), len(pairs))

    def run(self, pairs: Sequence[tuple[str, str]], check_canceled: Callable[[], None]) -> list[Translation]:
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        with suppress_warnings():
            return self.model.translator.score(sources, targets)

    def check(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Raise RequestError for texts that are too long, before the task enters the queue.

        A job that fails in a batch makes the others of the batch run again.
        """
        for pair in pairs:
            for text in pair:
                self._check_length(text)

    def _check_length(self, text: str) -> None:
        """Scored sentences are not split, and all their logits are in memory at once."""
        translator = self.model.translator
        length = self.model.count_tokens(text) + 1
        max_length = min(
            SCORE_LENGTH_FACTOR * translator.max_length, translator.engine.capabilities.max_positions or 2**30
        )
        if length > max_length:
            raise RequestError(
                f"a sentence has {length} tokens, but at most {max_length} can be scored: split it"
            )
