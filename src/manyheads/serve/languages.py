"""Names of languages, and the detection of the language of a text."""

from collections.abc import Iterable
from copy import copy
from functools import cache
from typing import Any

from manyheads.errors import RequestError
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


def language_name(code: str) -> str:
    """Return the English name of a language; a region or script stays a code."""
    name = NAMES.get(get_base_language(code), code)
    return f"{name} ({code})" if code != get_base_language(code) and name != code else name


@cache
def load_identifier() -> Any:
    """Load the model of py3langid, for all languages that it knows. This takes half a second."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise RequestError("serving needs the package py3langid: pip install 'manyheads[serve]'") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageDetector:
    """Detects which of the served languages a text is in."""

    def __init__(self, codes: Iterable[str]) -> None:
        self._identifier = copy(load_identifier())
        known = set(self._identifier.labels)
        self.served = list(codes)
        # By base language; of several codes of one, such as zh-Hans and zh-Hant, the first is used.
        self.codes: dict[str, str] = {}
        for code in self.served:
            if get_base_language(code) in known:
                self.codes.setdefault(get_base_language(code), code)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Return the served languages with their confidences in percent, best first.

        Confidences are among all languages that py3langid knows, so a text in a language that is not served
        has low ones. Languages that it does not know are left out, unless there are no others.
        """
        sample = text[:MAX_DETECT_CHARACTERS]
        confidences = dict.fromkeys(list(self.codes.values()) or self.served[:1] or ["en"], 0.0)
        if any(map(str.isalpha, sample)):
            for label, probability in self._identifier.rank(sample):
                if label in self.codes:
                    confidences[self.codes[label]] = round(100 * float(probability), 1)
        return sorted(confidences.items(), key=lambda entry: -entry[1])
