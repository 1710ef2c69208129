"""Constituency trees of the English sentences, with the labels and tags of the Penn Treebank.

The fourth realizer: it says the same words as english.py, each under its part of speech, in constituents.
Where a phrase belongs is never in doubt here, for a sentence says all that its meaning does.
"""

from manyheads.playground.english import (
    WH,
    be_form,
    counted,
    indefinite,
    is_third_singular,
    third_person,
    verb_parts,
)
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
    sex_of,
)
from manyheads.text.trees import ROOT, Leaf, Tree

Node = Tree | Leaf

FINITE = {"am": "VBP", "are": "VBP", "is": "VBZ", "was": "VBD", "were": "VBD"}
FINITE |= {"do": "VBP", "does": "VBZ", "did": "VBD", "will": "MD", "can": "MD", "could": "MD"}
PARTICLES = ("up", "on", "off")  # of get up, turn on: what moves with the verb
ADVERBS = ("now", "soon", "often", "sometimes", "usually", "always")
TIME_TAGS = {"every": "DT", "this": "DT", "an": "DT", "the": "DT", "last": "JJ", "next": "JJ"}
TIME_TAGS |= {"days": "NNS", "weeks": "NNS", "o'clock": "RB"} | dict.fromkeys(NUMBERS[1:], "CD")


def tree(label: str, *children: Node | None) -> Tree:
    """A constituent of what there is."""
    return Tree(label, tuple(child for child in children if child is not None))


# --- Phrases


def noun_phrase(said: Entity, case: str = "subject") -> Tree:
    if type(said) is Phrase:
        return phrase(said)
    if type(said) is Pronoun:
        return tree("NP", Leaf("PRP", said.en if case == "subject" else said.en_object))
    if type(said) is Both:
        first, second = noun_phrase(said.first, case), noun_phrase(said.second, case)
        return tree("NP", first, Leaf("CC", "and"), second)
    assert type(said) is Name
    return tree("NP", Leaf("NNP", said.en))


def phrase(said: Phrase) -> Tree:
    """A determiner and what it determines; a measure and what it measures; a relative clause around both."""
    made = tree("NP", *determiner(said), *counted_words(said))
    if said.count and said.noun.measure:
        measured = tree("NP", *described(said))
        made = tree("NP", made, tree("PP", Leaf("IN", "of"), measured))
    if said.relative:
        pronoun = Leaf("WP", "who") if said.noun.kind in ("person", "kin") else Leaf("WDT", "that")
        told = tree("SBAR", tree("WHNP", pronoun), clause(said.relative, said))
        made = tree("NP", made, told)
    return made


def determiner(said: Phrase) -> list[Node]:
    if said.possessor:
        return [possessive(said.possessor)]
    if said.determiner == "the":
        return [Leaf("DT", "the")]
    if said.determiner == "this":
        return [Leaf("DT", "these" if is_plural(said) else "this")]
    if said.determiner == "a" and not said.count:
        return [Leaf("DT", indefinite(counted(said)).partition(" ")[0])]
    return []


def possessive(owner: Entity) -> Node:
    if type(owner) is Pronoun:
        return Leaf("PRP$", owner.en_possessive)
    inside = noun_phrase(owner)
    plural = is_plural(owner) and last_word(inside).endswith("s")
    return tree("NP", *inside.children, Leaf("POS", "'" if plural else "'s"))


def last_word(made: Node) -> str:
    while isinstance(made, Tree):
        made = made.children[-1]
    return made.word


def counted_words(said: Phrase) -> list[Leaf]:
    if not said.count:
        return described(said)
    number = Leaf("CD", NUMBERS[said.count])
    if said.noun.measure:
        return [number, Leaf("NNS" if said.count > 1 else "NN", said.noun.measure[said.count > 1])]
    return [number, *described(said)]


def described(said: Phrase) -> list[Leaf]:
    """The noun, with its adjective."""
    many = bool(said.noun.plural) and is_plural(said)
    word = said.noun.plural if many else said.noun.en
    adjective = [Leaf("JJ", said.adjective.en)] if said.adjective else []
    return [*adjective, *noun_words(word, many)]


def noun_words(word: str, many: bool) -> list[Leaf]:
    *before, last = word.split()
    tag = "NNP" if last[0].isupper() else "NNS" if many else "NN"
    return [*(Leaf("NN", one) for one in before), Leaf(tag, last)]


def place(text: str) -> Tree:
    """In the garden, to Seoul, at home; but home alone is an adverb."""
    if text == "home":
        return tree("ADVP", Leaf("RB", "home"))
    preposition, *rest = text.split()
    article = [Leaf("DT", rest.pop(0))] if rest[0] == "the" else []
    inside = tree("NP", *article, *noun_words(" ".join(rest), many=False))
    return tree("PP", Leaf("TO" if preposition == "to" else "IN", preposition), inside)


def time(text: str) -> Tree:
    """Yesterday, two days ago, every Friday, at five o'clock, tomorrow at five o'clock."""
    first, *rest = words = text.split()
    if first in ADVERBS:
        return tree("ADVP", Leaf("RB", first))
    if words[-1] == "ago":
        return tree("ADVP", tree("NP", *map(time_word, words[:-1])), Leaf("RB", "ago"))
    if first in ("at", "in", "on"):
        return tree("PP", Leaf("IN", first), tree("NP", *map(time_word, rest)))
    if "at" in words:
        day, hour = text.split(" at ")
        return tree("NP", time(day), time(f"at {hour}"))
    return tree("NP", *map(time_word, words))


def time_word(word: str) -> Leaf:
    return Leaf(TIME_TAGS.get(word, "NNP" if word[0].isupper() else "NN"), word)


# --- Verbs


def verb_phrase(said: Clause, subject: Entity, *more: Tree) -> list[Node]:
    """What follows the subject: an adverb before the verb if there is one, and the rest; `more` ends it."""
    auxiliary, verb = verb_parts(said, subject)
    often = time(said.time.en) if said.time and said.time.frequency else None
    after = [*complements(said), *more]
    if not auxiliary:
        return [*([often] if often else []), main_verb(verb, finite_tag(said, subject), after)]
    no = Leaf("RB", "not") if said.negative else None
    inner = [main_verb(verb, inner_tag(said, auxiliary), after)] if verb else after
    return [tree("VP", Leaf(FINITE[auxiliary], auxiliary), no, often, *inner)]


def finite_tag(said: Clause, subject: Entity) -> str:
    return "VBD" if said.tense == "past" else "VBZ" if is_third_singular(subject) else "VBP"


def inner_tag(said: Clause, auxiliary: str) -> str:
    going_on = said.tense == "progressive" and FINITE[auxiliary] in ("VBP", "VBZ") and auxiliary[:2] != "do"
    return "VBG" if going_on else "VB"


def main_verb(verb: str, tag: str, after: list[Node]) -> Tree:
    """Eat bread; want to eat bread; wait for Mina; turn on the lamp."""
    first, *rest = verb.split()
    if rest[:1] == ["to"]:
        wanted = tree("VP", Leaf("TO", "to"), main_verb(" ".join(rest[1:]), "VB", after))
        return tree("VP", Leaf(tag, first), tree("S", wanted))
    if not rest:
        return tree("VP", Leaf(tag, first), *after)
    if rest[0] in PARTICLES:
        return tree("VP", Leaf(tag, first), tree("PRT", Leaf("RP", rest[0])), *after)
    if rest[0] == "asleep":
        return tree("VP", Leaf(tag, first), tree("ADJP", Leaf("JJ", rest[0])), *after)
    is_object = bool(after) and isinstance(after[0], Tree) and after[0].label == "NP"
    inside, left = (after[:1], after[1:]) if is_object else ([], after)
    return tree("VP", Leaf(tag, first), tree("PP", Leaf("IN", rest[0]), *inside), *left)


def complements(said: Clause) -> list[Node]:
    """What follows the verb, in the order of english.complements."""
    made: list[Node] = []
    predicate = said.predicate
    if type(predicate) is Adjective:
        degree = Leaf("RB", said.degree.en) if said.degree else None
        made.append(tree("ADJP", degree, Leaf("JJ", predicate.en)))
    elif type(predicate) is Noun:
        assert said.subject is not None
        many = is_plural(said.subject)
        made.append(phrase(Phrase(predicate, "" if many else "a", plural=many)))
    if said.recipient:
        made.append(noun_phrase(said.recipient, "object"))
    if said.object and type(said.object) is not Gap and said.asked not in ("what", "whom"):
        made.append(noun_phrase(said.object, "object"))
    if said.goal:
        stays = type(predicate) is Verb and predicate.stays
        made.append(place(said.goal.at if stays else said.goal.to))
    return made + circumstances(said)


def circumstances(said: Clause) -> list[Node]:
    """How, by what, with whom, where and when."""
    made: list[Node] = []
    if said.manner:
        made.append(tree("ADVP", Leaf("RB", said.manner.en)))
    if said.means:
        bare = said.means.kind == "transport"
        article = None if bare else Leaf("DT", "a")
        inside = tree("NP", article, *noun_words(said.means.en, many=False))
        made.append(tree("PP", Leaf("IN", "by" if bare else "with"), inside))
    if said.companion:
        made.append(tree("PP", Leaf("IN", "with"), noun_phrase(said.companion, "object")))
    if said.place:
        made.append(place(said.place.at))
    if said.time and not said.fronted and not said.time.frequency:
        made.append(time(said.time.en))
    return made


# --- Clauses


def clause(said: Clause, head: Entity | None = None, *more: Tree, named: Tree | None = None) -> Tree:
    """A statement, or the relative clause of a head. `named` stands for the subject, `more` ends the verb."""
    missing = said.subject is None or type(said.subject) is Gap
    subject = head if missing else said.subject
    assert subject is not None
    who = None if missing else named or noun_phrase(subject)
    fronted = time(said.time.en) if said.time and said.fronted else None
    return tree("S", fronted, who, *verb_phrase(said, subject, *more))


def question(said: Clause) -> Tree:
    assert said.subject is not None
    if said.asked == "who":
        asked = tree("WHNP", Leaf("WP", "who"))
        return tree("SBARQ", asked, tree("SQ", *verb_phrase(said, said.subject)))
    auxiliary, verb = verb_parts(said, said.subject)
    after = complements(said)
    inner = [main_verb(verb, inner_tag(said, auxiliary), after)] if verb else after
    no = Leaf("RB", "not") if said.negative else None
    body = tree("SQ", Leaf(FINITE[auxiliary], auxiliary), noun_phrase(said.subject), no, *inner)
    if said.asked in (None, "yes"):
        return body
    assert said.asked is not None
    thing = said.asked in ("what", "whom")
    word = Leaf("WP" if thing else "WRB", WH[said.asked])
    return tree("SBARQ", tree("WHNP" if thing else "WHADVP", word), body)


def command(said: Clause) -> Tree:
    assert type(said.predicate) is Verb
    told = main_verb(said.predicate.en, "VB", complements(said))
    return tree("S", tree("VP", Leaf("VB", "do"), Leaf("RB", "not"), told) if said.negative else told)


def reason(sentence: Because) -> Tree:
    told = sentence.reason
    if type(told) is Weather:
        return weather(told)
    assert type(told) is Clause
    assert told.subject is not None
    if told.subject is sentence.result.subject and type(told.subject) is not Pronoun:
        again = Leaf("PRP", {"m": "he", "f": "she"}[sex_of(told.subject)])
        return clause(told, named=tree("NP", again))
    return clause(told)


def weather(said: Weather) -> Tree:
    kind, no = said.kind, Leaf("RB", "not") if said.negative else None
    when = time(said.time.en) if said.time else None
    if type(kind) is Adjective:
        state: Node = tree("ADJP", Leaf("JJ", kind.en))
        if said.tense == "future":
            later = tree("VP", Leaf("VB", "be"), state, when)
            return it(tree("VP", Leaf("MD", "will"), no, later))
        is_past = said.tense == "past"
        return it(tree("VP", Leaf("VBD" if is_past else "VBZ", "was" if is_past else "is"), no, state, when))
    assert type(kind) is Verb
    if said.tense == "future":
        return it(tree("VP", Leaf("MD", "will"), no, tree("VP", Leaf("VB", kind.en), when)))
    if said.tense == "past" and no:
        return it(tree("VP", Leaf("VBD", "did"), no, tree("VP", Leaf("VB", kind.en), when)))
    if said.tense == "past":
        return it(tree("VP", Leaf("VBD", kind.en_past), when))
    return it(tree("VP", Leaf("VBZ", "is"), no, tree("VP", Leaf("VBG", f"{kind.en}ing"), when)))


def it(told: Tree) -> Tree:
    return tree("S", tree("NP", Leaf("PRP", "it")), told)


def existence(said: Existence) -> Tree:
    finite = be_form(said.what, past=said.tense == "past")
    what = tree("NP", Leaf("DT", "no"), *counted_words(said.what)) if said.negative else phrase(said.what)
    there, where = tree("NP", Leaf("EX", "there")), place(said.place.at)
    verb = Leaf(FINITE[finite], finite)
    if said.asked:
        return tree("SQ", verb, there, what, where)
    return tree("S", there, tree("VP", verb, what, where))


# --- Sentences


def english_tree(sentence: Sentence) -> Tree:
    """The tree of what english.english says."""
    if type(sentence) is Clause:
        if sentence.asked:
            return finished(question(sentence), "?")
        return finished(clause(sentence) if sentence.subject else command(sentence), ".")
    if type(sentence) is Joined:
        first, second = clause(sentence.first), clause(sentence.second)
        both = tree("S", first, Leaf(",", ","), Leaf("CC", sentence.conjunction), second)
        return finished(both, ".")
    if type(sentence) is Because:
        why = tree("SBAR", Leaf("IN", "because"), reason(sentence))
        return finished(clause(sentence.result, None, why), ".")
    if type(sentence) is Reported:
        return finished(reported(sentence), ".")
    if type(sentence) is Weather:
        return finished(weather(sentence), ".")
    assert type(sentence) is Existence
    return finished(existence(sentence), "?" if sentence.asked else ".")


def reported(sentence: Reported) -> Tree:
    third = is_third_singular(sentence.speaker)
    verb = Leaf("VBZ", third_person(sentence.verb.en)) if third else Leaf("VBP", sentence.verb.en)
    told = tree("SBAR", Leaf("IN", "that"), clause(sentence.content))
    return tree("S", noun_phrase(sentence.speaker), tree("VP", verb, told))


def finished(made: Tree, mark: str) -> Tree:
    """With a capital at its head and the mark at its end."""
    return tree(ROOT, tree(made.label, *capitalized(made).children, Leaf(".", mark)))


def capitalized(made: Tree) -> Tree:
    first, *rest = made.children
    if isinstance(first, Leaf):
        return tree(made.label, Leaf(first.tag, first.word[0].upper() + first.word[1:]), *rest)
    return tree(made.label, capitalized(first), *rest)
