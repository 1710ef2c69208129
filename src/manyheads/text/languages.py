"""Language codes and scripts."""

import re

from manyheads.errors import ConfigError

# The letters of each script, by Unicode block.
SCRIPTS = {
    "Latin": r"A-Za-z\u00AA\u00BA\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02AF\u1E00-\u1EFF\u2C60-\u2C7F",
    "Greek": r"\u0370-\u03FF\u1F00-\u1FFF",
    "Cyrillic": r"\u0400-\u052F\u1C80-\u1C8F\u2DE0-\u2DFF\uA640-\uA69F",
    "Armenian": r"\u0530-\u058F",
    "Hebrew": r"\u05D0-\u05F4\uFB1D-\uFB4F",
    "Arabic": r"\u0620-\u06FF\u0750-\u077F\u08A0-\u08FF\uFB50-\uFDFF\uFE70-\uFEFC",
    "Devanagari": r"\u0900-\u097F",
    "Bengali": r"\u0980-\u09FF",
    "Gurmukhi": r"\u0A00-\u0A7F",
    "Gujarati": r"\u0A80-\u0AFF",
    "Tamil": r"\u0B80-\u0BFF",
    "Telugu": r"\u0C00-\u0C7F",
    "Kannada": r"\u0C80-\u0CFF",
    "Malayalam": r"\u0D00-\u0D7F",
    "Sinhala": r"\u0D80-\u0DFF",
    "Thai": r"\u0E00-\u0E7F",
    "Lao": r"\u0E80-\u0EFF",
    "Burmese": r"\u1000-\u109F",
    "Georgian": r"\u10A0-\u10FF\u1C90-\u1CBF",
    "Ethiopic": r"\u1200-\u139F",
    "Khmer": r"\u1780-\u17FF",
    "Hangul": r"\u1100-\u11FF\u3130-\u318F\uA960-\uA97F\uAC00-\uD7FF",
    "Japanese": r"\u3040-\u30FF\u31F0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\uFF66-\uFF9F",
    "Han": r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U000323AF",
}
LANGUAGES_BY_SCRIPT = {
    "Greek": "el",
    "Cyrillic": "ru uk be bg mk mn ky kk tg",
    "Armenian": "hy",
    "Hebrew": "he yi",
    "Arabic": "ar fa ur ps ug",
    "Devanagari": "hi mr ne sa",
    "Bengali": "bn as",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Burmese": "my",
    "Georgian": "ka",
    "Ethiopic": "am ti",
    "Khmer": "km",
    "Hangul": "ko",
    "Japanese": "ja",
    "Han": "zh",
    "Latin": "en de fr es pt it nl sv da no nb nn fi is et lv lt pl cs sk sl hr bs hu ro sq tr ca gl eu ga "
    "cy mt id ms tl vi sw af eo la",
}
SCRIPT_BY_LANGUAGE = {code: script for script, codes in LANGUAGES_BY_SCRIPT.items() for code in codes.split()}
LANGUAGES_WITH_CASE = frozenset(
    code
    for script in ("Latin", "Greek", "Cyrillic", "Armenian", "Georgian")
    for code in LANGUAGES_BY_SCRIPT[script].split()
)


def get_script_pattern(language: str) -> re.Pattern[str] | None:
    """Return a pattern for a letter of the language's script, or None if it is unknown or has several."""
    script = SCRIPT_BY_LANGUAGE.get(re.split("[-_]", language)[0].lower())
    return re.compile(f"[{SCRIPTS[script]}]") if script else None


ISO_639_1 = """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv
    dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie
    ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko ks ku kv kw ky la lb lg li ln lo lt lu lv mg
    mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn
    ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt
    tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
ISO_639_1_CODES = frozenset(ISO_639_1.split())
# Country codes that are often written for the language. (kr is also Kanuri, which can be written kau.)
COMMON_MISTAKES = {"kr": "ko", "jp": "ja", "cn": "zh", "gr": "el", "cz": "cs", "dk": "da", "ua": "uk"}


def get_base_language(code: str) -> str:
    """Return the language without region and script: pt of pt-BR."""
    return re.split("[-_]", code)[0].lower()


def is_known_language(code: str) -> bool:
    return get_base_language(code) in ISO_639_1_CODES


def check_language(code: str) -> None:
    """Refuse unknown codes of two letters. Codes of three letters are not checked."""
    language = get_base_language(code)
    if language in COMMON_MISTAKES or (len(language) == 2 and language not in ISO_639_1_CODES):
        suggestion = COMMON_MISTAKES.get(language)
        hint = f"did you mean {suggestion}?" if suggestion else "use a code of ISO 639, such as en, ko, de"
        raise ConfigError(f"{code!r} is not a known language code; {hint}")


UNDETERMINED = "und"  # ISO 639's code for an unknown language
CODE_PATTERN = r"[a-z]{2,3}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}|\d{3}))*"


def split_language_pair(text: str) -> tuple[str, str]:
    """Split en-ko, pt-BR-en or en-zh-Hant. Regions and scripts start with a capital letter."""
    match = re.fullmatch(f"({CODE_PATTERN})-({CODE_PATTERN})", text)
    if not match:
        raise ConfigError(
            f"the pair is {text!r}, but must be two languages with a dash, such as en-ko or pt-BR-en; "
            f"corpus.source and corpus.target take any code"
        )
    return match[1], match[2]
