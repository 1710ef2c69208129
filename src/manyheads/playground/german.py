"""German realization of a meaning.

`you` is du; commands address du and end with an exclamation mark. The past is the Perfekt; for sein, haben,
mögen, kennen and the modals it is the Präteritum. The progressive is expressed with gerade unless a time is
given. A name takes -s as possessor (Minas Buch), other possessors the genitive (das Buch des Lehrers).

The middle field, between the finite verb and the end: pronouns and recipients, time, a definite object,
companion, means, place, manner, an indefinite object, goal. With nicht, a definite object precedes the time;
nicht precedes manner, place and goal. An indefinite object takes kein instead. The relative clause of an
object follows the last verb.
"""

from functools import lru_cache

from manyheads.playground.german_morphology import (
    ACCUSATIVE,
    CASES,
    DATIVE,
    DEFINITE,
    DIESER,
    GENITIVE,
    MIXED,
    NOMINATIVE,
    PRETERITE,
    RELATIVE,
    STRONG,
    WEAK,
    decline_ein_word,
    decline_noun,
    inflect_finite,
    inflect_imperative,
    look_up_form,
)
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
    Place,
    Pronoun,
    ReportedSpeech,
    Sentence,
    Verb,
    WeatherClause,
    get_person,
    get_sex,
    is_plural,
)
from manyheads.playground.word_tables import GERMAN_NUMBERS

CONTRACTIONS = {
    "in das": "ins",
    "in dem": "im",
    "an das": "ans",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
}
MEASURE_GENDERS = {"Tasse": "f", "Glas": "n", "Paar": "n", "Stück": "n", "Schüssel": "f"}
# Only objects; "sie" could also be the subject.
UNMISTAKABLE = ("mich", "mir", "dich", "dir", "ihn", "ihm", "ihr", "uns", "ihnen")
# Negated with nicht, never with kein: Fußball spielen, Schach spielen, Klavier spielen, zu Mittag essen.
PART_OF_THE_VERB = ("sport", "racket", "board", "instrument", "meal")
MODALS = {"can": "können", "want": "wollen", "must": "müssen"}


def inflect_verb(clause: Clause, subject: Entity | None) -> tuple[str, str, bool]:
    """Return the finite verb, the part at the end, and whether they are one word in a subordinate clause."""
    past, verb = clause.tense == "past", clause.predicate
    if type(verb) is not Verb:
        if clause.tense == "future":
            return inflect_finite("werden", "", subject), "sein", False
        return inflect_finite("sein", "", subject, past), "", False
    if clause.modal:
        return inflect_finite(MODALS[clause.modal], "", subject, past), verb.de_prefix + verb.de, False
    if clause.tense == "future":
        return inflect_finite("werden", "", subject), verb.de_prefix + verb.de, False
    if past and verb.de in PRETERITE:
        return inflect_finite(verb.de, "", subject, past), "", False
    if past:
        return inflect_finite("sein" if verb.de_is else "haben", "", subject), verb.de_participle, False
    return inflect_finite(verb.de, verb.de_third, subject), verb.de_prefix, True


# ---- phrases


def realize_entity(entity: Entity, case: int, negative: bool = False, with_relative: bool = True) -> str:
    """Realize an entity in a case; `with_relative` includes its relative clause."""
    if type(entity) is Phrase:
        return realize_phrase(entity, case, negative, with_relative)
    if type(entity) is Pronoun:
        return entity.de[case]
    if type(entity) is Coordination:
        return f"{realize_entity(entity.first, case)} und {realize_entity(entity.second, case)}"
    assert type(entity) is Name
    return entity.de + "s" if case == GENITIVE else entity.de


def realize_phrase(phrase: Phrase, case: int, negative: bool = False, with_relative: bool = True) -> str:
    noun, plural = phrase.noun, is_plural(phrase)
    if phrase.count and noun.measure:
        return realize_measure(phrase, case)
    gender = "p" if plural else noun.gender
    article, endings = choose_determiner(phrase, gender, case, negative)
    text = decline_noun(noun, plural, case)
    if phrase.adjective:
        text = f"{phrase.adjective.de_stem}{look_up_form(endings, gender, case)} {text}"
    if article:
        text = f"{article} {text}"
    if type(phrase.possessor) is Phrase:
        text = f"{text} {realize_phrase(phrase.possessor, GENITIVE)}"
    if phrase.relative and with_relative:
        text += realize_relative(phrase.relative, phrase)
    return text


def choose_determiner(phrase: Phrase, gender: str, case: int, negative: bool) -> tuple[str, dict[str, str]]:
    """Return the determiner, and the adjective endings that it requires."""
    owner = phrase.possessor
    if type(owner) is Pronoun:
        return decline_ein_word(owner.de_possessive, gender, case), MIXED
    if type(owner) is Name:
        return realize_entity(owner, GENITIVE), STRONG
    if negative:
        return decline_ein_word("kein", gender, case), MIXED
    if phrase.count > 1:
        return GERMAN_NUMBERS[phrase.count], STRONG
    if phrase.noun.de_bare:
        return "", STRONG
    if phrase.determiner == "this":
        return "dies" + look_up_form(DIESER, gender, case), WEAK
    if phrase.determiner == "the" or owner:
        return look_up_form(DEFINITE, gender, case), WEAK
    if (phrase.determiner == "a" or phrase.count) and gender != "p":
        return decline_ein_word("ein", gender, case), MIXED
    return "", STRONG


def realize_measure(phrase: Phrase, case: int) -> str:
    """Realize a measure: eine Tasse Kaffee, drei Gläser Wasser, zwei Paar Schuhe."""
    assert phrase.noun.measure is not None
    singular, many = phrase.noun.measure[2:]
    what = phrase.noun.de_plural if phrase.plural else phrase.noun.de
    if phrase.count == 1:
        return f"{decline_ein_word('ein', MEASURE_GENDERS[singular], case)} {singular} {what}"
    ending = "n" if case == DATIVE and many == "Gläser" else ""
    return f"{GERMAN_NUMBERS[phrase.count]} {many}{ending} {what}"


@lru_cache(maxsize=1024)
def realize_place(place: Place, whither: bool) -> str:
    preposition = place.de_to if whither else place.de_at
    if place.proper:
        return f"{preposition} {place.noun.de}"
    accusative = whither and preposition in ("in", "an", "auf")
    case = ACCUSATIVE if accusative else DATIVE
    start = f"{preposition} {look_up_form(DEFINITE, place.noun.gender, case)}"
    return f"{CONTRACTIONS.get(start, start)} {decline_noun(place.noun, False, case)}"


# ---- the middle field


def is_definite(entity: Entity) -> bool:
    if type(entity) is Coordination:
        return is_definite(entity.first)
    if type(entity) is not Phrase:
        return True
    return (entity.determiner in ("the", "this") or entity.possessor is not None) and not entity.noun.de_bare


def takes_kein(clause: Clause) -> bool:
    object_ = clause.object
    return (
        clause.negative
        and type(object_) is Phrase
        and not object_.count
        and not is_definite(object_)
        and object_.noun.category not in PART_OF_THE_VERB
    )


def realize_objects(clause: Clause, verb: Verb) -> tuple[list[str], list[str], list[str], list[str]]:
    """Realize pronouns and recipients, a definite, an indefinite and a prepositional object."""
    pronouns: list[str] = [realize_entity(clause.recipient, DATIVE)] if clause.recipient else []
    definite: list[str] = []
    indefinite: list[str] = []
    object_ = clause.object
    if verb.de_object == "sich":
        pronouns.append(choose_reflexive(clause.subject))
    if object_ is None or type(object_) is Gap or clause.question in ("what", "whom"):
        return pronouns, definite, indefinite, []
    preposition, _, case = verb.de_object.rpartition(" ")
    text = realize_entity(object_, CASES[case], takes_kein(clause), with_relative=False)
    if preposition:
        return pronouns, definite, indefinite, [f"{preposition} {text}"]
    if type(object_) is Pronoun:
        pronouns.append(text)
    else:
        (definite if is_definite(object_) else indefinite).append(text)
    return pronouns, definite, indefinite, []


def choose_reflexive(subject: Entity | None) -> str:
    """Return the reflexive pronoun of a subject; of a command, dich."""
    person = 2 if subject is None else get_person(subject)
    if person == 3:
        return "sich"
    return "uns" if subject is not None and is_plural(subject) else "mich" if person == 1 else "dich"


def realize_middle_field(clause: Clause) -> list[str]:
    verb = clause.predicate
    if type(verb) is not Verb:
        return realize_predicative(clause)
    pronouns, definite, indefinite, prepositional = realize_objects(clause, verb)
    no = ["nicht"] if clause.negative and not takes_kein(clause) else []
    time = [] if clause.time is None or clause.fronted else [clause.time.de]
    if clause.tense == "progressive" and clause.time is None:
        time = ["gerade"]
    adjuncts = []
    if clause.companion:
        adjuncts.append("mit " + realize_entity(clause.companion, DATIVE))
    if clause.means:
        article = look_up_form(DEFINITE, clause.means.gender, DATIVE)
        if clause.means.category != "transport":
            article = decline_ein_word("ein", clause.means.gender, DATIVE)
        adjuncts.append(f"mit {article} {clause.means.de}")
    if clause.place:
        adjuncts.append(realize_place(clause.place, False))
    if clause.manner:
        adjuncts.append(clause.manner.de)
    goal = [realize_place(clause.goal, whither=not verb.takes_location)] if clause.goal else []
    early = [*definite, *time] if no else [*time, *definite]
    return [*pronouns, *early, *no, *adjuncts, *indefinite, *goal, *prepositional]


def realize_predicative(clause: Clause) -> list[str]:
    predicate = clause.predicate
    words = [] if clause.time is None or clause.fronted else [clause.time.de]
    if type(predicate) is Adjective:
        before = ["nicht"] if clause.negative else [clause.degree.de] if clause.degree else []
        return [*words, *before, predicate.de]
    assert type(predicate) is Noun
    assert clause.subject is not None
    plural, woman = is_plural(clause.subject), get_sex(clause.subject) == "f" and predicate.feminine
    if clause.negative:
        words.append(
            decline_ein_word("kein", "p" if plural else "f" if woman else predicate.gender, NOMINATIVE)
        )
    return [*words, predicate.de_plural if plural else predicate.feminine if woman else predicate.de]


# ---- clauses


def realize_verb_second(clause: Clause) -> str:
    """Realize a statement, or a question with or without a question word."""
    verb, last, _ = inflect_verb(clause, clause.subject)
    first = realize_opening(clause)
    words = [first, verb] if first else [verb]
    if clause.subject and clause.question != "who":
        subject = realize_entity(clause.subject, NOMINATIVE)
        if not first and not clause.question:
            words = [subject, verb, *realize_middle_field(clause)]
        else:
            words += insert_subject(subject, clause)
    else:
        words += realize_middle_field(clause)
    if last:
        words.append(last)
    return " ".join(words) + realize_trailing_relative(clause)


def insert_subject(subject: str, clause: Clause) -> list[str]:
    """Insert the subject after pronouns (hat ihn der Lehrer gesehen), unless it is a pronoun."""
    words, leading = realize_middle_field(clause), 0
    if type(clause.subject) is not Pronoun:
        pronouns = [each for each in (clause.recipient, clause.object) if type(each) is Pronoun]
        while leading < len(pronouns) and words[leading] in UNMISTAKABLE:
            leading += 1
    return [*words[:leading], subject, *words[leading:]]


def realize_opening(clause: Clause) -> str:
    """Realize what precedes the verb if it is not the subject."""
    if clause.time and clause.fronted:
        return clause.time.de
    question, verb = clause.question, clause.predicate
    if question in (None, "yes"):
        return ""
    if question == "where":
        return "wohin" if type(verb) is Verb and verb.takes_goal else "wo"
    if question == "whom":
        assert type(verb) is Verb
        preposition, _, case = verb.de_object.rpartition(" ")
        return f"{preposition} {'wen' if case == 'acc' else 'wem'}".strip()
    return {"who": "wer", "what": "was", "when": "wann", "why": "warum"}[question or ""]


def realize_verb_last(clause: Clause, subject: Entity | None, head: str) -> str:
    verb, last, is_one_word = inflect_verb(clause, subject)
    words = [head] if head else []
    if clause.subject and type(clause.subject) is not Gap:
        words.append(realize_entity(clause.subject, NOMINATIVE))
    if clause.time and clause.fronted:
        words.append(clause.time.de)
    words += realize_middle_field(clause)
    words += [last + verb] if is_one_word else [last, verb] if last else [verb]
    return " ".join(words) + realize_trailing_relative(clause)


def realize_relative(clause: Clause, head: Phrase) -> str:
    """Realize a relative clause between commas."""
    gender = "p" if is_plural(head) else head.noun.gender
    if type(clause.subject) is Gap:
        return f", {realize_verb_last(clause, head, look_up_form(RELATIVE, gender, NOMINATIVE))},"
    assert type(clause.predicate) is Verb
    preposition, _, case = clause.predicate.de_object.rpartition(" ")
    pronoun = f"{preposition} {look_up_form(RELATIVE, gender, CASES[case])}".strip()
    return f", {realize_verb_last(clause, clause.subject, pronoun)},"


def realize_trailing_relative(clause: Clause) -> str:
    """Realize the relative clause of an object after the verb: Er hat das Buch gelesen, das ich mag."""
    object_ = clause.object
    return realize_relative(object_.relative, object_) if type(object_) is Phrase and object_.relative else ""


# ---- sentences


def finish_sentence(text: str, mark: str) -> str:
    """Capitalize and punctuate. Commas around a relative clause merge with other punctuation."""
    text = (text + mark).replace(",,", ",").replace("," + mark, mark)
    return text[0].upper() + text[1:]


def realize_german(sentence: Sentence) -> str:
    if type(sentence) is Clause:
        return realize_main_clause(sentence)
    if type(sentence) is CompoundSentence:
        link = " und " if sentence.conjunction == "and" else ", aber "
        return finish_sentence(
            realize_verb_second(sentence.first) + link + realize_verb_second(sentence.second), "."
        )
    if type(sentence) is CausalSentence:
        return finish_sentence(f"{realize_verb_second(sentence.result)}, {realize_reason(sentence)}", ".")
    if type(sentence) is ReportedSpeech:
        verb = inflect_finite(sentence.verb.de, sentence.verb.de_third, sentence.speaker)
        content = realize_verb_last(sentence.content, sentence.content.subject, "dass")
        return finish_sentence(f"{realize_entity(sentence.speaker, NOMINATIVE)} {verb}, {content}", ".")
    if type(sentence) is WeatherClause:
        return realize_weather(sentence)
    assert type(sentence) is ExistentialClause
    return realize_existence(sentence)


def realize_main_clause(clause: Clause) -> str:
    if clause.question:
        return finish_sentence(realize_verb_second(clause), "?")
    if clause.subject:
        return finish_sentence(realize_verb_second(clause), ".")
    assert type(clause.predicate) is Verb
    words = [inflect_imperative(clause.predicate), *realize_middle_field(clause)]
    if clause.predicate.de_prefix:
        words.append(clause.predicate.de_prefix)
    return finish_sentence(" ".join(words) + realize_trailing_relative(clause), "!")


def realize_reason(sentence: CausalSentence) -> str:
    reason = sentence.reason
    if type(reason) is WeatherClause:
        verb, rest, last = realize_weather_parts(reason)
        return " ".join(word for word in ("weil es", *rest, last, verb) if word)
    assert type(reason) is Clause
    assert reason.subject is not None
    text = realize_verb_last(reason, reason.subject, "weil")
    if reason.subject is sentence.result.subject and type(reason.subject) is not Pronoun:
        pronoun = {"m": "er", "f": "sie"}[get_sex(reason.subject)]
        text = text.replace(realize_entity(reason.subject, NOMINATIVE), pronoun, 1)
    return text


def realize_weather_parts(weather: WeatherClause) -> tuple[str, list[str], str]:
    predicate, no = weather.predicate, ["nicht"] if weather.negative else []
    if type(predicate) is Adjective:
        if weather.tense == "future":
            return "wird", [*no, predicate.de], "sein"
        return "war" if weather.tense == "past" else "ist", [*no, predicate.de], ""
    assert type(predicate) is Verb
    if weather.tense == "future":
        return "wird", no, predicate.de
    if weather.tense == "past":
        return "hat", no, predicate.de_participle
    return predicate.de_third, ["gerade", *no] if weather.time is None else no, ""


def realize_weather(weather: WeatherClause) -> str:
    verb, rest, last = realize_weather_parts(weather)
    start = [weather.time.de, verb, "es"] if weather.time else ["es", verb]
    return finish_sentence(" ".join([*start, *rest, *([last] if last else [])]), ".")


def realize_existence(existence: ExistentialClause) -> str:
    place = realize_place(existence.place, whither=False)
    what = realize_phrase(existence.phrase, NOMINATIVE, existence.negative)
    verb = inflect_finite("sein", "", existence.phrase, past=existence.tense == "past")
    if existence.is_question:
        return finish_sentence(f"{verb} {place} {what}", "?")
    return finish_sentence(f"{place} {verb} {what}", ".")
