"""Korean morphology: particles and conjugation, over the letters of a syllable."""

from functools import lru_cache

from manyheads.playground.meaning import Adjective, Tense

FIRST_SYLLABLE, VOWELS, FINALS = 0xAC00, 21, 28
NIEUN, DIGEUT, RIEUL, BIEUP, SSANGSIOT = 4, 7, 8, 17, 20  # as final consonants
(A, AE, YA, YAE, EO, E, YEO) = range(7)  # vowels
O_, WA, WAE, OE, U, WO, EU, I_ = 8, 9, 10, 11, 13, 14, 18, 20
BRIGHT = (A, YA, O_)  # vowels that are followed by 아, the others by 어


def get_final(text: str) -> int:
    """Return the final consonant of the last syllable; 0 if it ends in a vowel."""
    return (ord(text[-1]) - FIRST_SYLLABLE) % FINALS


def get_vowel(text: str) -> int:
    return (ord(text[-1]) - FIRST_SYLLABLE) // FINALS % VOWELS


def replace_final(text: str, final: int) -> str:
    return text[:-1] + chr(ord(text[-1]) - get_final(text) + final)


def replace_vowel(text: str, vowel: int) -> str:
    """Replace the vowel of the last syllable, which must be open."""
    return text[:-1] + chr(ord(text[-1]) + (vowel - get_vowel(text)) * FINALS)


AFTER_VOWEL = {"은": "는", "이": "가", "을": "를", "과": "와", "으로": "로"}
PRONOUN_SUBJECTS = {"나": "내가", "저": "제가", "너": "네가", "누구": "누가"}


@lru_cache(maxsize=65536)
def add_particle(text: str, after_consonant: str) -> str:
    """Append a particle, which is given in its form after a consonant."""
    before, space, last = text.rpartition(" ")
    if after_consonant == "이" and last in PRONOUN_SUBJECTS:  # 내가; 민호와 내가
        return before + space + PRONOUN_SUBJECTS[last]
    final = get_final(text)
    open_ = final == 0 or (after_consonant == "으로" and final == RIEUL)
    return text + (AFTER_VOWEL.get(after_consonant, after_consonant) if open_ else after_consonant)


# ---- conjugation: a stem is written without 다; its class is what it loses before a vowel


def form_eu_stem(stem: str, stem_class: str) -> str:
    """Return the stem before endings that start with 으, or with what replaces it."""
    if stem_class == "ㅂ":
        return replace_final(stem, 0) + "우"
    if stem_class == "ㄷ":
        return replace_final(stem, RIEUL) + "으"
    if stem_class == "ㅅ":
        return replace_final(stem, 0) + "으"
    if stem_class == "ㅎ" or get_final(stem) == RIEUL:
        return replace_final(stem, 0)
    return stem + "으" if get_final(stem) else stem


def form_eo_stem(stem: str, stem_class: str) -> str:
    """Return the stem with 아 or 어: 가, 와, 먹어, 해, 도와, 들어, 지어, 불러, 써, 빨개."""
    if stem_class == "ㅂ":
        return replace_final(stem, 0) + ("와" if stem == "돕" else "워")
    if stem_class == "ㄷ":
        return harmonize(replace_final(stem, RIEUL))
    if stem_class == "ㅅ":
        return harmonize(replace_final(stem, 0))
    if stem_class == "르":
        before = replace_final(stem[:-1], RIEUL)
        return before + ("라" if get_vowel(before) in BRIGHT else "러")
    if stem_class == "ㅎ":
        opened = replace_final(stem, 0)
        return replace_vowel(opened, {A: AE, YA: YAE, EO: E}[get_vowel(opened)])
    return harmonize(stem) if get_final(stem) else contract(stem)


def harmonize(stem: str) -> str:
    return stem + ("아" if get_vowel(stem) in BRIGHT else "어")


def contract(stem: str) -> str:
    """Contract the final vowel of the stem with 아 or 어."""
    if stem[-1] == "하":
        return stem[:-1] + "해"
    vowel = get_vowel(stem)
    if vowel == EU:
        bright = len(stem) > 1 and stem[-2] != " " and get_vowel(stem[:-1]) in BRIGHT
        return replace_vowel(stem, A if bright else EO)
    melted = {O_: WA, U: WO, I_: YEO, OE: WAE}.get(vowel)
    if melted is not None:
        return replace_vowel(stem, melted)
    return stem if vowel in (A, AE, EO, E, YEO) else stem + "어"


Predicate = tuple[str, str, str, str]  # preceding text, stem, class of the stem, class of the word

VERB, ADJECTIVE, BEING, COPULA, PAST = "verb", "adjective", "있다", "이다", "past"
HONORIFIC = "시"  # the class of a stem that ends in the honorific -시-

# Stems whose honorific is another word.
HONORIFIC_STEMS = {
    "먹": "드시",
    "마시": "드시",
    "자": "주무시",
    "있": "계시",
    "가지고 있": "가지고 계시",
    "말하": "말씀하시",
    "아프": "편찮으시",
}
# Stems that are another word if the action is for somebody who is honored: 할머니께 드리다.
HUMBLE_STEMS = {
    "주": "드리",
    "보여 주": "보여 드리",
    "빌려주": "빌려드리",
    "보내": "보내 드리",
    "물어보": "여쭤보",
    "전화하": "전화드리",
    "돕": "도와드리",
}


def make_predicate(stem: str, stem_class: str, word_class: str) -> Predicate:
    return "", stem, stem_class, BEING if stem_class == "있" else word_class


def negate(before: str, stem: str, stem_class: str, word_class: str) -> Predicate:
    if word_class == COPULA:
        return f"{before}{add_particle(stem, '이')} ", "아니", "", ADJECTIVE
    if word_class == BEING and stem == "있" and before.endswith(" 수 "):
        return before, "없", "", BEING
    if stem_class == "못":  # not a choice, but an inability
        return f"{before}{stem}지 ", "못하", "", VERB
    return f"{before}{stem}지 ", "않", "", VERB if word_class == VERB else ADJECTIVE


def honor(before: str, stem: str, stem_class: str, word_class: str) -> Predicate:
    """Add the honorific -시- to the last word: 가시, 읽으시, 바쁘시, 의사시, 드시, 계시."""
    if stem_class == HONORIFIC:
        return before, stem, stem_class, word_class
    if word_class == COPULA:
        return before, stem + ("이시" if get_final(stem) else "시"), HONORIFIC, ADJECTIVE
    base = form_eu_stem(stem, stem_class)
    word_class = VERB if word_class == BEING else word_class
    return before, HONORIFIC_STEMS.get(stem, base + "시"), HONORIFIC, word_class


def add_modal(
    modal: str, third_person: bool, negative: bool, honorific: bool, stem: str, stem_class: str
) -> Predicate:
    if modal == "must" and negative:
        adds_honor = honorific and stem_class != HONORIFIC
        return f"{stem}지 {'않으셔도' if adds_honor else '않아도'} ", "되", "", VERB
    if honorific and modal != "want":
        _, stem, stem_class, _ = honor("", stem, stem_class, VERB)
    if modal == "can":
        return replace_final(form_eu_stem(stem, stem_class), RIEUL) + " 수 ", "있", "", BEING
    if modal == "want":
        return f"{stem}고 ", *(("싶어 하", "", VERB) if third_person else ("싶", "", ADJECTIVE))
    return f"{form_eo_stem(stem, stem_class)}야 ", "하", "", VERB


def inflect_past(before: str, stem: str, stem_class: str, word_class: str) -> Predicate:
    if word_class == COPULA:
        return before, stem + ("이었" if get_final(stem) else "였"), "", PAST
    if stem == "아니":
        return before, "아니었", "", PAST
    return before, replace_final(form_eo_stem(stem, stem_class), SSANGSIOT), "", PAST


def add_ending(before: str, stem: str, stem_class: str, word_class: str, ending: str) -> str:
    """Append the final ending: plain, polite, ask, 고, 지만, 어서, quote."""
    if ending == "polite":
        return before + add_polite_ending(stem, stem_class, word_class)
    if ending in ("plain", "quote"):
        return before + add_plain_ending(stem, word_class, ending == "quote")
    if ending == "어서":
        return before + form_eo_stem(stem, stem_class) + "서"
    if ending == "ask":
        if word_class == COPULA:
            return before + stem + ("이니" if get_final(stem) else "니")
        return before + (replace_final(stem, 0) if get_final(stem) == RIEUL else stem) + "니"
    return before + stem + ("이" if word_class == COPULA else "") + ending


def add_plain_ending(stem: str, word_class: str, quoted: bool) -> str:
    if word_class == COPULA:
        link = "이" if get_final(stem) else ""
        return f"{stem}{link}라고" if quoted else f"{stem}{link}다"
    if quoted and stem == "아니":
        return "아니라고"
    if word_class != VERB:
        ended_ = stem + "다"
    elif get_final(stem) in (0, RIEUL):
        ended_ = replace_final(stem, NIEUN) + "다"
    else:
        ended_ = stem + "는다"
    return ended_ + "고" if quoted else ended_


def add_polite_ending(stem: str, stem_class: str, word_class: str) -> str:
    if word_class == COPULA:
        return stem + ("이에요" if get_final(stem) else "예요")
    if stem == "아니":
        return "아니에요"
    if stem_class == HONORIFIC:
        return stem[:-1] + "세요"
    return stem + "어요" if word_class == PAST else form_eo_stem(stem, stem_class) + "요"


def inflect_future(before: str, stem: str, stem_class: str, word_class: str, ending: str) -> str:
    base = f"{stem}이" if word_class == COPULA else form_eu_stem(stem, stem_class)
    promised = f"{before}{replace_final(base, RIEUL)} "
    if ending in ("polite", "ask"):
        return promised + {"polite": "거예요", "ask": "거니"}[ending]
    return promised + add_ending("", "것", "", COPULA, ending)


@lru_cache(maxsize=65536)
def conjugate(
    stem: str,
    stem_class: str,
    word_class: str,
    tense: Tense,
    modal: str | None,
    third_person: bool,
    negative: bool,
    ending: str,
    honorific: bool = False,
) -> str:
    """Conjugate a predicate, with `honorific` for a subject that is honored: 가세요, 가고 계세요."""
    if negative and not modal and stem == "알":  # the opposite of knowing has its own verb
        stem, stem_class, negative = "모르", "르", False
    if honorific and stem in HONORIFIC_STEMS:
        stem, stem_class = HONORIFIC_STEMS[stem], HONORIFIC
    parts = make_predicate(stem, stem_class, word_class)
    if modal:
        parts = add_modal(modal, third_person, negative, honorific, stem, stem_class)
    elif tense == "progressive":
        parts = (f"{stem}고 ", "계시", HONORIFIC, VERB) if honorific else (f"{stem}고 ", "있", "", BEING)
    is_honorific = not honorific or modal in ("can", "must") or parts[2] == HONORIFIC
    if negative and modal != "must":
        parts = negate(*parts)
    if not is_honorific:  # -시- comes once: 드시지 않았어요, 가지 않으셨어요
        parts = honor(*parts)
    if tense == "future":
        return inflect_future(*parts, ending)
    if ending == "attribute":
        return form_attributive(*parts, past=tense == "past")
    return add_ending(*(inflect_past(*parts) if tense == "past" else parts), ending)


def form_attributive(before: str, stem: str, stem_class: str, word_class: str, past: bool) -> str:
    """Return the form before a noun: 가는, 간, 추운, 맛있는, 크지 않은."""
    if past and word_class != VERB:
        return "".join(inflect_past(before, stem, stem_class, word_class)[:2]) + "던"
    if word_class == BEING or (word_class == VERB and not past):
        dropped = replace_final(stem, 0) if get_final(stem) == RIEUL and stem_class == "" else stem
        return f"{before}{dropped}는"
    return before + replace_final(form_eu_stem(stem, stem_class), NIEUN)


@lru_cache(maxsize=1024)
def form_attributive_adjective(adjective: Adjective) -> str:
    if adjective.ko_class == "관":  # 새: used only before nouns
        return adjective.ko
    if adjective.ko_attributive:
        return adjective.ko_attributive
    return form_attributive(*make_predicate(adjective.ko, adjective.ko_class, ADJECTIVE), past=False)


@lru_cache(maxsize=4096)
def form_command(stem: str, stem_class: str, negative: bool, polite_: bool) -> str:
    if negative:
        return f"{stem}지 {'마세요' if polite_ else '마라'}"
    if polite_:
        return add_ending(*honor("", stem, stem_class, VERB), "polite")
    return form_eo_stem(stem, stem_class) + "라"
