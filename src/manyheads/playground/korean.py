"""Korean from a meaning.

Two registers, each with one set of endings:
  plain   해라체   나는 집에 간다.   너는 집에 가니?   집에 가라.
  polite  해요체   저는 집에 가요.   집에 가요?        집에 가세요.
In the polite register the person addressed is not named, as in speech. There is no honorific -시-, but in
polite commands.

Topic or subject: the subject of a main clause takes 은/는. It takes 이/가 where it is no topic: when it
is counted (학생 두 명이), when its existence is told (고양이가 있다), when it is asked for (누가), and
inside a relative, reported or causal clause.

A possessor that can only be the subject itself is 자신의; mine is 내 or 제, but elders and homes are 우리.
A plural is said with 들 of people, and after 이 (these); never beside a number.
"""

from functools import lru_cache

from manyheads.playground.lexicon import KOREAN_NUMBERS
from manyheads.playground.meaning import (
    Adjective,
    CausalSentence,
    Clause,
    CompoundSentence,
    Coordination,
    Entity,
    ExistentialClause,
    Gap,
    Name,
    Noun,
    Phrase,
    Pronoun,
    ReportedSpeech,
    Sentence,
    Tense,
    Verb,
    WeatherClause,
    get_person,
    has_relative,
    is_plural,
    refers_back,
)

FIRST_SYLLABLE, VOWELS, FINALS = 0xAC00, 21, 28
NIEUN, DIGEUT, RIEUL, BIEUP, SSANGSIOT = 4, 7, 8, 17, 20  # as final consonants
(A, AE, YA, YAE, EO, E, YEO) = range(7)  # vowels
O_, WA, WAE, OE, U, WO, EU, I_ = 8, 9, 10, 11, 13, 14, 18, 20
BRIGHT = (A, YA, O_)  # vowels that are followed by 아, the others by 어
OUR = ("어머니", "아버지", "할머니", "할아버지", "삼촌", "이모", "선생님", "집")


def get_final(text: str) -> int:
    """The final consonant of the last syllable; 0 if it ends in a vowel."""
    return (ord(text[-1]) - FIRST_SYLLABLE) % FINALS


def get_vowel(text: str) -> int:
    return (ord(text[-1]) - FIRST_SYLLABLE) // FINALS % VOWELS


def replace_final(text: str, final: int) -> str:
    return text[:-1] + chr(ord(text[-1]) - get_final(text) + final)


def replace_vowel(text: str, vowel: int) -> str:
    """Of a last syllable that is open."""
    return text[:-1] + chr(ord(text[-1]) + (vowel - get_vowel(text)) * FINALS)


AFTER_VOWEL = {"은": "는", "이": "가", "을": "를", "과": "와", "으로": "로"}
PRONOUN_SUBJECTS = {"나": "내가", "저": "제가", "너": "네가", "누구": "누가"}


@lru_cache(maxsize=65536)
def add_particle(text: str, after_consonant: str) -> str:
    """The text with its particle, which is named as it stands after a consonant."""
    before, space, last = text.rpartition(" ")
    if after_consonant == "이" and last in PRONOUN_SUBJECTS:  # 내가; 민호와 내가
        return before + space + PRONOUN_SUBJECTS[last]
    final = get_final(text)
    open_ = final == 0 or (after_consonant == "으로" and final == RIEUL)
    return text + (AFTER_VOWEL.get(after_consonant, after_consonant) if open_ else after_consonant)


# --- Conjugation. A stem is written without 다; its class is what it loses before a vowel.


def form_eu_stem(stem: str, stem_class: str) -> str:
    """The stem as it stands before endings that begin with 으, or with what replaces it."""
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
    """The stem with 아 or 어: 가, 와, 먹어, 해, 도와, 들어, 지어, 불러, 써, 빨개."""
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
    """The stem ends in a vowel, which melts into 아 or 어."""
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


Predicate = tuple[str, str, str, str]  # what precedes, stem, class of the stem, kind of word

VERB, ADJECTIVE, BEING, COPULA, PAST = "verb", "adjective", "있다", "이다", "past"


def make_predicate(stem: str, stem_class: str, kind: str) -> Predicate:
    return "", stem, stem_class, BEING if stem_class == "있" else kind


def negate(before: str, stem: str, stem_class: str, kind: str) -> Predicate:
    if kind == COPULA:
        return f"{before}{add_particle(stem, '이')} ", "아니", "", ADJECTIVE
    if kind == BEING and stem == "있" and before.endswith(" 수 "):
        return before, "없", "", BEING
    if stem_class == "못":  # not a choice: one fails to
        return f"{before}{stem}지 ", "못하", "", VERB
    return f"{before}{stem}지 ", "않", "", VERB if kind == VERB else ADJECTIVE


def add_modal(modal: str, third_person: bool, negative: bool, stem: str, stem_class: str) -> Predicate:
    if modal == "can":
        return replace_final(form_eu_stem(stem, stem_class), RIEUL) + " 수 ", "있", "", BEING
    if modal == "want":
        return f"{stem}고 ", *(("싶어 하", "", VERB) if third_person else ("싶", "", ADJECTIVE))
    if negative:
        return f"{stem}지 않아도 ", "되", "", VERB
    return f"{form_eo_stem(stem, stem_class)}야 ", "하", "", VERB


def inflect_past(before: str, stem: str, stem_class: str, kind: str) -> Predicate:
    if kind == COPULA:
        return before, stem + ("이었" if get_final(stem) else "였"), "", PAST
    if stem == "아니":
        return before, "아니었", "", PAST
    return before, replace_final(form_eo_stem(stem, stem_class), SSANGSIOT), "", PAST


def add_ending(before: str, stem: str, stem_class: str, kind: str, ending: str) -> str:
    """The word with its last ending: plain, polite, ask, 고, 지만, 기, quote."""
    if ending == "polite":
        return before + add_polite_ending(stem, stem_class, kind)
    if ending in ("plain", "quote"):
        return before + add_plain_ending(stem, kind, ending == "quote")
    if ending == "ask":
        if kind == COPULA:
            return before + stem + ("이니" if get_final(stem) else "니")
        return before + (replace_final(stem, 0) if get_final(stem) == RIEUL else stem) + "니"
    return before + stem + ("이" if kind == COPULA else "") + ending


def add_plain_ending(stem: str, kind: str, quoted: bool) -> str:
    if kind == COPULA:
        link = "이" if get_final(stem) else ""
        return f"{stem}{link}라고" if quoted else f"{stem}{link}다"
    if quoted and stem == "아니":
        return "아니라고"
    if kind != VERB:
        ended_ = stem + "다"
    elif get_final(stem) in (0, RIEUL):
        ended_ = replace_final(stem, NIEUN) + "다"
    else:
        ended_ = stem + "는다"
    return ended_ + "고" if quoted else ended_


def add_polite_ending(stem: str, stem_class: str, kind: str) -> str:
    if kind == COPULA:
        return stem + ("이에요" if get_final(stem) else "예요")
    if stem == "아니":
        return "아니에요"
    return stem + "어요" if kind == PAST else form_eo_stem(stem, stem_class) + "요"


def inflect_future(before: str, stem: str, stem_class: str, kind: str, ending: str) -> str:
    base = f"{stem}이" if kind == COPULA else form_eu_stem(stem, stem_class)
    promised = f"{before}{replace_final(base, RIEUL)} "
    if ending in ("polite", "ask"):
        return promised + {"polite": "거예요", "ask": "거니"}[ending]
    return promised + add_ending("", "것", "", COPULA, ending)


@lru_cache(maxsize=65536)
def conjugate(
    stem: str,
    stem_class: str,
    kind: str,
    tense: Tense,
    modal: str | None,
    third_person: bool,
    negative: bool,
    ending: str,
) -> str:
    if negative and not modal and stem == "알":  # the opposite of knowing has its own verb
        stem, stem_class, negative = "모르", "르", False
    said = make_predicate(stem, stem_class, kind)
    if modal:
        said = add_modal(modal, third_person, negative, stem, stem_class)
    elif tense == "progressive":
        said = (f"{stem}고 ", "있", "", BEING)
    if negative and modal != "must":
        said = negate(*said)
    if tense == "future":
        return inflect_future(*said, ending)
    if ending == "attribute":
        return form_attributive(*said, past=tense == "past")
    return add_ending(*(inflect_past(*said) if tense == "past" else said), ending)


def form_attributive(before: str, stem: str, stem_class: str, kind: str, past: bool) -> str:
    """Before a noun: 가는, 간, 추운, 맛있는, 크지 않은."""
    if past and kind != VERB:
        return "".join(inflect_past(before, stem, stem_class, kind)[:2]) + "던"
    if kind == BEING or (kind == VERB and not past):
        dropped = replace_final(stem, 0) if get_final(stem) == RIEUL and stem_class == "" else stem
        return f"{before}{dropped}는"
    return before + replace_final(form_eu_stem(stem, stem_class), NIEUN)


@lru_cache(maxsize=1024)
def form_attributive_adjective(adjective: Adjective) -> str:
    if adjective.ko_class == "관":  # 새: a word that stands only before nouns
        return adjective.ko
    return form_attributive(*make_predicate(adjective.ko, adjective.ko_class, ADJECTIVE), past=False)


@lru_cache(maxsize=4096)
def form_command(verb: Verb, negative: bool, polite_: bool) -> str:
    if negative:
        return f"{verb.ko}지 {'마세요' if polite_ else '마라'}"
    if polite_:
        return verb.ko_please or form_eu_stem(verb.ko, verb.ko_class) + "세요"
    return form_eo_stem(verb.ko, verb.ko_class) + "라"


# --- Phrases


class KoreanRealizer:
    """One register. `subject` is known to a phrase, because 자신의 looks back at it."""

    def __init__(self, polite: bool) -> None:
        self.polite = polite
        self.ending = "polite" if polite else "plain"
        self.asking = "polite" if polite else "ask"

    def realize_entity(self, entity: Entity, subject: Entity | None = None) -> str:
        if type(entity) is Phrase:
            return self.realize_phrase(entity, subject)
        if type(entity) is Pronoun:
            return "저" if self.polite and entity.ko == "나" else entity.ko
        if type(entity) is Coordination:
            first = add_particle(self.realize_entity(entity.first), "과")
            return f"{first} {self.realize_entity(entity.second)}"
        assert type(entity) is Name
        return entity.ko

    def realize_phrase(self, phrase: Phrase, subject: Entity | None) -> str:
        noun = phrase.noun
        text = noun.ko
        if phrase.count:
            text = f"{text} {KOREAN_NUMBERS[phrase.count]} {noun.counter}"
        elif phrase.plural and self.marks_plural(phrase):
            text += "들"
        if phrase.adjective:
            text = f"{form_attributive_adjective(phrase.adjective)} {text}"
        if phrase.possessor:
            owner = self.realize_possessor(phrase.possessor, noun, subject)
            text = f"{'우리의' if owner == '우리' and phrase.adjective else owner} {text}"
        elif phrase.determiner == "this":
            text = f"이 {text}"
        if phrase.relative:
            text = f"{self.realize_clause(phrase.relative, 'attribute', '이')} {text}"
        return text

    def marks_plural(self, phrase: Phrase) -> bool:
        if phrase.noun.category in ("person", "kin"):
            return True
        return phrase.determiner == "this" and phrase.noun.measure is None

    def realize_possessor(self, possessor: Entity, noun: Noun, subject: Entity | None) -> str:
        if refers_back(possessor, subject):
            return "자신들의" if is_plural(possessor) else "자신의"
        if type(possessor) is Pronoun and possessor.person < 3:
            if possessor.plural or noun.ko in OUR:
                return "우리"
            return "네" if possessor.person == 2 else "제" if self.polite else "내"
        return f"{self.realize_entity(possessor)}의"

    # --- Clauses

    def realize_clause(
        self, clause: Clause, ending: str, subject_particle: str = "은", speaker: Entity | None = None
    ) -> str:
        """In the order of a verb-final language. What a speaker reports of his own things is 자신의."""
        words = []
        fronted = clause.fronted and not has_relative(clause.subject)  # which would catch the time
        if clause.time and fronted:
            words.append(clause.time.ko)
        subject = self.realize_subject(clause, subject_particle, speaker)
        if subject:
            words.append(subject)
        if clause.time and not fronted:
            words.append(clause.time.ko)
        if clause.question in ("when", "why"):
            words.append("언제" if clause.question == "when" else "왜")
        words += self.realize_complements(clause)
        words.append(self.realize_predicate(clause, ending))
        if words[-2:-1] == ["잘"] and type(clause.predicate) is Verb and clause.predicate.ko == "하":
            words[-2:] = ["잘" + words[-1]]  # 잘하다 is one word, 잘 치다 is two
        return " ".join(words)

    def realize_subject(self, clause: Clause, subject_particle: str, speaker: Entity | None = None) -> str:
        subject = clause.subject
        if clause.question == "who":
            return "누가"
        if subject is None or type(subject) is Gap:
            return ""
        if self.polite and type(subject) is Pronoun and subject.person == 2:
            return ""
        if type(subject) is Phrase and subject.count:
            subject_particle = "이"
        return add_particle(self.realize_entity(subject, speaker), subject_particle)

    def realize_complements(self, clause: Clause) -> list[str]:
        """With whom, with what, where, to whom, what, whither, how."""
        words: list[str] = []
        verb, subject = clause.predicate, clause.subject
        if type(verb) is not Verb:
            return [clause.degree.ko] if clause.degree else words
        if clause.companion:
            words.append(add_particle(self.realize_entity(clause.companion, subject), "과") + " 함께")
        if clause.question == "where":
            words.append("어디에" if verb.takes_goal or verb.takes_location else "어디에서")
        if clause.place:
            words.append(clause.place.noun.ko + ("에" if verb.places == "plant" else "에서"))
        to_whom = [self.realize_entity(clause.recipient, subject) + "에게"] if clause.recipient else []
        if not has_relative(clause.object):
            words += to_whom
        if clause.means:
            words.append(add_particle(clause.means.ko, "으로"))
        if clause.question in ("what", "whom"):
            words.append(add_particle("무엇" if clause.question == "what" else "누구", verb.ko_particle))
        elif clause.object and type(clause.object) is not Gap:
            words.append(add_particle(self.realize_entity(clause.object, subject), verb.ko_particle))
        if has_relative(clause.object):  # which would catch the recipient
            words += to_whom
        if clause.goal:
            words.append(clause.goal.noun.ko + "에")
        if clause.manner:
            words.append(clause.manner.ko)
        return words

    def realize_predicate(self, clause: Clause, ending: str) -> str:
        said = clause.predicate
        third = clause.subject is not None and get_person(clause.subject) == 3
        rest = (clause.tense, clause.modal, third, clause.negative, ending)
        if type(said) is Noun:
            return conjugate(said.ko, "", COPULA, *rest)
        assert not isinstance(said, Noun)
        if type(said) is Verb and said.is_stative and clause.tense == "past" and ending == "attribute":
            return said.ko + "던"  # 우리가 알던 사람: it lasted
        return conjugate(said.ko, said.ko_class, VERB if type(said) is Verb else ADJECTIVE, *rest)

    # --- Sentences

    def realize_sentence(self, sentence: Sentence) -> str:
        if type(sentence) is Clause:
            return self.realize_main_clause(sentence)
        if type(sentence) is CompoundSentence:
            first = self.realize_clause(sentence.first, "고" if sentence.conjunction == "and" else "지만")
            return f"{first} {self.realize_clause(sentence.second, self.ending)}."
        if type(sentence) is CausalSentence:
            return self.realize_causal(sentence) + "."
        if type(sentence) is ReportedSpeech:
            speaker = add_particle(self.realize_entity(sentence.speaker), "은")
            verb = conjugate(sentence.verb.ko, "", VERB, "present", None, False, False, self.ending)
            return (
                f"{speaker} {self.realize_clause(sentence.content, 'quote', '이', sentence.speaker)} {verb}."
            )
        if type(sentence) is WeatherClause:
            return self.realize_weather(sentence, self.ending) + "."
        assert type(sentence) is ExistentialClause
        return self.realize_existence(sentence)

    def realize_main_clause(self, clause: Clause) -> str:
        if clause.question:
            return self.realize_clause(clause, self.asking) + "?"
        if clause.subject:
            return self.realize_clause(clause, self.ending) + "."
        assert type(clause.predicate) is Verb
        words = [clause.time.ko] if clause.time else []
        words += self.realize_complements(clause)
        words.append(form_command(clause.predicate, clause.negative, self.polite))
        return " ".join(words) + "."

    def realize_causal(self, sentence: CausalSentence) -> str:
        reason, result = sentence.reason, sentence.result
        if type(reason) is WeatherClause:
            return f"{self.realize_weather(reason, '기')} 때문에 {self.realize_clause(result, self.ending)}"
        assert type(reason) is Clause
        if result.subject is not reason.subject:
            return (
                f"{self.realize_clause(reason, '기', '이')} 때문에 {self.realize_clause(result, self.ending)}"
            )
        subject = self.realize_subject(result, "은")
        told = self.realize_clause(reason, "기", "은").removeprefix(subject + " ")
        rest = self.realize_clause(result, self.ending).removeprefix(subject + " ")
        return f"{subject} {told} 때문에 {rest}"

    def realize_weather(self, weather: WeatherClause, ending: str) -> str:
        kind, before = weather.predicate, ""
        if type(kind) is Verb:
            before = f"{weather.time.ko} " if weather.time else ""
            form = VERB
        else:
            before = (f"{add_particle(weather.time.ko, '은')} " if weather.time else "") + "날씨가 "
            form = ADJECTIVE
        said = conjugate(kind.ko, kind.ko_class, form, weather.tense, None, True, weather.negative, ending)
        return before + said

    def realize_existence(self, existence: ExistentialClause) -> str:
        what = add_particle(self.realize_entity(existence.phrase), "이")
        stem = "없" if existence.negative else "있"
        ending = self.asking if existence.is_question else self.ending
        said = conjugate(stem, "있", VERB, existence.tense, None, True, False, ending)
        return f"{existence.place.noun.ko}에 {what} {said}{'?' if existence.is_question else '.'}"


REALIZERS = {"plain": KoreanRealizer(polite=False), "polite": KoreanRealizer(polite=True)}


def realize_korean(sentence: Sentence, register: str = "plain") -> str:
    return REALIZERS[register].realize_sentence(sentence)
