"""German from a meaning.

`you` is du, and a command is said to du, with an exclamation mark. The past is the Perfekt; of sein, haben,
mögen, kennen and the modals it is the Präteritum. What is going on now is told with gerade, unless a time is
named. A name owns with -s (Minas Buch), everybody else in the genitive (das Buch des Lehrers).

The middle of a clause, between the finite verb and the rest of it: pronouns and recipients, time, a definite
object, with whom, with what, where, how, an indefinite object, whither. With nicht a definite object goes
before the time; nicht goes before the how, where and whither. An indefinite object takes kein instead.
The relative clause of an object stands behind the last verb.
"""

from functools import lru_cache

from manyheads.playground.lexicon import GERMAN_NUMBERS, get_german_stem, needs_e
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

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"acc": ACCUSATIVE, "dat": DATIVE}

# One word a case, in the order above; p is the plural.
DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
RELATIVE = {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die denen"}
EIN = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
DIESER = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
STRONG = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}

CONTRACTIONS = {
    "in das": "ins",
    "in dem": "im",
    "an das": "ans",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
}
MEASURE_GENDERS = {"Tasse": "f", "Glas": "n", "Paar": "n", "Stück": "n", "Schüssel": "f"}
UNMISTAKABLE = ("mich", "mir", "ihn", "ihm", "ihr", "uns", "ihnen")  # sie could be the subject
# Fußball spielen, Schach spielen, Klavier spielen: nicht, never kein.
PART_OF_THE_VERB = ("sport", "racket", "board", "instrument")

# ich du er wir sie
IRREGULAR = {
    "sein": "bin bist ist sind sind",
    "haben": "habe hast hat haben haben",
    "werden": "werde wirst wird werden werden",
    "können": "kann kannst kann können können",
    "wollen": "will willst will wollen wollen",
    "müssen": "muss musst muss müssen müssen",
    "mögen": "mag magst mag mögen mögen",
}
PRETERITE = {
    "sein": "war",
    "haben": "hatte",
    "können": "konnte",
    "wollen": "wollte",
    "müssen": "musste",
    "mögen": "mochte",
    "kennen": "kannte",
}
MODALS = {"can": "können", "want": "wollen", "must": "müssen"}


def look_up_form(table: dict[str, str], gender: str, case: int) -> str:
    return table[gender].split()[case].strip("-")


# --- Verbs


@lru_cache(maxsize=4096)
def inflect_present(infinitive: str, third: str, person: int, plural: bool) -> str:
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive].split()[3 if plural else person - 1]
    if plural:
        return infinitive
    if person == 1:
        return inflect_first_person(infinitive)
    if person == 3:
        return third
    return inflect_second_person(third)


def inflect_first_person(infinitive: str) -> str:
    return infinitive[:-3] + "le" if infinitive.endswith("eln") else get_german_stem(infinitive) + "e"


def inflect_second_person(third: str) -> str:
    if third == "lädt":
        return "lädst"
    return third if third[-2] in "sßzx" else third[:-1] + "st"


@lru_cache(maxsize=1024)
def inflect_preterite(infinitive: str, person: int, plural: bool) -> str:
    stem = PRETERITE[infinitive]
    if plural:
        return stem + ("en" if stem == "war" else "n")
    return stem + "st" if person == 2 else stem


@lru_cache(maxsize=1024)
def inflect_imperative(verb: Verb) -> str:
    """lies, gib, nimm; schlaf, trag, komm; of weak verbs with -e: kaufe, öffne, sammle."""
    stem = get_german_stem(verb.de)
    changed = verb.de_third[:-1]
    if verb.de.endswith("eln"):
        return inflect_first_person(verb.de)
    if not verb.de_third.startswith(stem) and "ä" not in verb.de_third:
        return changed
    return stem + "e" if needs_e(stem) or verb.de_participle.endswith("t") else stem


def inflect_finite(verb: str, third: str, subject: Entity | None, past: bool = False) -> str:
    person, plural = (3, False) if subject is None else (get_person(subject), is_plural(subject))
    return inflect_preterite(verb, person, plural) if past else inflect_present(verb, third, person, plural)


def inflect_verb(clause: Clause, subject: Entity | None) -> tuple[str, str, bool]:
    """The finite verb; what stands at the end; whether the two are one word when they meet there."""
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


# --- Phrases


@lru_cache(maxsize=8192)
def decline_noun(noun: Noun, plural: bool, case: int) -> str:
    if plural:
        return noun.de_plural + ("n" if case == DATIVE and noun.de_plural[-1] not in "ns" else "")
    if noun.weak and case != NOMINATIVE:
        return noun.de_plural
    if case == GENITIVE and noun.gender != "f":
        return noun.de + find_genitive_ending(noun.de)
    return noun.de


def find_genitive_ending(noun: str) -> str:
    vowels = "aeiouäöüy"
    syllables = sum(
        letter in vowels and (at == 0 or noun.lower()[at - 1] not in vowels)
        for at, letter in enumerate(noun.lower())
    )
    return "es" if syllables == 1 or noun.endswith(("s", "ß", "z", "zt", "st", "nn", "lt", "nd")) else "s"


def realize_entity(said: Entity, case: int, negative: bool = False, whole: bool = True) -> str:
    """`whole` is with the relative clause."""
    if type(said) is Phrase:
        return realize_phrase(said, case, negative, whole)
    if type(said) is Pronoun:
        return said.de[case]
    if type(said) is Coordination:
        return f"{realize_entity(said.first, case)} und {realize_entity(said.second, case)}"
    assert type(said) is Name
    return said.de + "s" if case == GENITIVE else said.de


def realize_phrase(said: Phrase, case: int, negative: bool = False, whole: bool = True) -> str:
    noun, plural = said.noun, is_plural(said)
    if said.count and noun.measure:
        return realize_measure(said, case)
    gender = "p" if plural else noun.gender
    article, endings = choose_determiner(said, gender, case, negative)
    text = decline_noun(noun, plural, case)
    if said.adjective:
        text = f"{said.adjective.de_stem}{look_up_form(endings, gender, case)} {text}"
    if article:
        text = f"{article} {text}"
    if type(said.possessor) is Phrase:
        text = f"{text} {realize_phrase(said.possessor, GENITIVE)}"
    if said.relative and whole:
        text += realize_relative(said.relative, said)
    return text


@lru_cache(maxsize=8192)
def decline_ein_word(stem: str, gender: str, case: int) -> str:
    return stem + look_up_form(EIN, gender, case)


def choose_determiner(said: Phrase, gender: str, case: int, negative: bool) -> tuple[str, dict[str, str]]:
    """The word before, and the endings that it leaves to the adjective."""
    owner = said.possessor
    if type(owner) is Pronoun:
        return decline_ein_word(owner.de_possessive, gender, case), MIXED
    if type(owner) is Name:
        return realize_entity(owner, GENITIVE), STRONG
    if negative:
        return decline_ein_word("kein", gender, case), MIXED
    if said.count > 1:
        return GERMAN_NUMBERS[said.count], STRONG
    if said.noun.de_bare:
        return "", STRONG
    if said.determiner == "this":
        return "dies" + look_up_form(DIESER, gender, case), WEAK
    if said.determiner == "the" or owner:
        return look_up_form(DEFINITE, gender, case), WEAK
    if (said.determiner == "a" or said.count) and gender != "p":
        return decline_ein_word("ein", gender, case), MIXED
    return "", STRONG


def realize_measure(said: Phrase, case: int) -> str:
    """Eine Tasse Kaffee, drei Gläser Wasser, zwei Paar Schuhe."""
    assert said.noun.measure is not None
    one, many = said.noun.measure[2:]
    what = said.noun.de_plural if said.plural else said.noun.de
    if said.count == 1:
        return f"{decline_ein_word('ein', MEASURE_GENDERS[one], case)} {one} {what}"
    ending = "n" if case == DATIVE and many == "Gläser" else ""
    return f"{GERMAN_NUMBERS[said.count]} {many}{ending} {what}"


@lru_cache(maxsize=1024)
def realize_place(place: Place, whither: bool) -> str:
    preposition = place.de_to if whither else place.de_at
    if place.proper:
        return f"{preposition} {place.noun.de}"
    accusative = whither and preposition in ("in", "an", "auf")
    case = ACCUSATIVE if accusative else DATIVE
    start = f"{preposition} {look_up_form(DEFINITE, place.noun.gender, case)}"
    return f"{CONTRACTIONS.get(start, start)} {decline_noun(place.noun, False, case)}"


# --- The middle of a clause


def is_definite(said: Entity) -> bool:
    if type(said) is Coordination:
        return is_definite(said.first)
    if type(said) is not Phrase:
        return True
    return (said.determiner in ("the", "this") or said.possessor is not None) and not said.noun.de_bare


def takes_kein(clause: Clause) -> bool:
    said = clause.object
    return (
        clause.negative
        and type(said) is Phrase
        and not said.count
        and not is_definite(said)
        and said.noun.category not in PART_OF_THE_VERB
    )


def realize_objects(clause: Clause, verb: Verb) -> tuple[list[str], list[str], list[str], list[str]]:
    """Pronouns and recipients, a definite object, an indefinite one, one with a preposition."""
    pronouns: list[str] = [realize_entity(clause.recipient, DATIVE)] if clause.recipient else []
    definite: list[str] = []
    indefinite: list[str] = []
    said = clause.object
    if said is None or type(said) is Gap or clause.question in ("what", "whom"):
        return pronouns, definite, indefinite, []
    preposition, _, case = verb.de_object.rpartition(" ")
    text = realize_entity(said, CASES[case], takes_kein(clause), whole=False)
    if preposition:
        return pronouns, definite, indefinite, [f"{preposition} {text}"]
    if type(said) is Pronoun:
        pronouns.append(text)
    else:
        (definite if is_definite(said) else indefinite).append(text)
    return pronouns, definite, indefinite, []


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
    said = clause.predicate
    words = [] if clause.time is None or clause.fronted else [clause.time.de]
    if type(said) is Adjective:
        before = ["nicht"] if clause.negative else [clause.degree.de] if clause.degree else []
        return [*words, *before, said.de]
    assert type(said) is Noun
    assert clause.subject is not None
    plural, woman = is_plural(clause.subject), get_sex(clause.subject) == "f" and said.feminine
    if clause.negative:
        words.append(decline_ein_word("kein", "p" if plural else "f" if woman else said.gender, NOMINATIVE))
    return [*words, said.de_plural if plural else said.feminine if woman else said.de]


# --- Clauses


def realize_verb_second(clause: Clause) -> str:
    """A statement, or a question with or without a question word."""
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
    """Gestern hat ihn der Lehrer gesehen; but: Gestern hat er ihn gesehen."""
    words, leading = realize_middle_field(clause), 0
    if type(clause.subject) is not Pronoun:
        said = [each for each in (clause.recipient, clause.object) if type(each) is Pronoun]
        while leading < len(said) and words[leading] in UNMISTAKABLE:
            leading += 1
    return [*words[:leading], subject, *words[leading:]]


def realize_opening(clause: Clause) -> str:
    """What stands before the verb, if not the subject."""
    if clause.time and clause.fronted:
        return clause.time.de
    asked, verb = clause.question, clause.predicate
    if asked in (None, "yes"):
        return ""
    if asked == "where":
        return "wohin" if type(verb) is Verb and verb.takes_goal else "wo"
    if asked == "whom":
        assert type(verb) is Verb
        preposition, _, case = verb.de_object.rpartition(" ")
        return f"{preposition} {'wen' if case == 'acc' else 'wem'}".strip()
    return {"who": "wer", "what": "was", "when": "wann", "why": "warum"}[asked or ""]


def realize_verb_last(clause: Clause, subject: Entity | None, head: str) -> str:
    verb, last, joined = inflect_verb(clause, subject)
    words = [head] if head else []
    if clause.subject and type(clause.subject) is not Gap:
        words.append(realize_entity(clause.subject, NOMINATIVE))
    if clause.time and clause.fronted:
        words.append(clause.time.de)
    words += realize_middle_field(clause)
    words += [last + verb] if joined else [last, verb] if last else [verb]
    return " ".join(words) + realize_trailing_relative(clause)


def realize_relative(clause: Clause, head: Phrase) -> str:
    """With the commas that enclose it."""
    gender = "p" if is_plural(head) else head.noun.gender
    if type(clause.subject) is Gap:
        return f", {realize_verb_last(clause, head, look_up_form(RELATIVE, gender, NOMINATIVE))},"
    assert type(clause.predicate) is Verb
    preposition, _, case = clause.predicate.de_object.rpartition(" ")
    pronoun = f"{preposition} {look_up_form(RELATIVE, gender, CASES[case])}".strip()
    return f", {realize_verb_last(clause, clause.subject, pronoun)},"


def realize_trailing_relative(clause: Clause) -> str:
    """The relative clause of an object stands behind the verb: Er hat das Buch gelesen, das ich mag."""
    said = clause.object
    return realize_relative(said.relative, said) if type(said) is Phrase and said.relative else ""


# --- Sentences


def finish_sentence(text: str, mark: str) -> str:
    """A relative clause brings a comma on either side, which a full stop or another comma swallows."""
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
        told = realize_verb_last(sentence.content, sentence.content.subject, "dass")
        return finish_sentence(f"{realize_entity(sentence.speaker, NOMINATIVE)} {verb}, {told}", ".")
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
    told = sentence.reason
    if type(told) is WeatherClause:
        verb, rest, last = realize_weather_parts(told)
        return " ".join(word for word in ("weil es", *rest, last, verb) if word)
    assert type(told) is Clause
    assert told.subject is not None
    text = realize_verb_last(told, told.subject, "weil")
    if told.subject is sentence.result.subject and type(told.subject) is not Pronoun:
        pronoun = {"m": "er", "f": "sie"}[get_sex(told.subject)]
        text = text.replace(realize_entity(told.subject, NOMINATIVE), pronoun, 1)
    return text


def realize_weather_parts(said: WeatherClause) -> tuple[str, list[str], str]:
    kind, no = said.predicate, ["nicht"] if said.negative else []
    if type(kind) is Adjective:
        if said.tense == "future":
            return "wird", [*no, kind.de], "sein"
        return "war" if said.tense == "past" else "ist", [*no, kind.de], ""
    assert type(kind) is Verb
    if said.tense == "future":
        return "wird", no, kind.de
    if said.tense == "past":
        return "hat", no, kind.de_participle
    return kind.de_third, ["gerade", *no] if said.time is None else no, ""


def realize_weather(said: WeatherClause) -> str:
    verb, rest, last = realize_weather_parts(said)
    start = [said.time.de, verb, "es"] if said.time else ["es", verb]
    return finish_sentence(" ".join([*start, *rest, *([last] if last else [])]), ".")


def realize_existence(said: ExistentialClause) -> str:
    place = realize_place(said.place, whither=False)
    what = realize_phrase(said.phrase, NOMINATIVE, said.negative)
    verb = inflect_finite("sein", "", said.phrase, past=said.tense == "past")
    if said.is_question:
        return finish_sentence(f"{verb} {place} {what}", "?")
    return finish_sentence(f"{place} {verb} {what}", ".")
