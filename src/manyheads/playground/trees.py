"""Constituency trees of the English sentences, with the labels and tags of the Penn Treebank.

The fourth realizer: it says the same words as english.py, each under its part of speech, in constituents.
Where a phrase belongs is never in doubt here, for a sentence says all that its meaning does.
"""

from manyheads.playground.english import (
    WH,
    add_indefinite_article,
    form_third_person,
    inflect_be,
    inflect_verb,
    is_third_singular,
    realize_counted_noun,
)
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
    get_sex,
    is_plural,
)
from manyheads.text.trees import ROOT, Leaf, Tree

Node = Tree | Leaf

FINITE_TAGS = {"am": "VBP", "are": "VBP", "is": "VBZ", "was": "VBD", "were": "VBD"}
FINITE_TAGS |= {"do": "VBP", "does": "VBZ", "did": "VBD", "will": "MD", "can": "MD", "could": "MD"}
PARTICLES = ("up", "on", "off")  # of get up, turn on: what moves with the verb
ADVERBS = ("now", "soon", "often", "sometimes", "usually", "always")
TIME_TAGS = {"every": "DT", "this": "DT", "an": "DT", "the": "DT", "last": "JJ", "next": "JJ"}
TIME_TAGS |= {"days": "NNS", "weeks": "NNS", "o'clock": "RB"} | dict.fromkeys(NUMBERS[1:], "CD")


def make_tree(label: str, *children: Node | None) -> Tree:
    """A constituent of what there is."""
    return Tree(label, tuple(child for child in children if child is not None))


# --- Phrases


def build_noun_phrase(said: Entity, case: str = "subject") -> Tree:
    if type(said) is Phrase:
        return build_phrase(said)
    if type(said) is Pronoun:
        return make_tree("NP", Leaf("PRP", said.en if case == "subject" else said.en_object))
    if type(said) is Coordination:
        first, second = build_noun_phrase(said.first, case), build_noun_phrase(said.second, case)
        return make_tree("NP", first, Leaf("CC", "and"), second)
    assert type(said) is Name
    return make_tree("NP", Leaf("NNP", said.en))


def build_phrase(said: Phrase) -> Tree:
    """A determiner and what it determines; a measure and what it measures; a relative clause around both."""
    made = make_tree("NP", *build_determiner(said), *build_counted_noun(said))
    if said.count and said.noun.measure:
        measured = make_tree("NP", *build_described_noun(said))
        made = make_tree("NP", made, make_tree("PP", Leaf("IN", "of"), measured))
    if said.relative:
        pronoun = Leaf("WP", "who") if said.noun.category in ("person", "kin") else Leaf("WDT", "that")
        told = make_tree("SBAR", make_tree("WHNP", pronoun), build_clause(said.relative, said))
        made = make_tree("NP", made, told)
    return made


def build_determiner(said: Phrase) -> list[Node]:
    if said.possessor:
        return [build_possessive(said.possessor)]
    if said.determiner == "the":
        return [Leaf("DT", "the")]
    if said.determiner == "this":
        return [Leaf("DT", "these" if is_plural(said) else "this")]
    if said.determiner == "a" and not said.count:
        return [Leaf("DT", add_indefinite_article(realize_counted_noun(said)).partition(" ")[0])]
    return []


def build_possessive(owner: Entity) -> Node:
    if type(owner) is Pronoun:
        return Leaf("PRP$", owner.en_possessive)
    inside = build_noun_phrase(owner)
    plural = is_plural(owner) and get_last_word(inside).endswith("s")
    return make_tree("NP", *inside.children, Leaf("POS", "'" if plural else "'s"))


def get_last_word(made: Node) -> str:
    while isinstance(made, Tree):
        made = made.children[-1]
    return made.word


def build_counted_noun(said: Phrase) -> list[Leaf]:
    if not said.count:
        return build_described_noun(said)
    number = Leaf("CD", NUMBERS[said.count])
    if said.noun.measure:
        return [number, Leaf("NNS" if said.count > 1 else "NN", said.noun.measure[said.count > 1])]
    return [number, *build_described_noun(said)]


def build_described_noun(said: Phrase) -> list[Leaf]:
    """The noun, with its adjective."""
    many = bool(said.noun.plural) and is_plural(said)
    word = said.noun.plural if many else said.noun.en
    adjective = [Leaf("JJ", said.adjective.en)] if said.adjective else []
    return [*adjective, *build_noun_leaves(word, many)]


def build_noun_leaves(word: str, many: bool) -> list[Leaf]:
    *before, last = word.split()
    tag = "NNP" if last[0].isupper() else "NNS" if many else "NN"
    return [*(Leaf("NN", one) for one in before), Leaf(tag, last)]


def build_place(text: str) -> Tree:
    """In the garden, to Seoul, at home; but home alone is an adverb."""
    if text == "home":
        return make_tree("ADVP", Leaf("RB", "home"))
    preposition, *rest = text.split()
    article = [Leaf("DT", rest.pop(0))] if rest[0] == "the" else []
    inside = make_tree("NP", *article, *build_noun_leaves(" ".join(rest), many=False))
    return make_tree("PP", Leaf("TO" if preposition == "to" else "IN", preposition), inside)


def build_time(text: str) -> Tree:
    """Yesterday, two days ago, every Friday, at five o'clock, tomorrow at five o'clock."""
    first, *rest = words = text.split()
    if first in ADVERBS:
        return make_tree("ADVP", Leaf("RB", first))
    if words[-1] == "ago":
        return make_tree("ADVP", make_tree("NP", *map(build_time_leaf, words[:-1])), Leaf("RB", "ago"))
    if first in ("at", "in", "on"):
        return make_tree("PP", Leaf("IN", first), make_tree("NP", *map(build_time_leaf, rest)))
    if "at" in words:
        day, hour = text.split(" at ")
        return make_tree("NP", build_time(day), build_time(f"at {hour}"))
    return make_tree("NP", *map(build_time_leaf, words))


def build_time_leaf(word: str) -> Leaf:
    return Leaf(TIME_TAGS.get(word, "NNP" if word[0].isupper() else "NN"), word)


# --- Verbs


def build_verb_phrase(said: Clause, subject: Entity, *more: Tree) -> list[Node]:
    """What follows the subject: an adverb before the verb if there is one, and the rest; `more` ends it."""
    auxiliary, verb = inflect_verb(said, subject)
    often = build_time(said.time.en) if said.time and said.time.frequency else None
    after = [*build_complements(said), *more]
    if not auxiliary:
        return [*([often] if often else []), build_main_verb(verb, choose_finite_tag(said, subject), after)]
    no = Leaf("RB", "not") if said.negative else None
    inner = [build_main_verb(verb, choose_inner_tag(said, auxiliary), after)] if verb else after
    return [make_tree("VP", Leaf(FINITE_TAGS[auxiliary], auxiliary), no, often, *inner)]


def choose_finite_tag(said: Clause, subject: Entity) -> str:
    return "VBD" if said.tense == "past" else "VBZ" if is_third_singular(subject) else "VBP"


def choose_inner_tag(said: Clause, auxiliary: str) -> str:
    going_on = (
        said.tense == "progressive" and FINITE_TAGS[auxiliary] in ("VBP", "VBZ") and auxiliary[:2] != "do"
    )
    return "VBG" if going_on else "VB"


def build_main_verb(verb: str, tag: str, after: list[Node]) -> Tree:
    """Eat bread; want to eat bread; wait for Mina; turn on the lamp."""
    first, *rest = verb.split()
    if rest[:1] == ["to"]:
        wanted = make_tree("VP", Leaf("TO", "to"), build_main_verb(" ".join(rest[1:]), "VB", after))
        return make_tree("VP", Leaf(tag, first), make_tree("S", wanted))
    if not rest:
        return make_tree("VP", Leaf(tag, first), *after)
    if rest[0] in PARTICLES:
        return make_tree("VP", Leaf(tag, first), make_tree("PRT", Leaf("RP", rest[0])), *after)
    if rest[0] == "asleep":
        return make_tree("VP", Leaf(tag, first), make_tree("ADJP", Leaf("JJ", rest[0])), *after)
    is_object = bool(after) and isinstance(after[0], Tree) and after[0].label == "NP"
    inside, left = (after[:1], after[1:]) if is_object else ([], after)
    return make_tree("VP", Leaf(tag, first), make_tree("PP", Leaf("IN", rest[0]), *inside), *left)


def build_complements(said: Clause) -> list[Node]:
    """What follows the verb, in the order of english.complements."""
    made: list[Node] = []
    predicate = said.predicate
    if type(predicate) is Adjective:
        degree = Leaf("RB", said.degree.en) if said.degree else None
        made.append(make_tree("ADJP", degree, Leaf("JJ", predicate.en)))
    elif type(predicate) is Noun:
        assert said.subject is not None
        many = is_plural(said.subject)
        made.append(build_phrase(Phrase(predicate, "" if many else "a", plural=many)))
    if said.recipient:
        made.append(build_noun_phrase(said.recipient, "object"))
    if said.object and type(said.object) is not Gap and said.question not in ("what", "whom"):
        made.append(build_noun_phrase(said.object, "object"))
    if said.goal:
        stays = type(predicate) is Verb and predicate.takes_location
        made.append(build_place(said.goal.at if stays else said.goal.to))
    return made + build_adjuncts(said)


def build_adjuncts(said: Clause) -> list[Node]:
    """How, by what, with whom, where and when."""
    made: list[Node] = []
    if said.manner:
        made.append(make_tree("ADVP", Leaf("RB", said.manner.en)))
    if said.means:
        bare = said.means.category == "transport"
        article = None if bare else Leaf("DT", "a")
        inside = make_tree("NP", article, *build_noun_leaves(said.means.en, many=False))
        made.append(make_tree("PP", Leaf("IN", "by" if bare else "with"), inside))
    if said.companion:
        made.append(make_tree("PP", Leaf("IN", "with"), build_noun_phrase(said.companion, "object")))
    if said.place:
        made.append(build_place(said.place.at))
    if said.time and not said.fronted and not said.time.frequency:
        made.append(build_time(said.time.en))
    return made


# --- Clauses


def build_clause(said: Clause, head: Entity | None = None, *more: Tree, named: Tree | None = None) -> Tree:
    """A statement, or the relative clause of a head. `named` stands for the subject, `more` ends the verb."""
    missing = said.subject is None or type(said.subject) is Gap
    subject = head if missing else said.subject
    assert subject is not None
    who = None if missing else named or build_noun_phrase(subject)
    fronted = build_time(said.time.en) if said.time and said.fronted else None
    return make_tree("S", fronted, who, *build_verb_phrase(said, subject, *more))


def build_question(said: Clause) -> Tree:
    assert said.subject is not None
    if said.question == "who":
        asked = make_tree("WHNP", Leaf("WP", "who"))
        return make_tree("SBARQ", asked, make_tree("SQ", *build_verb_phrase(said, said.subject)))
    auxiliary, verb = inflect_verb(said, said.subject)
    after = build_complements(said)
    inner = [build_main_verb(verb, choose_inner_tag(said, auxiliary), after)] if verb else after
    no = Leaf("RB", "not") if said.negative else None
    body = make_tree(
        "SQ", Leaf(FINITE_TAGS[auxiliary], auxiliary), build_noun_phrase(said.subject), no, *inner
    )
    if said.question in (None, "yes"):
        return body
    assert said.question is not None
    thing = said.question in ("what", "whom")
    word = Leaf("WP" if thing else "WRB", WH[said.question])
    return make_tree("SBARQ", make_tree("WHNP" if thing else "WHADVP", word), body)


def build_command(said: Clause) -> Tree:
    assert type(said.predicate) is Verb
    told = build_main_verb(said.predicate.en, "VB", build_complements(said))
    return make_tree(
        "S", make_tree("VP", Leaf("VB", "do"), Leaf("RB", "not"), told) if said.negative else told
    )


def build_reason(sentence: CausalSentence) -> Tree:
    told = sentence.reason
    if type(told) is WeatherClause:
        return build_weather(told)
    assert type(told) is Clause
    assert told.subject is not None
    if told.subject is sentence.result.subject and type(told.subject) is not Pronoun:
        again = Leaf("PRP", {"m": "he", "f": "she"}[get_sex(told.subject)])
        return build_clause(told, named=make_tree("NP", again))
    return build_clause(told)


def build_weather(said: WeatherClause) -> Tree:
    kind, no = said.predicate, Leaf("RB", "not") if said.negative else None
    when = build_time(said.time.en) if said.time else None
    if type(kind) is Adjective:
        state: Node = make_tree("ADJP", Leaf("JJ", kind.en))
        if said.tense == "future":
            later = make_tree("VP", Leaf("VB", "be"), state, when)
            return build_it_clause(make_tree("VP", Leaf("MD", "will"), no, later))
        is_past = said.tense == "past"
        return build_it_clause(
            make_tree("VP", Leaf("VBD" if is_past else "VBZ", "was" if is_past else "is"), no, state, when)
        )
    assert type(kind) is Verb
    if said.tense == "future":
        return build_it_clause(
            make_tree("VP", Leaf("MD", "will"), no, make_tree("VP", Leaf("VB", kind.en), when))
        )
    if said.tense == "past" and no:
        return build_it_clause(
            make_tree("VP", Leaf("VBD", "did"), no, make_tree("VP", Leaf("VB", kind.en), when))
        )
    if said.tense == "past":
        return build_it_clause(make_tree("VP", Leaf("VBD", kind.en_past), when))
    return build_it_clause(
        make_tree("VP", Leaf("VBZ", "is"), no, make_tree("VP", Leaf("VBG", f"{kind.en}ing"), when))
    )


def build_it_clause(told: Tree) -> Tree:
    return make_tree("S", make_tree("NP", Leaf("PRP", "it")), told)


def build_existence(said: ExistentialClause) -> Tree:
    finite = inflect_be(said.phrase, past=said.tense == "past")
    what = (
        make_tree("NP", Leaf("DT", "no"), *build_counted_noun(said.phrase))
        if said.negative
        else build_phrase(said.phrase)
    )
    there, where = make_tree("NP", Leaf("EX", "there")), build_place(said.place.at)
    verb = Leaf(FINITE_TAGS[finite], finite)
    if said.is_question:
        return make_tree("SQ", verb, there, what, where)
    return make_tree("S", there, make_tree("VP", verb, what, where))


# --- Sentences


def build_english_tree(sentence: Sentence) -> Tree:
    """The tree of what english.english says."""
    if type(sentence) is Clause:
        if sentence.question:
            return finish_tree(build_question(sentence), "?")
        return finish_tree(build_clause(sentence) if sentence.subject else build_command(sentence), ".")
    if type(sentence) is CompoundSentence:
        first, second = build_clause(sentence.first), build_clause(sentence.second)
        both = make_tree("S", first, Leaf(",", ","), Leaf("CC", sentence.conjunction), second)
        return finish_tree(both, ".")
    if type(sentence) is CausalSentence:
        why = make_tree("SBAR", Leaf("IN", "because"), build_reason(sentence))
        return finish_tree(build_clause(sentence.result, None, why), ".")
    if type(sentence) is ReportedSpeech:
        return finish_tree(build_reported(sentence), ".")
    if type(sentence) is WeatherClause:
        return finish_tree(build_weather(sentence), ".")
    assert type(sentence) is ExistentialClause
    return finish_tree(build_existence(sentence), "?" if sentence.is_question else ".")


def build_reported(sentence: ReportedSpeech) -> Tree:
    third = is_third_singular(sentence.speaker)
    verb = Leaf("VBZ", form_third_person(sentence.verb.en)) if third else Leaf("VBP", sentence.verb.en)
    told = make_tree("SBAR", Leaf("IN", "that"), build_clause(sentence.content))
    return make_tree("S", build_noun_phrase(sentence.speaker), make_tree("VP", verb, told))


def finish_tree(made: Tree, mark: str) -> Tree:
    """With a capital at its head and the mark at its end."""
    return make_tree(ROOT, make_tree(made.label, *capitalize_tree(made).children, Leaf(".", mark)))


def capitalize_tree(made: Tree) -> Tree:
    first, *rest = made.children
    if isinstance(first, Leaf):
        return make_tree(made.label, Leaf(first.tag, first.word[0].upper() + first.word[1:]), *rest)
    return make_tree(made.label, capitalize_tree(first), *rest)
