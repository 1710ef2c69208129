"""English from a meaning. No contractions (do not, cannot), so that a sentence has one spelling.

A sentence tells all that its translation needs: `read` is past only beside a time that is.
"""

from functools import lru_cache

from manyheads.playground.lexicon import NUMBERS
from manyheads.playground.meaning import (
    Adjective,
    Because,
    Both,
    Clause,
    Entity,
    Existence,
    Gap,
    Joined,
    Name,
    Noun,
    Phrase,
    Pronoun,
    Reported,
    Sentence,
    Verb,
    Weather,
    is_plural,
    person_of,
    sex_of,
)

DOUBLING = ("run", "swim", "get", "hug")
SOUNDED_AS_CONSONANT = ("university", "useful", "uniform")
SOUNDED_AS_VOWEL = ("honest",)
WH = {"who": "who", "whom": "who", "what": "what", "where": "where", "when": "when", "why": "why"}


@lru_cache(maxsize=4096)
def third_person(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first == "have":
        return "has"
    if first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ies"
    else:
        first += "es" if first.endswith(("s", "x", "ch", "sh", "go")) else "s"
    return first + space + rest


@lru_cache(maxsize=4096)
def present_participle(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first.endswith("e") and not first.endswith("ee"):
        first = first[:-1]
    elif first in DOUBLING:
        first += first[-1]
    return first + "ing" + space + rest


def past(verb: Verb) -> str:
    return verb.en_past + verb.en[len(verb.en.partition(" ")[0]) :]


def indefinite(words: str) -> str:
    vowel = words[0] in "aeiou" and not words.startswith(SOUNDED_AS_CONSONANT)
    return ("an " if vowel or words.startswith(SOUNDED_AS_VOWEL) else "a ") + words


# --- Phrases


def entity(said: Entity, case: str = "subject") -> str:
    if type(said) is Phrase:
        return phrase(said)
    if type(said) is Pronoun:
        return said.en if case == "subject" else said.en_object
    if type(said) is Both:
        return f"{entity(said.first, case)} and {entity(said.second, case)}"
    assert type(said) is Name
    return said.en


def phrase(said: Phrase) -> str:
    text = counted(said)
    if said.possessor:
        text = f"{possessive(said.possessor)} {text}"
    elif said.determiner == "the":
        text = "the " + text
    elif said.determiner == "this":
        text = ("these " if is_plural(said) else "this ") + text
    elif said.determiner == "a" and not said.count:
        text = indefinite(text)
    if said.relative:
        pronoun = "who" if said.noun.kind in ("person", "kin") else "that"
        text = f"{text} {pronoun} {clause(said.relative, said)}"
    return text


def counted(said: Phrase) -> str:
    noun = said.noun
    word = noun.plural if noun.plural and is_plural(said) else noun.en
    if said.adjective:
        word = f"{said.adjective.en} {word}"
    if not said.count:
        return word
    if noun.measure:
        return f"{NUMBERS[said.count]} {noun.measure[said.count > 1]} of {word}"
    return f"{NUMBERS[said.count]} {word}"


def possessive(owner: Entity) -> str:
    if type(owner) is Pronoun:
        return owner.en_possessive
    text = entity(owner)
    return text + ("'" if is_plural(owner) and text.endswith("s") else "'s")


# --- Verbs: an auxiliary, which questions move, and the rest


def be_form(subject: Entity, past: bool) -> str:
    many = is_plural(subject) or person_of(subject) == 2
    if past:
        return "were" if many else "was"
    return "are" if many else "am" if person_of(subject) == 1 else "is"


def is_third_singular(subject: Entity) -> bool:
    return person_of(subject) == 3 and not is_plural(subject)


def do(said: Clause, subject: Entity) -> str:
    return "did" if said.tense == "past" else "does" if is_third_singular(subject) else "do"


def verb_parts(said: Clause, subject: Entity) -> tuple[str, str]:
    """The auxiliary, or nothing where English needs none; and the verb that follows it."""
    verb, modal = said.predicate, said.modal
    if type(verb) is not Verb:
        return ("will", "be") if said.tense == "future" else (be_form(subject, past=said.tense == "past"), "")
    needs_do = said.negative or (said.asked and said.asked != "who")
    if modal == "can":
        return ("could" if said.tense == "past" else "can"), verb.en
    if modal:
        start = "want" if modal == "want" else "have"
        if needs_do:
            return do(said, subject), f"{start} to {verb.en}"
        forms = {"want": ("want", "wants", "wanted"), "have": ("have", "has", "had")}[start]
        finite = forms[2] if said.tense == "past" else forms[is_third_singular(subject)]
        return "", f"{finite} to {verb.en}"
    if said.tense == "future":
        return "will", verb.en
    if said.tense == "progressive":
        return be_form(subject, past=False), present_participle(verb.en)
    if needs_do:
        return do(said, subject), verb.en
    if said.tense == "past":
        return "", past(verb)
    return "", third_person(verb.en) if is_third_singular(subject) else verb.en


def negated(auxiliary: str) -> str:
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def complements(said: Clause) -> list[str]:
    """What follows the verb."""
    words: list[str] = []
    predicate = said.predicate
    if type(predicate) is Adjective:
        words.append(f"{said.degree.en} {predicate.en}" if said.degree else predicate.en)
    elif type(predicate) is Noun:
        assert said.subject is not None
        words.append(predicate.plural if is_plural(said.subject) else indefinite(predicate.en))
    if said.recipient:
        words.append(entity(said.recipient, "object"))
    if said.object and type(said.object) is not Gap and said.asked not in ("what", "whom"):
        words.append(entity(said.object, "object"))
    if said.goal:
        words.append(said.goal.at if type(predicate) is Verb and predicate.stays else said.goal.to)
    if said.manner:
        words.append(said.manner.en)
    if said.means:
        words.append(("by " if said.means.kind == "transport" else "with a ") + said.means.en)
    if said.companion:
        words.append("with " + entity(said.companion, "object"))
    if said.place:
        words.append(said.place.at)
    if said.time and not said.fronted and not said.time.frequency:
        words.append(said.time.en)
    return words


def clause(said: Clause, head: Entity | None = None) -> str:
    """A statement, or the relative clause of a head, with which the verb agrees if there is no subject."""
    missing = said.subject is None or type(said.subject) is Gap
    subject = head if missing else said.subject
    assert subject is not None
    auxiliary, verb = verb_parts(said, subject)
    words = [] if missing else [entity(subject)]
    if said.asked == "who":
        words = ["who"]
    if auxiliary:
        words.append(negated(auxiliary) if said.negative else auxiliary)
    if said.time and said.time.frequency:
        words.append(said.time.en)
    if verb:
        words.append(verb)
    words += complements(said)
    if said.time and said.fronted:
        words.insert(0, said.time.en)
    return " ".join(words)


def question(said: Clause) -> str:
    if said.asked == "who":
        return clause(said)
    assert said.subject is not None
    auxiliary, verb = verb_parts(said, said.subject)
    words = [] if said.asked in (None, "yes") else [WH[said.asked]]
    words += [auxiliary, entity(said.subject)]
    if said.negative:
        words.append("not")
    if verb:
        words.append(verb)
    return " ".join(words + complements(said))


# --- Sentences


def finished(text: str, mark: str) -> str:
    return text[0].upper() + text[1:] + mark


def english(sentence: Sentence) -> str:
    if type(sentence) is Clause:
        return main(sentence)
    if type(sentence) is Joined:
        return finished(f"{clause(sentence.first)}, {sentence.conjunction} {clause(sentence.second)}", ".")
    if type(sentence) is Because:
        return finished(f"{clause(sentence.result)} because {reason(sentence)}", ".")
    if type(sentence) is Reported:
        verb = third_person(sentence.verb.en) if is_third_singular(sentence.speaker) else sentence.verb.en
        return finished(f"{entity(sentence.speaker)} {verb} that {clause(sentence.content)}", ".")
    if type(sentence) is Weather:
        return finished(weather(sentence), ".")
    assert type(sentence) is Existence
    return existence(sentence)


def main(said: Clause) -> str:
    if said.asked:
        return finished(question(said), "?")
    if said.subject:
        return finished(clause(said), ".")
    assert type(said.predicate) is Verb
    words = ["do not"] if said.negative else []
    return finished(" ".join([*words, said.predicate.en, *complements(said)]), ".")


def reason(sentence: Because) -> str:
    told = sentence.reason
    if type(told) is Weather:
        return weather(told)
    assert type(told) is Clause
    assert told.subject is not None
    text = clause(told)
    if told.subject is sentence.result.subject and type(told.subject) is not Pronoun:
        named = entity(told.subject)
        text = {"m": "he", "f": "she"}[sex_of(told.subject)] + text.removeprefix(named)
    return text


def weather(said: Weather) -> str:
    kind, time = said.kind, f" {said.time.en}" if said.time else ""
    no = " not" if said.negative else ""
    if type(kind) is Adjective:
        finite = {"past": "was", "future": "will"}.get(said.tense, "is")
        return f"it {finite}{no}{' be' if finite == 'will' else ''} {kind.en}{time}"
    assert type(kind) is Verb
    if said.tense == "future":
        return f"it will{no} {kind.en}{time}"
    if said.tense == "past":
        return f"it did not {kind.en}{time}" if no else f"it {kind.en_past}{time}"
    return f"it is{no} {present_participle(kind.en)}{time}"


def existence(said: Existence) -> str:
    finite = be_form(said.what, past=said.tense == "past")
    if said.asked:
        return finished(f"{finite} there {phrase(said.what)} {said.place.at}", "?")
    what = f"no {counted(said.what)}" if said.negative else phrase(said.what)
    return finished(f"there {finite} {what} {said.place.at}", ".")
