"""Which languages are served: their names, which model goes from one to another, and telling them apart."""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from typing import Any

from manyheads.errors import RequestError
from manyheads.serve.worker import ServedModel

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
MAX_DETECT_CHARACTERS = 2000  # characters of a text by which its language is told


def base_language(code: str) -> str:
    """The language without its region or script: pt of pt-BR."""
    return code.replace("_", "-").partition("-")[0].lower()


def language_name(code: str) -> str:
    """In English; a region or script stays a code."""
    own = NAMES.get(base_language(code), code)
    return f"{own} ({code})" if code != base_language(code) and own != code else own


class ModelRegistry:
    """The models, and what they translate."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = list(models)
        self.codes = sorted({code for one in models for code in (one.source, one.target)})

    def normalize_code(self, code: str) -> str:
        """A code as it is served, however its letters are written; else as it came."""
        alike = [one for one in [*self.codes, "auto"] if one.casefold() == code.casefold()]
        return code if code in alike or not alike else alike[0]

    def find_model(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """The first model of a pair, or the one that is named."""
        source, target = self.normalize_code(source), self.normalize_code(target)
        self.check_language(source)
        self.check_language(target)
        found = [one for one in self.models if (one.source, one.target) == (source, target)]
        if not found:
            known = ", ".join(sorted({f"{one.source} to {one.target}" for one in self.models}))
            raise RequestError(f"no model translates {source} to {target}; served: {known}")
        for one in found:
            if name in (None, one.name):
                return one
        raise RequestError(
            f"no model {name!r} for {source} to {target}; served: {', '.join(one.name for one in found)}"
        )

    def check_language(self, code: str) -> None:
        if self.normalize_code(code) not in self.codes:
            raise RequestError(f"the language {code!r} is not served; served: {', '.join(self.codes)}")

    def find_sources(self, target: str) -> list[str]:
        """Languages with a model to the target."""
        self.check_language(target)
        return sorted({one.source for one in self.models if one.target == target})

    def find_targets(self, source: str) -> list[str]:
        return sorted({one.target for one in self.models if one.source == source})


@cache
def load_identifier() -> Any:
    """Of all languages that py3langid knows; it takes half a second to read."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise RequestError("serving needs the package py3langid: pip install 'manyheads[serve]'") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageDetector:
    """Tells which of the served languages a text is in, by py3langid, whose model ships in its package."""

    def __init__(self, codes: Iterable[str]) -> None:
        self._identifier = copy(load_identifier())
        known = set(self._identifier.labels)
        # Of languages with several codes, such as zh-Hans and zh-Hant, the first stands for all.
        self.codes: dict[str, str] = {}
        self.all = list(codes)
        for code in self.all:
            if base_language(code) in known:
                self.codes.setdefault(base_language(code), code)

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Served languages with the confidence in each in per cent, the likeliest first.

        It is that among all languages there are: a text in one that is not served has little in any. Of those
        that are not known nothing is said, unless there are no others.
        """
        judged = text[:MAX_DETECT_CHARACTERS]
        found = dict.fromkeys(list(self.codes.values()) or self.all[:1] or ["en"], 0.0)
        if any(map(str.isalpha, judged)):
            for label, share in self._identifier.rank(judged):
                if label in self.codes:
                    found[self.codes[label]] = round(100 * float(share), 1)
        return sorted(found.items(), key=lambda one: -one[1])
