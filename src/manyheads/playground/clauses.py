"""Sampling clauses: what somebody does, with time, place and manner."""

from dataclasses import replace

from manyheads.playground.meaning import (
    Adjective,
    Clause,
    Coordination,
    Entity,
    Modal,
    Noun,
    Phrase,
    Place,
    QuestionType,
    Tense,
    Time,
    Verb,
    has_relative,
    is_plural,
)
from manyheads.playground.phrases import BARE, FOOD, HABITS, PhraseSampler
from manyheads.playground.vocabulary import HABITATS

SOCIAL = ("go", "eat", "work", "cook", "read", "sing", "alone", "together", "well")
# Times at which an animal can be observed.
OBSERVED = ("today", "yesterday", "last night", "two days ago", "now")
MOMENTARY = ("thank", "answer", "ask", "invite")  # too short for the progressive
UNPLANNED = ("hug", "laugh", "cry", "smile", "follow", "hide")  # verbs without modals
PARTS_OF_DAY = ("morning", "afternoon", "evening")  # not for every meal
LOCAL = ("bus", "subway", "bicycle", "taxi", "car")


class ClauseSampler(PhraseSampler):
    """Samples the clause of a verb."""

    def sample_tense(self, verb: Verb | Adjective | Noun) -> Tense:
        if "tense" not in self.allowed:
            return "present"
        draw = self.random()
        if type(verb) is Verb and verb.is_mishap:
            return "past"
        if type(verb) is Verb and verb.is_stative:
            return "present" if draw < 0.65 else "past"
        if draw < 0.3:
            return "present"
        if draw < 0.66:
            return "past"
        return "future" if draw < 0.85 or has_no_progressive(verb) else "progressive"

    def sample_time(self, verb: Verb, tense: Tense, negative: bool) -> Time | None:
        if verb.is_stative or not self.may("time", 0.65):
            return None
        fitting = self.times[verb.times or ("long" if verb.is_long else ""), tense]
        if not (verb.times or verb.is_long) and self.random() < 0.45:
            fitting = self.times["clock", tense]
        if tense == "present" and verb.en not in HABITS:
            fitting = self.frequencies
        if (verb.takes_location or verb.times == "years") and tense == "present":
            return None
        if not fitting or (negative and tense in ("present", "progressive")):
            return None
        time = self.pick(fitting)
        if negative and (time.frequency or time.scale == "clock" or verb.is_mishap):
            return None
        return None if time.scale == "clock" and "person" not in verb.subject_categories else time

    def sample_clause(
        self, verb: Verb, subject: Entity, *, question: QuestionType | None = None, bare: bool = False
    ) -> Clause:
        """Sample the arguments of the verb and, unless `bare`, time, place and manner."""
        tense = self.sample_tense(verb)
        counted = type(subject) is Phrase and subject.count > 0
        negative = question in (None, "why") and not counted and self.may("negation", 0.16)
        fated = verb.is_stative or verb.is_sudden or verb.en in UNPLANNED
        modal = None if fated or question in ("when", "why") else self.sample_modal(subject)
        if question == "when" and tense == "progressive":
            tense = "past"
        if modal and verb.times == "dawn":
            modal = "must"
        if modal and tense in ("future", "progressive"):
            tense = "present"
        plain = negative or question is not None
        object_ = None if question in ("what", "whom") else self.sample_object(verb, subject, plain)
        recipient = self.sample_recipient(object_, subject) if verb.is_ditransitive else None
        goal = means = None
        if verb.takes_goal or verb.takes_location:
            goal = None if question == "where" else self.sample_goal(verb)
        if verb.needs_vehicle:
            goal, means = self.sample_ride()
        clause = Clause(
            verb, subject, object_, recipient, goal, None, tense, negative, modal, question, means=means
        )
        time = None if bare else self.sample_clause_time(clause, verb)
        if verb.en_past == verb.en and tense == "past" and (time is None or time.scale == "clock"):
            tense, time = "present", None  # otherwise the tense would be ambiguous
        clause = replace(clause, tense=tense, time=time)
        if bare or negative or question in ("when", "why"):
            return self.front_time(clause)
        return self.front_time(self.add_adjuncts(clause, verb))

    def sample_clause_time(self, clause: Clause, verb: Verb) -> Time | None:
        """Sample a time if it fits the clause."""
        if clause.question in ("when", "why"):
            return None
        # With a present modal the action is in the future.
        ahead = clause.modal and clause.tense == "present"
        time = self.sample_time(verb, "future" if ahead else clause.tense, clause.negative)
        if time is None or (clause.modal and time.en in ("soon", "in an hour")):
            return None
        if is_animal(clause.subject) and not (time.frequency or time.en in OBSERVED):
            return None
        if is_meal(clause.object) and (time.scale or time.en.endswith(PARTS_OF_DAY)):
            return None
        counted = type(clause.object) is Phrase and clause.object.count > 0
        return None if time.frequency and (clause.question or counted) else time

    def sample_modal(self, subject: Entity) -> Modal | None:
        if not self.may("modal", 0.14) or is_animal(subject):
            return None
        modals: tuple[Modal, ...] = ("can", "want", "must")
        return self.pick(modals)

    def sample_ride(self) -> tuple[Place, Noun | None]:
        vehicles = self.nouns["transport"]
        if self.random() < 0.5:
            return self.pick(self.cities), self.pick(vehicles[:2]) if self.may("manner", 0.5) else None
        if "manner" not in self.allowed:
            return self.pick(self.cities), None
        return self.pick(self.places["go"]), self.pick(
            tuple(noun for noun in vehicles if noun.en in LOCAL) or vehicles
        )

    def add_adjuncts(self, clause: Clause, verb: Verb) -> Clause:
        """Add at most two of manner, companion, means and place."""
        heavy = has_relative(clause.object) or has_relative(clause.recipient)
        if heavy:
            return clause
        if self.may("manner", 0.3) and not clause.modal:
            clause = self.add_manner(clause, verb)
        if clause.manner:
            return clause
        if clause.question != "where" and self.may("place", 0.4):
            spots = self.places.get(verb.places, ())
            if verb.places == "buy" and not is_food(clause.object):
                spots = ()
            if spots:
                clause = replace(clause, place=self.pick(spots))
        return clause

    def add_manner(self, clause: Clause, verb: Verb) -> Clause:
        if verb.needs_vehicle or is_animal(clause.subject):
            return clause
        social = verb.manners in SOCIAL and clause.question is None
        if social and self.random() < 0.4 and type(clause.subject) is not Coordination:
            companion = self.sample_person(clause.subject)
            return replace(clause, companion=companion) if not has_relative(companion) else clause
        tool = self.choose_tool(clause, verb)
        if tool:
            return replace(clause, means=tool)
        fitting = self.manners.get(verb.manners)
        if not fitting or clause.question:
            return clause
        manner = self.pick(fitting)
        many = clause.subject is not None and is_plural(clause.subject)
        if (manner.en == "together" and not many) or (manner.en == "alone" and many):
            return clause
        has_time = clause.time and (clause.time.scale == "clock" or clause.time.en == "soon")
        if manner.en in ("early", "late") and has_time:
            return clause
        unsettled = clause.time or clause.tense == "progressive" or is_indefinite(clause.object)
        if manner.en == "well" and unsettled:
            return clause
        return replace(clause, manner=manner)

    def choose_tool(self, clause: Clause, verb: Verb) -> Noun | None:
        object_ = clause.object
        if type(object_) is not Phrase or clause.question:
            return None
        if verb.en == "write":
            return (
                self.pick(self.nouns["pen"]) if self.random() < 0.5 and object_.noun.en != "email" else None
            )
        if verb.en == "eat" and object_.noun.category in ("dish", "rice"):
            cutlery = self.nouns["cutlery"]
            return cutlery[0] if object_.noun.en in ("soup", "curry", "rice") else cutlery[-1]
        return None

    def front_time(self, clause: Clause) -> Clause:
        """Front the time in a third of the statements, and where it would attach to a relative clause."""
        if clause.time is None or clause.time.frequency or clause.question:
            caught = clause.time is not None and has_relative(clause.object)
            return replace(clause, time=None) if caught and clause.question else clause
        if has_relative(clause.object) or has_relative(clause.recipient) or self.random() < 0.35:
            return replace(clause, fronted=True)
        return clause


def has_no_progressive(verb: Verb | Adjective | Noun) -> bool:
    if type(verb) is not Verb:
        return True
    return verb.is_sudden or verb.takes_location or verb.times == "dawn" or verb.en in MOMENTARY


def is_animal(entity: Entity | None) -> bool:
    return type(entity) is Phrase and entity.noun.category in HABITATS


def is_indefinite(entity: Entity | None) -> bool:
    """Return whether the entity is like "a song", "two songs", "soup"; not "the song", not "English"."""
    if type(entity) is not Phrase:
        return entity is not None
    return not (entity.determiner in ("the", "this") or entity.possessor or entity.noun.category in BARE)


def is_meal(entity: Entity | None) -> bool:
    if type(entity) is Coordination:
        return is_meal(entity.first)
    return type(entity) is Phrase and entity.noun.category == "meal"


def is_food(entity: Entity | None) -> bool:
    return type(entity) is Phrase and entity.noun.category in FOOD
