"""Terms that must or must not come out: what they ask of the source, and of the output as token ids.

A model that is trained with annotated terms reads what a term must become inside the source, and inflects it.
For other models the translation of a term is a phrase that the output must contain as it is.
"""

from collections.abc import Mapping, Sequence

from manyheads.errors import RequestError
from manyheads.text.subwords import SubwordPair
from manyheads.text.term_annotation import Annotation, annotate
from manyheads.text.term_matching import Glossary, TermMatch, contains_exactly, contains_inflected, is_hangul

Phrases = tuple[tuple[int, ...], ...]


class TermConstraints:
    """A prefix, a glossary and forbidden words."""

    def __init__(
        self,
        subwords: SubwordPair,
        prefix: str,
        glossary: Mapping[str, str] | Glossary,
        forbid: Sequence[str],
        *,
        annotated_language: str | None = None,
    ) -> None:
        """`annotated_language` is that of the source, if the model is trained with annotated terms."""
        if isinstance(forbid, str):
            raise RequestError(f"forbid is the text {forbid!r}, but must be a list of words")
        self.subwords = subwords.target
        self.annotation_remover = subwords.source.annotation_remover
        self.prefix = tuple(subwords.target.encode(prefix))
        self.forbidden_phrases = tuple(tuple(subwords.target.encode(word)) for word in forbid)
        self.glossary = glossary if isinstance(glossary, Glossary) else Glossary(glossary)
        self.is_annotated = annotated_language is not None and len(self.glossary) > 0
        self.language = annotated_language or ""
        if not all(self.forbidden_phrases):
            raise RequestError("a glossary and words to forbid must not hold empty entries")

    def find(self, text: str) -> tuple[TermMatch, ...]:
        """Return the terms in a text. Where the model inflects them, plurals of English terms count too."""
        return tuple(self.glossary.find(text, self.language)) if len(self.glossary) else ()

    def annotate(self, text: str, terms: Sequence[TermMatch]) -> str:
        """Return the text with what its terms must become."""
        return annotate(text, [Annotation(term.start, term.end, term.translation) for term in terms])

    def require(self, terms: Sequence[TermMatch]) -> tuple[Phrases, Phrases]:
        """Return the phrases that terms require, and which of them must end a word.

        A phrase is required once, however often its term occurs. An ending may follow the translation of a
        term that is in another form: the plural of Hund begins with it.
        """
        phrases: dict[tuple[int, ...], bool] = {}
        for term in terms:
            ids = tuple(self.subwords.encode(term.translation))
            may_continue = term.is_inflected or is_hangul(term.translation[-1])
            phrases[ids] = may_continue or phrases.get(ids, False)
        return tuple(phrases), tuple(ids for ids, may_continue in phrases.items() if not may_continue)

    def find_missing(self, terms: Sequence[TermMatch], ids: Sequence[int]) -> list[TermMatch]:
        """Return the terms whose translations an output lacks. A trained model may inflect them."""
        if not terms:
            return []
        text = self.subwords.decode(ids)
        contains = contains_inflected if self.is_annotated else contains_exactly
        return [term for term in terms if not contains(text, term.translation)]
