"""Names of languages, and the detection of the language of a text."""

from collections.abc import Iterable
from copy import copy

from manyheads.errors import RequestError, install_command
from manyheads.text.identification import are_related, load_identifier
from manyheads.text.languages import get_base_language

LANGUAGES = (
    "af:Afrikaans am:Amharic ar:Arabic az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali bs:Bosnian "
    "ca:Catalan cs:Czech cy:Welsh da:Danish de:German el:Greek en:English eo:Esperanto es:Spanish "
    "et:Estonian eu:Basque fa:Persian fi:Finnish fr:French ga:Irish gl:Galician gu:Gujarati he:Hebrew "
    "hi:Hindi hr:Croatian hu:Hungarian hy:Armenian id:Indonesian is:Icelandic it:Italian ja:Japanese "
    "ka:Georgian kk:Kazakh km:Khmer kn:Kannada ko:Korean ky:Kyrgyz la:Latin lo:Lao lt:Lithuanian "
    "lv:Latvian mk:Macedonian ml:Malayalam mn:Mongolian mr:Marathi ms:Malay mt:Maltese my:Burmese "
    "nb:Norwegian ne:Nepali nl:Dutch nn:Nynorsk no:Norwegian pa:Punjabi pl:Polish ps:Pashto "
    "pt:Portuguese ro:Romanian ru:Russian si:Sinhala sk:Slovak sl:Slovenian sq:Albanian sr:Serbian "
    "sv:Swedish sw:Swahili ta:Tamil te:Telugu tg:Tajik th:Thai tl:Tagalog tr:Turkish ug:Uyghur "
    "uk:Ukrainian ur:Urdu uz:Uzbek vi:Vietnamese yi:Yiddish zh:Chinese zu:Zulu"
)
NAMES = dict(entry.split(":") for entry in LANGUAGES.split())
MAX_DETECT_CHARACTERS = 2000  # of a text, from its beginning
MAJORITY = 50.0  # percent
# A text is foreign if another language has at least this confidence and its own at most that one, in percent.
# Of 3,000 sentences of Tatoeba in English or German, also in capitals, none is; of German ones taken for
# English 67 % of 10 to 19 letters, 95 % of 20 to 39 and 99.8 % of more (docs/log.md, 2026-11-17).
MIN_FOREIGN_CONFIDENCE, MAX_OWN_CONFIDENCE = 80.0, 5.0


def language_name(code: str) -> str:
    """Return the English name of a language; a region or script stays a code."""
    name = NAMES.get(get_base_language(code), code)
    return f"{name} ({code})" if code != get_base_language(code) and name != code else name


class LanguageDetector:
    """Detects which of the served languages a text is in."""

    def __init__(self, codes: Iterable[str]) -> None:
        identifier = load_identifier()
        if identifier is None:
            raise RequestError(f"serving needs the package py3langid: {install_command('serve')}")
        self._identifier = copy(identifier)
        known = set(self._identifier.labels)
        self.served = list(codes)
        # By base language; of several codes of one, such as zh-Hans and zh-Hant, the first is used.
        self.codes: dict[str, str] = {}
        for code in self.served:
            if get_base_language(code) in known:
                self.codes.setdefault(get_base_language(code), code)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Return the served languages with their confidences in percent, best first.

        Confidences are among all languages that py3langid knows. A language that is not served is returned
        too if the text is more likely in it than in any other. Languages that py3langid does not know are
        left out, unless there are no others.
        """
        confidences = dict.fromkeys(list(self.codes.values()) or self.served[:1] or ["en"], 0.0)
        ranking = self._rank(text)
        for label, probability in ranking:
            if label in self.codes:
                confidences[self.codes[label]] = to_percent(probability)
        if ranking and ranking[0][0] not in self.codes and to_percent(ranking[0][1]) > MAJORITY:
            confidences[ranking[0][0]] = to_percent(ranking[0][1])
        return sorted(confidences.items(), key=lambda entry: -entry[1])

    def find_foreign(self, text: str, language: str) -> tuple[str, float] | None:
        """Return the language of a text, with its confidence in percent, if it is clearly not in this one."""
        ranking, base = self._rank(text), get_base_language(language)
        probabilities = dict(ranking)
        if not ranking or base not in probabilities or to_percent(probabilities[base]) > MAX_OWN_CONFIDENCE:
            return None
        label, confidence = ranking[0][0], to_percent(ranking[0][1])
        if confidence < MIN_FOREIGN_CONFIDENCE or are_related(label, base):
            return None
        return self.codes.get(label, label), confidence

    def _rank(self, text: str) -> list[tuple[str, float]]:
        """Return all languages with their probabilities, best first; none without letters."""
        sample = text[:MAX_DETECT_CHARACTERS]
        if not any(map(str.isalpha, sample)):
            return []
        ranking: list[tuple[str, float]] = self._identifier.rank(sample)
        return ranking


def to_percent(probability: float) -> float:
    return round(100 * float(probability), 1)
