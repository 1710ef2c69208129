"""Korean realization of a meaning.

Two registers, each with one set of endings:
  plain   해라체   나는 집에 간다.   너는 집에 가니?   집에 가라.
  polite  해요체   저는 집에 가요.   집에 가요?        집에 가세요.
In the polite register the addressee is not named as a subject, as in speech; as an object it is 당신.
Elders, teachers and guests are honored in the polite register: as subject with -시- and 께서 (할머니께서는
주무세요), as recipient with 께 and verbs like 드리다. They are counted with 분 in both registers. Polite
commands have -시- too.

Topic or subject: the subject of a main clause takes 은/는. It takes 이/가 if it is not a topic: with a number
(학생 두 명이), in existential sentences (고양이가 있다), as a question word (누가), and in relative, reported
and causal clauses.

A possessor that must refer to the subject is 자신의. The subject's own family and friends have none:
나는 어머니를 사랑한다. "my" is 내 or 제, but 우리 for elders and homes. The plural is marked with 들 for
people and after 이 (these), never with a number. A reason is expressed with -아서 (비가 와서).
"""

from dataclasses import replace

from manyheads.playground.korean_morphology import (
    ADJECTIVE,
    COPULA,
    HUMBLE_STEMS,
    VERB,
    add_particle,
    conjugate,
    form_attributive_adjective,
    form_command,
    honor,
)
from manyheads.playground.meaning import (
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
    Verb,
    WeatherClause,
    get_person,
    has_relative,
    is_plural,
    refers_back,
)
from manyheads.playground.word_tables import KOREAN_NUMBERS

OUR = ("어머니", "아버지", "할머니", "할아버지", "삼촌", "이모", "선생님", "집")
POLITE_PRONOUNS = {"나": "저", "너": "당신"}
HONORIFIC_PARTICLES = {"은": "께서는", "이": "께서", "에게": "께"}


def is_own(possessor: Entity, subject: Entity | None) -> bool:
    """Return whether the possessor is the subject: I ... my, he ... his."""
    if subject is None or type(possessor) is not Pronoun:
        return False
    same = possessor.person == get_person(subject) and possessor.plural == is_plural(subject)
    return refers_back(possessor, subject) or (possessor.person < 3 and same)


# ---- phrases


class KoreanRealizer:
    """Realizes one register. Phrases know the subject, because 자신의 refers to it."""

    def __init__(self, polite: bool) -> None:
        self.polite = polite
        self.ending = "polite" if polite else "plain"
        self.asking = "polite" if polite else "ask"

    def realize_entity(self, entity: Entity, subject: Entity | None = None) -> str:
        if type(entity) is Phrase:
            return self.realize_phrase(entity, subject)
        if type(entity) is Pronoun:
            return POLITE_PRONOUNS.get(entity.ko, entity.ko) if self.polite else entity.ko
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
            text = f"{'우리의' if owner == '우리' and phrase.adjective else owner} {text}".lstrip()
        elif phrase.determiner == "this":
            text = f"이 {text}"
        if phrase.relative:
            text = f"{self.realize_clause(phrase.relative, 'attribute', '이', head=phrase)} {text}"
        return text

    def marks_plural(self, phrase: Phrase) -> bool:
        if phrase.noun.category in ("person", "kin"):
            return True
        return phrase.determiner == "this" and phrase.noun.measure is None

    def honors(self, entity: Entity | None) -> bool:
        return self.polite and type(entity) is Phrase and entity.noun.honored

    def mark(self, entity: Entity, particle: str, subject: Entity | None = None) -> str:
        """Realize an entity with a particle, which is honorific if the entity is honored."""
        text = self.realize_entity(entity, subject)
        if self.honors(entity) and particle in HONORIFIC_PARTICLES:
            return text + HONORIFIC_PARTICLES[particle]
        return add_particle(text, particle)

    def realize_possessor(self, possessor: Entity, noun: Noun, subject: Entity | None) -> str:
        if noun.category == "kin" and is_own(possessor, subject):
            return ""
        if refers_back(possessor, subject):
            return "자신들의" if is_plural(possessor) else "자신의"
        if type(possessor) is Pronoun and possessor.person < 3:
            if possessor.plural or noun.ko in OUR:
                return "우리"
            if possessor.person == 1:
                return "제" if self.polite else "내"
            return "당신의" if self.polite else "네"
        return f"{self.realize_entity(possessor)}의"

    # ---- clauses

    def realize_clause(
        self,
        clause: Clause,
        ending: str,
        subject_particle: str = "은",
        speaker: Entity | None = None,
        head: Phrase | None = None,
    ) -> str:
        """Realize a clause with the verb last, or a relative clause of a head.

        In reported speech, 자신의 refers to the speaker.
        """
        words = []
        fronted = clause.fronted and not has_relative(clause.subject)  # the time would attach to it
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
        predicate = self.realize_predicate(clause, ending, head)
        words.append(predicate.replace(" 것이", " 거") if self.polite else predicate)  # 갈 거라고, 갈 거고
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
            return add_particle(self.realize_entity(subject, speaker), "이")
        return self.mark(subject, subject_particle, speaker)

    def realize_complements(self, clause: Clause) -> list[str]:
        """Realize companion, place, recipient, means, object, goal and manner, in this order."""
        words: list[str] = []
        verb, subject = clause.predicate, clause.subject
        if type(verb) is not Verb:
            return [clause.degree.ko] if clause.degree else words
        if clause.companion:
            words.append(add_particle(self.realize_entity(clause.companion, subject), "과") + " 함께")
        if clause.question == "where":
            words.append("어디에" if verb.takes_goal or verb.takes_location else "어디에서")
        if clause.place:
            words.append(add_particle(clause.place.noun.ko, verb.ko_place))
        to_whom = [self.mark(clause.recipient, "에게", subject)] if clause.recipient else []
        if not has_relative(clause.object):
            words += to_whom
        if clause.means:
            words.append(add_particle(clause.means.ko, "으로"))
        if clause.question in ("what", "whom"):
            words.append(add_particle("무엇" if clause.question == "what" else "누구", verb.ko_particle))
        elif clause.object and type(clause.object) is not Gap:
            words.append(self.mark(clause.object, verb.ko_particle, subject))
        if has_relative(clause.object):  # the recipient would attach to it
            words += to_whom
        if clause.goal:
            words.append(add_particle(clause.goal.noun.ko, verb.ko_goal))
        if clause.manner:
            words.append(clause.manner.ko)
        return words

    def realize_predicate(self, clause: Clause, ending: str, head: Phrase | None = None) -> str:
        predicate = clause.predicate
        third = clause.subject is not None and get_person(clause.subject) == 3
        honorific = self.honors(head if type(clause.subject) is Gap else clause.subject)
        rest = (clause.tense, clause.modal, third, clause.negative, ending, honorific)
        if type(predicate) is Noun:
            return conjugate(predicate.ko, "", COPULA, *rest)
        assert not isinstance(predicate, Noun)
        if type(predicate) is not Verb:
            return conjugate(predicate.ko, predicate.ko_class, ADJECTIVE, *rest)
        stem, stem_class = self.choose_stem(clause, predicate, head)
        if predicate.is_stative and clause.tense == "past" and ending == "attribute":
            lasting = honor("", stem, stem_class, VERB)[1] if honorific else stem
            return lasting + "던"  # 우리가 알던 사람: it lasted
        return conjugate(stem, stem_class, VERB, *rest)

    def choose_stem(self, clause: Clause, verb: Verb, head: Phrase | None = None) -> tuple[str, str]:
        """Return the stem of the verb and its class: humble if it is done for somebody who is honored."""
        affected = (clause.recipient, head if type(clause.object) is Gap else clause.object)
        if verb.ko in HUMBLE_STEMS and any(self.honors(entity) for entity in affected):
            return HUMBLE_STEMS[verb.ko], ""
        return verb.ko, verb.ko_class

    # ---- sentences

    def realize_sentence(self, sentence: Sentence) -> str:
        if type(sentence) is Clause:
            return self.realize_main_clause(sentence)
        if type(sentence) is CompoundSentence:
            return self.realize_compound(sentence)
        if type(sentence) is CausalSentence:
            return self.realize_causal(sentence) + "."
        if type(sentence) is ReportedSpeech:
            speaker = self.mark(sentence.speaker, "은")
            honorific = self.honors(sentence.speaker)
            verb = conjugate(
                sentence.verb.ko, "", VERB, "present", None, False, False, self.ending, honorific
            )
            return (
                f"{speaker} {self.realize_clause(sentence.content, 'quote', '이', sentence.speaker)} {verb}."
            )
        if type(sentence) is WeatherClause:
            return self.realize_weather(sentence, self.ending) + "."
        assert type(sentence) is ExistentialClause
        return self.realize_existence(sentence)

    def realize_compound(self, sentence: CompoundSentence) -> str:
        """Realize two clauses. The family of the first subject has no possessor in the second, either."""
        first = self.realize_clause(sentence.first, "고" if sentence.conjunction == "and" else "지만")
        other = sentence.second.subject
        is_family = type(other) is Phrase and other.noun.category == "kin"
        owner = sentence.first.subject if is_family else None
        return f"{first} {self.realize_clause(sentence.second, self.ending, speaker=owner)}."

    def realize_main_clause(self, clause: Clause) -> str:
        if clause.question:
            return self.realize_clause(clause, self.asking) + "?"
        if clause.subject:
            return self.realize_clause(clause, self.ending) + "."
        assert type(clause.predicate) is Verb
        words = [clause.time.ko] if clause.time else []
        words += self.realize_complements(clause)
        words.append(form_command(*self.choose_stem(clause, clause.predicate), clause.negative, self.polite))
        return " ".join(words) + "."

    def realize_causal(self, sentence: CausalSentence) -> str:
        """Realize a reason and its result. The tense is that of the result: 피곤해서 집에 갔다."""
        reason, result = replace(sentence.reason, tense="present"), sentence.result
        if type(reason) is WeatherClause:
            return f"{self.realize_weather(reason, '어서')} {self.realize_clause(result, self.ending)}"
        assert type(reason) is Clause
        if result.subject is not reason.subject:
            return f"{self.realize_clause(reason, '어서', '이')} {self.realize_clause(result, self.ending)}"
        subject = self.realize_subject(result, "은")
        reason_text = self.realize_clause(reason, "어서", "은").removeprefix(subject + " ")
        rest = self.realize_clause(result, self.ending).removeprefix(subject + " ")
        return f"{subject} {reason_text} {rest}"

    def realize_weather(self, weather: WeatherClause, ending: str) -> str:
        predicate, before = weather.predicate, ""
        if type(predicate) is Verb:
            before = f"{weather.time.ko} " if weather.time else ""
            word_class = VERB
        else:
            before = (f"{add_particle(weather.time.ko, '은')} " if weather.time else "") + "날씨가 "
            word_class = ADJECTIVE
        verb = conjugate(
            predicate.ko, predicate.ko_class, word_class, weather.tense, None, True, weather.negative, ending
        )
        return before + verb

    def realize_existence(self, existence: ExistentialClause) -> str:
        what = add_particle(self.realize_entity(existence.phrase), "이")
        honorific = self.honors(existence.phrase)
        stem = "없" if existence.negative and not honorific else "있"
        ending = self.asking if existence.is_question else self.ending
        verb = conjugate(stem, "있", VERB, existence.tense, None, True, False, ending, honorific)
        if existence.negative and honorific:
            verb = f"안 {verb}"
        return f"{existence.place.noun.ko}에 {what} {verb}{'?' if existence.is_question else '.'}"


REALIZERS = {"plain": KoreanRealizer(polite=False), "polite": KoreanRealizer(polite=True)}


def realize_korean(sentence: Sentence, register: str = "plain") -> str:
    return REALIZERS[register].realize_sentence(sentence)
