"""English from a meaning. No contractions (do not, cannot), so that a sentence has one spelling.

A sentence tells all that its translation needs: `read` is past only beside a time that is.
"""

from functools import lru_cache

from manyheads.playground.lexicon import NUMBERS
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


# --- Phrases


def realize_entity(said: Entity, case: str = "subject") -> str:
    if type(said) is Phrase:
        return realize_phrase(said)
    if type(said) is Pronoun:
        return said.en if case == "subject" else said.en_object
    if type(said) is Coordination:
        return f"{realize_entity(said.first, case)} and {realize_entity(said.second, case)}"
    assert type(said) is Name
    return said.en


def realize_phrase(said: Phrase) -> str:
    text = realize_counted_noun(said)
    if said.possessor:
        text = f"{realize_possessive(said.possessor)} {text}"
    elif said.determiner == "the":
        text = "the " + text
    elif said.determiner == "this":
        text = ("these " if is_plural(said) else "this ") + text
    elif said.determiner == "a" and not said.count:
        text = add_indefinite_article(text)
    if said.relative:
        pronoun = "who" if said.noun.category in ("person", "kin") else "that"
        text = f"{text} {pronoun} {realize_clause(said.relative, said)}"
    return text


def realize_counted_noun(said: Phrase) -> str:
    noun = said.noun
    word = noun.plural if noun.plural and is_plural(said) else noun.en
    if said.adjective:
        word = f"{said.adjective.en} {word}"
    if not said.count:
        return word
    if noun.measure:
        return f"{NUMBERS[said.count]} {noun.measure[said.count > 1]} of {word}"
    return f"{NUMBERS[said.count]} {word}"


def realize_possessive(owner: Entity) -> str:
    if type(owner) is Pronoun:
        return owner.en_possessive
    text = realize_entity(owner)
    return text + ("'" if is_plural(owner) and text.endswith("s") else "'s")


# --- Verbs: an auxiliary, which questions move, and the rest


def inflect_be(subject: Entity, past: bool) -> str:
    many = is_plural(subject) or get_person(subject) == 2
    if past:
        return "were" if many else "was"
    return "are" if many else "am" if get_person(subject) == 1 else "is"


def is_third_singular(subject: Entity) -> bool:
    return get_person(subject) == 3 and not is_plural(subject)


def inflect_do(said: Clause, subject: Entity) -> str:
    return "did" if said.tense == "past" else "does" if is_third_singular(subject) else "do"


def inflect_verb(said: Clause, subject: Entity) -> tuple[str, str]:
    """The auxiliary, or nothing where English needs none; and the verb that follows it."""
    verb, modal = said.predicate, said.modal
    if type(verb) is not Verb:
        return (
            ("will", "be") if said.tense == "future" else (inflect_be(subject, past=said.tense == "past"), "")
        )
    needs_do = said.negative or (said.question and said.question != "who")
    if modal == "can":
        return ("could" if said.tense == "past" else "can"), verb.en
    if modal:
        start = "want" if modal == "want" else "have"
        if needs_do:
            return inflect_do(said, subject), f"{start} to {verb.en}"
        forms = {"want": ("want", "wants", "wanted"), "have": ("have", "has", "had")}[start]
        finite = forms[2] if said.tense == "past" else forms[is_third_singular(subject)]
        return "", f"{finite} to {verb.en}"
    if said.tense == "future":
        return "will", verb.en
    if said.tense == "progressive":
        return inflect_be(subject, past=False), form_present_participle(verb.en)
    if needs_do:
        return inflect_do(said, subject), verb.en
    if said.tense == "past":
        return "", form_past(verb)
    return "", form_third_person(verb.en) if is_third_singular(subject) else verb.en


def negate(auxiliary: str) -> str:
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def realize_complements(said: Clause) -> list[str]:
    """What follows the verb."""
    words: list[str] = []
    predicate = said.predicate
    if type(predicate) is Adjective:
        words.append(f"{said.degree.en} {predicate.en}" if said.degree else predicate.en)
    elif type(predicate) is Noun:
        assert said.subject is not None
        words.append(predicate.plural if is_plural(said.subject) else add_indefinite_article(predicate.en))
    if said.recipient:
        words.append(realize_entity(said.recipient, "object"))
    if said.object and type(said.object) is not Gap and said.question not in ("what", "whom"):
        words.append(realize_entity(said.object, "object"))
    if said.goal:
        words.append(said.goal.at if type(predicate) is Verb and predicate.takes_location else said.goal.to)
    if said.manner:
        words.append(said.manner.en)
    if said.means:
        words.append(("by " if said.means.category == "transport" else "with a ") + said.means.en)
    if said.companion:
        words.append("with " + realize_entity(said.companion, "object"))
    if said.place:
        words.append(said.place.at)
    if said.time and not said.fronted and not said.time.frequency:
        words.append(said.time.en)
    return words


def realize_clause(said: Clause, head: Entity | None = None) -> str:
    """A statement, or the relative clause of a head, with which the verb agrees if there is no subject."""
    missing = said.subject is None or type(said.subject) is Gap
    subject = head if missing else said.subject
    assert subject is not None
    auxiliary, verb = inflect_verb(said, subject)
    words = [] if missing else [realize_entity(subject)]
    if said.question == "who":
        words = ["who"]
    if auxiliary:
        words.append(negate(auxiliary) if said.negative else auxiliary)
    if said.time and said.time.frequency:
        words.append(said.time.en)
    if verb:
        words.append(verb)
    words += realize_complements(said)
    if said.time and said.fronted:
        words.insert(0, said.time.en)
    return " ".join(words)


def realize_question(said: Clause) -> str:
    if said.question == "who":
        return realize_clause(said)
    assert said.subject is not None
    auxiliary, verb = inflect_verb(said, said.subject)
    words = [] if said.question in (None, "yes") else [WH[said.question]]
    words += [auxiliary, realize_entity(said.subject)]
    if said.negative:
        words.append("not")
    if verb:
        words.append(verb)
    return " ".join(words + realize_complements(said))


# --- Sentences


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


def realize_main_clause(said: Clause) -> str:
    if said.question:
        return finish_sentence(realize_question(said), "?")
    if said.subject:
        return finish_sentence(realize_clause(said), ".")
    assert type(said.predicate) is Verb
    words = ["do not"] if said.negative else []
    return finish_sentence(" ".join([*words, said.predicate.en, *realize_complements(said)]), ".")


def realize_reason(sentence: CausalSentence) -> str:
    told = sentence.reason
    if type(told) is WeatherClause:
        return realize_weather(told)
    assert type(told) is Clause
    assert told.subject is not None
    text = realize_clause(told)
    if told.subject is sentence.result.subject and type(told.subject) is not Pronoun:
        named = realize_entity(told.subject)
        text = {"m": "he", "f": "she"}[get_sex(told.subject)] + text.removeprefix(named)
    return text


def realize_weather(said: WeatherClause) -> str:
    kind, time = said.predicate, f" {said.time.en}" if said.time else ""
    no = " not" if said.negative else ""
    if type(kind) is Adjective:
        finite = {"past": "was", "future": "will"}.get(said.tense, "is")
        return f"it {finite}{no}{' be' if finite == 'will' else ''} {kind.en}{time}"
    assert type(kind) is Verb
    if said.tense == "future":
        return f"it will{no} {kind.en}{time}"
    if said.tense == "past":
        return f"it did not {kind.en}{time}" if no else f"it {kind.en_past}{time}"
    return f"it is{no} {form_present_participle(kind.en)}{time}"


def realize_existence(said: ExistentialClause) -> str:
    finite = inflect_be(said.phrase, past=said.tense == "past")
    if said.is_question:
        return finish_sentence(f"{finite} there {realize_phrase(said.phrase)} {said.place.at}", "?")
    what = f"no {realize_counted_noun(said.phrase)}" if said.negative else realize_phrase(said.phrase)
    return finish_sentence(f"there {finite} {what} {said.place.at}", ".")
