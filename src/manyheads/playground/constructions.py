"""The grammatical constructions that a corpus can be restricted to, and which of them a meaning shows."""

from manyheads.playground.meaning import (
    Adjective,
    CausalSentence,
    Clause,
    CompoundSentence,
    Coordination,
    Entity,
    ExistentialClause,
    Phrase,
    ReportedSpeech,
    Sentence,
    WeatherClause,
)

CONSTRUCTIONS = (
    "tense",
    "negation",
    "question",
    "command",
    "coordination",
    "relative",
    "possessive",
    "number",
    "adjective",
    "time",
    "place",
    "manner",
    "modal",
    "subordinate",
)


def find_constructions(meaning: Sentence) -> frozenset[str]:
    constructions: set[str] = set()
    if type(meaning) is Clause:
        add_clause_constructions(meaning, constructions)
    elif type(meaning) is CompoundSentence:
        constructions.add("coordination")
        add_clause_constructions(meaning.first, constructions)
        add_clause_constructions(meaning.second, constructions)
    elif type(meaning) is CausalSentence:
        constructions.add("subordinate")
        add_clause_constructions(meaning.result, constructions)
        if type(meaning.reason) is Clause:
            add_clause_constructions(meaning.reason, constructions)
    elif type(meaning) is ReportedSpeech:
        constructions.add("subordinate")
        add_entity_constructions(meaning.speaker, constructions)
        add_clause_constructions(meaning.content, constructions)
    else:
        assert isinstance(meaning, ExistentialClause | WeatherClause)
        add_scene_constructions(meaning, constructions)
    return frozenset(constructions)


def add_scene_constructions(meaning: ExistentialClause | WeatherClause, constructions: set[str]) -> None:
    if meaning.tense != "present":
        constructions.add("tense")
    if meaning.negative:
        constructions.add("negation")
    if type(meaning) is WeatherClause:
        if meaning.time:
            constructions.add("time")
    elif type(meaning) is ExistentialClause:
        constructions.add("place")
        if meaning.is_question:
            constructions.add("question")
        add_entity_constructions(meaning.phrase, constructions)


def add_clause_constructions(clause: Clause, constructions: set[str]) -> None:
    if clause.tense != "present":
        constructions.add("tense")
    if clause.negative:
        constructions.add("negation")
    if clause.modal:
        constructions.add("modal")
    if clause.question:
        constructions.add("question")
    if clause.subject is None:
        constructions.add("command")
    if clause.time:
        constructions.add("time")
    if clause.place:
        constructions.add("place")
    if clause.manner or clause.companion or clause.means:
        constructions.add("manner")
    if type(clause.predicate) is Adjective:
        constructions.add("adjective")
    for entity in (clause.subject, clause.object, clause.recipient, clause.companion):
        if entity is not None:
            add_entity_constructions(entity, constructions)


def add_entity_constructions(entity: Entity, constructions: set[str]) -> None:
    if type(entity) is Phrase:
        if entity.adjective:
            constructions.add("adjective")
        if entity.count:
            constructions.add("number")
        if entity.possessor:
            constructions.add("possessive")
        if entity.relative:
            constructions.add("relative")
            add_clause_constructions(entity.relative, constructions)
    elif type(entity) is Coordination:
        constructions.add("coordination")
        add_entity_constructions(entity.first, constructions)
        add_entity_constructions(entity.second, constructions)
