"""Constituency trees of the English sentences, with the labels and tags of the Penn Treebank.

The words are those of english.py, each with its part of speech, in constituents. Attachment is never
ambiguous, since the meaning determines it.
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
from manyheads.playground.word_tables import NUMBERS
from manyheads.text.trees import ROOT, Leaf, Tree

Node = Tree | Leaf

FINITE_TAGS = {"am": "VBP", "are": "VBP", "is": "VBZ", "was": "VBD", "were": "VBD"}
FINITE_TAGS |= {"do": "VBP", "does": "VBZ", "did": "VBD", "will": "MD", "can": "MD", "could": "MD"}
PARTICLES = ("up", "on", "off")  # of phrasal verbs: get up, turn on
ADVERBS = ("now", "soon", "often", "sometimes", "usually", "always")
TIME_TAGS = {"every": "DT", "this": "DT", "an": "DT", "the": "DT", "last": "JJ", "next": "JJ"}
TIME_TAGS |= {"days": "NNS", "weeks": "NNS", "o'clock": "RB"} | dict.fromkeys(NUMBERS[1:], "CD")


def make_tree(label: str, *children: Node | None) -> Tree:
    """Make a constituent of the children that are not None."""
    return Tree(label, tuple(child for child in children if child is not None))


# ---- phrases


def build_noun_phrase(entity: Entity, case: str = "subject") -> Tree:
    if type(entity) is Phrase:
        return build_phrase(entity)
    if type(entity) is Pronoun:
        return make_tree("NP", Leaf("PRP", entity.en if case == "subject" else entity.en_object))
    if type(entity) is Coordination:
        first, second = build_noun_phrase(entity.first, case), build_noun_phrase(entity.second, case)
        return make_tree("NP", first, Leaf("CC", "and"), second)
    assert type(entity) is Name
    return make_tree("NP", Leaf("NNP", entity.en))


def build_phrase(phrase: Phrase) -> Tree:
    """Build a noun phrase with determiner, measure and relative clause."""
    node = make_tree("NP", *build_determiner(phrase), *build_counted_noun(phrase))
    if phrase.count and phrase.noun.measure:
        measured = make_tree("NP", *build_described_noun(phrase))
        node = make_tree("NP", node, make_tree("PP", Leaf("IN", "of"), measured))
    if phrase.relative:
        pronoun = Leaf("WP", "who") if phrase.noun.category in ("person", "kin") else Leaf("WDT", "that")
        relative = make_tree("SBAR", make_tree("WHNP", pronoun), build_clause(phrase.relative, phrase))
        node = make_tree("NP", node, relative)
    return node


def build_determiner(phrase: Phrase) -> list[Node]:
    if phrase.possessor:
        return [build_possessive(phrase.possessor)]
    if phrase.determiner == "the":
        return [Leaf("DT", "the")]
    if phrase.determiner == "this":
        return [Leaf("DT", "these" if is_plural(phrase) else "this")]
    if phrase.determiner == "a" and not phrase.count:
        return [Leaf("DT", add_indefinite_article(realize_counted_noun(phrase)).partition(" ")[0])]
    return []


def build_possessive(owner: Entity) -> Node:
    if type(owner) is Pronoun:
        return Leaf("PRP$", owner.en_possessive)
    inside = build_noun_phrase(owner)
    plural = is_plural(owner) and get_last_word(inside).endswith("s")
    return make_tree("NP", *inside.children, Leaf("POS", "'" if plural else "'s"))


def get_last_word(node: Node) -> str:
    while isinstance(node, Tree):
        node = node.children[-1]
    return node.word


def build_counted_noun(phrase: Phrase) -> list[Leaf]:
    if not phrase.count:
        return build_described_noun(phrase)
    number = Leaf("CD", NUMBERS[phrase.count])
    if phrase.noun.measure:
        return [number, Leaf("NNS" if phrase.count > 1 else "NN", phrase.noun.measure[phrase.count > 1])]
    return [number, *build_described_noun(phrase)]


def build_described_noun(phrase: Phrase) -> list[Leaf]:
    """Build the noun with its adjective."""
    many = bool(phrase.noun.plural) and is_plural(phrase)
    word = phrase.noun.plural if many else phrase.noun.en
    adjective = [Leaf("JJ", phrase.adjective.en)] if phrase.adjective else []
    return [*adjective, *build_noun_leaves(word, many)]


def build_noun_leaves(word: str, many: bool) -> list[Leaf]:
    *before, last = word.split()
    tag = "NNP" if last[0].isupper() else "NNS" if many else "NN"
    return [*(Leaf("NN", part) for part in before), Leaf(tag, last)]


def build_place(text: str) -> Tree:
    """Build a place: in the garden, to Seoul, at home. "home" alone is an adverb."""
    if text == "home":
        return make_tree("ADVP", Leaf("RB", "home"))
    preposition, *rest = text.split()
    article = [Leaf("DT", rest.pop(0))] if rest[0] == "the" else []
    inside = make_tree("NP", *article, *build_noun_leaves(" ".join(rest), many=False))
    return make_tree("PP", Leaf("TO" if preposition == "to" else "IN", preposition), inside)


def build_time(text: str) -> Tree:
    """Build a time: yesterday, two days ago, every Friday, at five o'clock, tomorrow at five o'clock."""
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


# ---- verbs


def build_verb_phrase(clause: Clause, subject: Entity, *more: Tree) -> list[Node]:
    """Build what follows the subject, with a frequency adverb before the verb; `more` comes last."""
    auxiliary, verb = inflect_verb(clause, subject)
    often = build_time(clause.time.en) if clause.time and clause.time.frequency else None
    after = [*build_complements(clause), *more]
    if not auxiliary:
        return [*([often] if often else []), build_main_verb(verb, choose_finite_tag(clause, subject), after)]
    no = Leaf("RB", "not") if clause.negative else None
    inner = [build_main_verb(verb, choose_inner_tag(clause, auxiliary), after)] if verb else after
    return [make_tree("VP", Leaf(FINITE_TAGS[auxiliary], auxiliary), no, often, *inner)]


def choose_finite_tag(clause: Clause, subject: Entity) -> str:
    return "VBD" if clause.tense == "past" else "VBZ" if is_third_singular(subject) else "VBP"


def choose_inner_tag(clause: Clause, auxiliary: str) -> str:
    going_on = (
        clause.tense == "progressive" and FINITE_TAGS[auxiliary] in ("VBP", "VBZ") and auxiliary[:2] != "do"
    )
    return "VBG" if going_on else "VB"


def build_main_verb(verb: str, tag: str, after: list[Node]) -> Tree:
    """Build a verb phrase: eat bread; want to eat bread; wait for Mina; turn on the lamp."""
    first, *rest = verb.split()
    if rest[:1] == ["to"]:
        wanted = make_tree("VP", Leaf("TO", "to"), build_main_verb(" ".join(rest[1:]), "VB", after))
        return make_tree("VP", Leaf(tag, first), make_tree("S", wanted))
    if not rest:
        return make_tree("VP", Leaf(tag, first), *after)
    if rest[0] in PARTICLES:
        return make_tree("VP", Leaf(tag, first), make_tree("PRT", Leaf("RP", rest[0])), *after)
    if rest[0] == "a":  # take a rest
        return make_tree(
            "VP", Leaf(tag, first), make_tree("NP", Leaf("DT", "a"), Leaf("NN", rest[1])), *after
        )
    if rest[0] == "back":
        return make_tree("VP", Leaf(tag, first), make_tree("ADVP", Leaf("RB", "back")), *after)
    if rest[0] == "asleep":
        return make_tree("VP", Leaf(tag, first), make_tree("ADJP", Leaf("JJ", rest[0])), *after)
    is_object = bool(after) and isinstance(after[0], Tree) and after[0].label == "NP"
    inside, left = (after[:1], after[1:]) if is_object else ([], after)
    return make_tree("VP", Leaf(tag, first), make_tree("PP", Leaf("IN", rest[0]), *inside), *left)


def build_complements(clause: Clause) -> list[Node]:
    """Build what follows the verb, in the order of english.realize_complements."""
    nodes: list[Node] = []
    predicate = clause.predicate
    if type(predicate) is Adjective:
        degree = Leaf("RB", clause.degree.en) if clause.degree else None
        nodes.append(make_tree("ADJP", degree, Leaf("JJ", predicate.en)))
    elif type(predicate) is Noun:
        assert clause.subject is not None
        many = is_plural(clause.subject)
        nodes.append(build_phrase(Phrase(predicate, "" if many else "a", plural=many)))
    if clause.recipient:
        nodes.append(build_noun_phrase(clause.recipient, "object"))
    if clause.object and type(clause.object) is not Gap and clause.question not in ("what", "whom"):
        nodes.append(build_noun_phrase(clause.object, "object"))
    if clause.goal:
        stays = type(predicate) is Verb and predicate.takes_location
        nodes.append(build_place(clause.goal.at if stays else clause.goal.to))
    return nodes + build_adjuncts(clause)


def build_adjuncts(clause: Clause) -> list[Node]:
    """Build manner, means, companion, place and time."""
    nodes: list[Node] = []
    if clause.manner:
        nodes.append(make_tree("ADVP", Leaf("RB", clause.manner.en)))
    if clause.means:
        bare = clause.means.category == "transport"
        article = None if bare else Leaf("DT", "a")
        inside = make_tree("NP", article, *build_noun_leaves(clause.means.en, many=False))
        nodes.append(make_tree("PP", Leaf("IN", "by" if bare else "with"), inside))
    if clause.companion:
        nodes.append(make_tree("PP", Leaf("IN", "with"), build_noun_phrase(clause.companion, "object")))
    if clause.place:
        nodes.append(build_place(clause.place.at))
    if clause.time and not clause.fronted and not clause.time.frequency:
        nodes.append(build_time(clause.time.en))
    return nodes


# ---- clauses


def build_clause(clause: Clause, head: Entity | None = None, *more: Tree, named: Tree | None = None) -> Tree:
    """Build a statement, or a relative clause of a head. `named` replaces the subject; `more` comes last."""
    missing = clause.subject is None or type(clause.subject) is Gap
    subject = head if missing else clause.subject
    assert subject is not None
    who = None if missing else named or build_noun_phrase(subject)
    fronted = build_time(clause.time.en) if clause.time and clause.fronted else None
    return make_tree("S", fronted, who, *build_verb_phrase(clause, subject, *more))


def build_question(clause: Clause) -> Tree:
    assert clause.subject is not None
    if clause.question == "who":
        question_phrase = make_tree("WHNP", Leaf("WP", "who"))
        return make_tree(
            "SBARQ", question_phrase, make_tree("SQ", *build_verb_phrase(clause, clause.subject))
        )
    auxiliary, verb = inflect_verb(clause, clause.subject)
    after = build_complements(clause)
    inner = [build_main_verb(verb, choose_inner_tag(clause, auxiliary), after)] if verb else after
    no = Leaf("RB", "not") if clause.negative else None
    body = make_tree(
        "SQ", Leaf(FINITE_TAGS[auxiliary], auxiliary), build_noun_phrase(clause.subject), no, *inner
    )
    if clause.question in (None, "yes"):
        return body
    assert clause.question is not None
    thing = clause.question in ("what", "whom")
    word = Leaf("WP" if thing else "WRB", WH[clause.question])
    return make_tree("SBARQ", make_tree("WHNP" if thing else "WHADVP", word), body)


def build_command(clause: Clause) -> Tree:
    assert type(clause.predicate) is Verb
    verb_phrase = build_main_verb(clause.predicate.en, "VB", build_complements(clause))
    return make_tree(
        "S",
        make_tree("VP", Leaf("VB", "do"), Leaf("RB", "not"), verb_phrase) if clause.negative else verb_phrase,
    )


def build_reason(sentence: CausalSentence) -> Tree:
    reason = sentence.reason
    if type(reason) is WeatherClause:
        return build_weather(reason)
    assert type(reason) is Clause
    assert reason.subject is not None
    if reason.subject is sentence.result.subject and type(reason.subject) is not Pronoun:
        again = Leaf("PRP", {"m": "he", "f": "she"}[get_sex(reason.subject)])
        return build_clause(reason, named=make_tree("NP", again))
    return build_clause(reason)


def build_weather(weather: WeatherClause) -> Tree:
    predicate, no = weather.predicate, Leaf("RB", "not") if weather.negative else None
    when = build_time(weather.time.en) if weather.time else None
    if type(predicate) is Adjective:
        state: Node = make_tree("ADJP", Leaf("JJ", predicate.en))
        if weather.tense == "future":
            later = make_tree("VP", Leaf("VB", "be"), state, when)
            return build_it_clause(make_tree("VP", Leaf("MD", "will"), no, later))
        is_past = weather.tense == "past"
        return build_it_clause(
            make_tree("VP", Leaf("VBD" if is_past else "VBZ", "was" if is_past else "is"), no, state, when)
        )
    assert type(predicate) is Verb
    if weather.tense == "future":
        return build_it_clause(
            make_tree("VP", Leaf("MD", "will"), no, make_tree("VP", Leaf("VB", predicate.en), when))
        )
    if weather.tense == "past" and no:
        return build_it_clause(
            make_tree("VP", Leaf("VBD", "did"), no, make_tree("VP", Leaf("VB", predicate.en), when))
        )
    if weather.tense == "past":
        return build_it_clause(make_tree("VP", Leaf("VBD", predicate.en_past), when))
    return build_it_clause(
        make_tree("VP", Leaf("VBZ", "is"), no, make_tree("VP", Leaf("VBG", f"{predicate.en}ing"), when))
    )


def build_it_clause(verb_phrase: Tree) -> Tree:
    return make_tree("S", make_tree("NP", Leaf("PRP", "it")), verb_phrase)


def build_existence(existence: ExistentialClause) -> Tree:
    finite = inflect_be(existence.phrase, past=existence.tense == "past")
    what = (
        make_tree("NP", Leaf("DT", "no"), *build_counted_noun(existence.phrase))
        if existence.negative
        else build_phrase(existence.phrase)
    )
    there, where = make_tree("NP", Leaf("EX", "there")), build_place(existence.place.at)
    verb = Leaf(FINITE_TAGS[finite], finite)
    if existence.is_question:
        return make_tree("SQ", verb, there, what, where)
    return make_tree("S", there, make_tree("VP", verb, what, where))


# ---- sentences


def build_english_tree(sentence: Sentence) -> Tree:
    """Build the tree of the sentence of english.realize_english."""
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
    content = make_tree("SBAR", Leaf("IN", "that"), build_clause(sentence.content))
    return make_tree("S", build_noun_phrase(sentence.speaker), make_tree("VP", verb, content))


def finish_tree(tree: Tree, mark: str) -> Tree:
    """Capitalize the first word and append the punctuation mark."""
    return make_tree(ROOT, make_tree(tree.label, *capitalize_tree(tree).children, Leaf(".", mark)))


def capitalize_tree(tree: Tree) -> Tree:
    first, *rest = tree.children
    if isinstance(first, Leaf):
        return make_tree(tree.label, Leaf(first.tag, first.word[0].upper() + first.word[1:]), *rest)
    return make_tree(tree.label, capitalize_tree(first), *rest)
