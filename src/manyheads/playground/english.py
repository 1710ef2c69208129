"""English realization of a meaning. No contractions (do not, cannot), so that each sentence has one spelling.

A sentence has all information that its translation needs: `read` is past only with a time in the past.
"""

from functools import lru_cache

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
    Verb,
    WeatherClause,
    get_person,
    get_sex,
    is_plural,
)
from manyheads.playground.word_tables import NUMBERS

DOUBLING = ("run", "swim", "get", "hug")
SOUNDED_AS_CONSONANT = ("university", "useful", "uniform")
SOUNDED_AS_VOWEL = ("honest",)
WH = {"who": "who", "whom": "who", "what": "what", "where": "where", "when": "when", "why": "why"}


@lru_cache(maxsize=4096)
def form_third_person(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first == "have":
        return "has"
    if first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ies"
    else:
        first += "es" if first.endswith(("s", "x", "ch", "sh", "go")) else "s"
    return first + space + rest


@lru_cache(maxsize=4096)
def form_present_participle(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first.endswith("e") and not first.endswith("ee"):
        first = first[:-1]
    elif first in DOUBLING:
        first += first[-1]
    return first + "ing" + space + rest


def form_past(verb: Verb) -> str:
    return verb.en_past + verb.en[len(verb.en.partition(" ")[0]) :]


def add_indefinite_article(words: str) -> str:
    vowel = words[0] in "aeiou" and not words.startswith(SOUNDED_AS_CONSONANT)
    return ("an " if vowel or words.startswith(SOUNDED_AS_VOWEL) else "a ") + words


# ---- phrases


def realize_entity(entity: Entity, case: str = "subject") -> str:
    if type(entity) is Phrase:
        return realize_phrase(entity)
    if type(entity) is Pronoun:
        return entity.en if case == "subject" else entity.en_object
    if type(entity) is Coordination:
        return f"{realize_entity(entity.first, case)} and {realize_entity(entity.second, case)}"
    assert type(entity) is Name
    return entity.en


def realize_phrase(phrase: Phrase) -> str:
    text = realize_counted_noun(phrase)
    if phrase.possessor:
        text = f"{realize_possessive(phrase.possessor)} {text}"
    elif phrase.determiner == "the":
        text = "the " + text
    elif phrase.determiner == "this":
        text = ("these " if is_plural(phrase) else "this ") + text
    elif phrase.determiner == "a" and not phrase.count:
        text = add_indefinite_article(text)
    if phrase.relative:
        pronoun = "who" if phrase.noun.category in ("person", "kin") else "that"
        text = f"{text} {pronoun} {realize_clause(phrase.relative, phrase)}"
    return text


def realize_counted_noun(phrase: Phrase) -> str:
    noun = phrase.noun
    word = noun.plural if noun.plural and is_plural(phrase) else noun.en
    if phrase.adjective:
        word = f"{phrase.adjective.en} {word}"
    if not phrase.count:
        return word
    if noun.measure:
        return f"{NUMBERS[phrase.count]} {noun.measure[phrase.count > 1]} of {word}"
    return f"{NUMBERS[phrase.count]} {word}"


def realize_possessive(owner: Entity) -> str:
    if type(owner) is Pronoun:
        return owner.en_possessive
    text = realize_entity(owner)
    return text + ("'" if is_plural(owner) and text.endswith("s") else "'s")


# ---- verbs: an auxiliary, which questions move, and the rest


def inflect_be(subject: Entity, past: bool) -> str:
    many = is_plural(subject) or get_person(subject) == 2
    if past:
        return "were" if many else "was"
    return "are" if many else "am" if get_person(subject) == 1 else "is"


def is_third_singular(subject: Entity) -> bool:
    return get_person(subject) == 3 and not is_plural(subject)


def inflect_do(clause: Clause, subject: Entity) -> str:
    return "did" if clause.tense == "past" else "does" if is_third_singular(subject) else "do"


def inflect_verb(clause: Clause, subject: Entity) -> tuple[str, str]:
    """Return the auxiliary, which is empty if English needs none, and the verb after it."""
    verb, modal = clause.predicate, clause.modal
    if type(verb) is not Verb:
        return (
            ("will", "be")
            if clause.tense == "future"
            else (inflect_be(subject, past=clause.tense == "past"), "")
        )
    needs_do = clause.negative or (clause.question and clause.question != "who")
    if modal == "can":
        return ("could" if clause.tense == "past" else "can"), verb.en
    if modal:
        start = "want" if modal == "want" else "have"
        if needs_do:
            return inflect_do(clause, subject), f"{start} to {verb.en}"
        forms = {"want": ("want", "wants", "wanted"), "have": ("have", "has", "had")}[start]
        finite = forms[2] if clause.tense == "past" else forms[is_third_singular(subject)]
        return "", f"{finite} to {verb.en}"
    if clause.tense == "future":
        return "will", verb.en
    if clause.tense == "progressive":
        return inflect_be(subject, past=False), form_present_participle(verb.en)
    if needs_do:
        return inflect_do(clause, subject), verb.en
    if clause.tense == "past":
        return "", form_past(verb)
    return "", form_third_person(verb.en) if is_third_singular(subject) else verb.en


def negate(auxiliary: str) -> str:
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def realize_complements(clause: Clause) -> list[str]:
    """Realize what follows the verb."""
    words: list[str] = []
    predicate = clause.predicate
    if type(predicate) is Adjective:
        words.append(f"{clause.degree.en} {predicate.en}" if clause.degree else predicate.en)
    elif type(predicate) is Noun:
        assert clause.subject is not None
        words.append(predicate.plural if is_plural(clause.subject) else add_indefinite_article(predicate.en))
    if clause.recipient:
        words.append(realize_entity(clause.recipient, "object"))
    if clause.object and type(clause.object) is not Gap and clause.question not in ("what", "whom"):
        words.append(realize_entity(clause.object, "object"))
    if clause.goal:
        words.append(
            clause.goal.at if type(predicate) is Verb and predicate.takes_location else clause.goal.to
        )
    if clause.manner:
        words.append(clause.manner.en)
    if clause.means:
        words.append(("by " if clause.means.category == "transport" else "with a ") + clause.means.en)
    if clause.companion:
        words.append("with " + realize_entity(clause.companion, "object"))
    if clause.place:
        words.append(clause.place.at)
    if clause.time and not clause.fronted and not clause.time.frequency:
        words.append(clause.time.en)
    return words


def realize_clause(clause: Clause, head: Entity | None = None) -> str:
    """Realize a statement, or a relative clause. Without a subject the verb agrees with the head."""
    missing = clause.subject is None or type(clause.subject) is Gap
    subject = head if missing else clause.subject
    assert subject is not None
    auxiliary, verb = inflect_verb(clause, subject)
    words = [] if missing else [realize_entity(subject)]
    if clause.question == "who":
        words = ["who"]
    if auxiliary:
        words.append(negate(auxiliary) if clause.negative else auxiliary)
    if clause.time and clause.time.frequency:
        words.append(clause.time.en)
    if verb:
        words.append(verb)
    words += realize_complements(clause)
    if clause.time and clause.fronted:
        words.insert(0, clause.time.en)
    return " ".join(words)


def realize_question(clause: Clause) -> str:
    if clause.question == "who":
        return realize_clause(clause)
    assert clause.subject is not None
    auxiliary, verb = inflect_verb(clause, clause.subject)
    words = [] if clause.question in (None, "yes") else [WH[clause.question]]
    words += [auxiliary, realize_entity(clause.subject)]
    if clause.negative:
        words.append("not")
    if verb:
        words.append(verb)
    return " ".join(words + realize_complements(clause))


# ---- sentences


def finish_sentence(text: str, mark: str) -> str:
    return text[0].upper() + text[1:] + mark


def realize_english(sentence: Sentence) -> str:
    if type(sentence) is Clause:
        return realize_main_clause(sentence)
    if type(sentence) is CompoundSentence:
        return finish_sentence(
            f"{realize_clause(sentence.first)}, {sentence.conjunction} {realize_clause(sentence.second)}", "."
        )
    if type(sentence) is CausalSentence:
        return finish_sentence(f"{realize_clause(sentence.result)} because {realize_reason(sentence)}", ".")
    if type(sentence) is ReportedSpeech:
        verb = (
            form_third_person(sentence.verb.en) if is_third_singular(sentence.speaker) else sentence.verb.en
        )
        return finish_sentence(
            f"{realize_entity(sentence.speaker)} {verb} that {realize_clause(sentence.content)}", "."
        )
    if type(sentence) is WeatherClause:
        return finish_sentence(realize_weather(sentence), ".")
    assert type(sentence) is ExistentialClause
    return realize_existence(sentence)


def realize_main_clause(clause: Clause) -> str:
    if clause.question:
        return finish_sentence(realize_question(clause), "?")
    if clause.subject:
        return finish_sentence(realize_clause(clause), ".")
    assert type(clause.predicate) is Verb
    words = ["do not"] if clause.negative else []
    return finish_sentence(" ".join([*words, clause.predicate.en, *realize_complements(clause)]), ".")


def realize_reason(sentence: CausalSentence) -> str:
    reason = sentence.reason
    if type(reason) is WeatherClause:
        return realize_weather(reason)
    assert type(reason) is Clause
    assert reason.subject is not None
    text = realize_clause(reason)
    if reason.subject is sentence.result.subject and type(reason.subject) is not Pronoun:
        named = realize_entity(reason.subject)
        text = {"m": "he", "f": "she"}[get_sex(reason.subject)] + text.removeprefix(named)
    return text


def realize_weather(weather: WeatherClause) -> str:
    predicate, time = weather.predicate, f" {weather.time.en}" if weather.time else ""
    no = " not" if weather.negative else ""
    if type(predicate) is Adjective:
        finite = {"past": "was", "future": "will"}.get(weather.tense, "is")
        return f"it {finite}{no}{' be' if finite == 'will' else ''} {predicate.en}{time}"
    assert type(predicate) is Verb
    if weather.tense == "future":
        return f"it will{no} {predicate.en}{time}"
    if weather.tense == "past":
        return f"it did not {predicate.en}{time}" if no else f"it {predicate.en_past}{time}"
    return f"it is{no} {form_present_participle(predicate.en)}{time}"


def realize_existence(existence: ExistentialClause) -> str:
    finite = inflect_be(existence.phrase, past=existence.tense == "past")
    if existence.is_question:
        return finish_sentence(f"{finite} there {realize_phrase(existence.phrase)} {existence.place.at}", "?")
    what = (
        f"no {realize_counted_noun(existence.phrase)}"
        if existence.negative
        else realize_phrase(existence.phrase)
    )
    return finish_sentence(f"there {finite} {what} {existence.place.at}", ".")
