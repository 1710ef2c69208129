"""What somebody does, with when, where and how."""

from dataclasses import replace

from manyheads.playground.meaning import (
    Adjective,
    Asked,
    Both,
    Clause,
    Entity,
    Modal,
    Noun,
    Phrase,
    Place,
    Tense,
    Time,
    Verb,
    has_relative,
    is_plural,
)
from manyheads.playground.phrases import BARE, FOOD, HABITS, Phrases
from manyheads.playground.vocabulary import DENS

SOCIAL = ("go", "eat", "work", "cook", "read", "sing", "alone", "together", "well")
OBSERVED = ("yesterday", "last night", "two days ago", "now")  # when one saw what an animal did
MOMENTARY = ("thank", "answer", "ask", "invite")  # over before one can say that it goes on
UNPLANNED = ("hug", "laugh", "cry", "smile", "follow", "hide")  # nobody has to, or wants to, or can
LOCAL = ("bus", "subway", "bicycle", "taxi", "car")


class Clauses(Phrases):
    """Draws a verb's clause."""

    def tense_for(self, verb: Verb | Adjective | Noun) -> Tense:
        if "tense" not in self.allowed:
            return "present"
        draw = self.random()
        if type(verb) is Verb and verb.mishap:
            return "past"
        if type(verb) is Verb and verb.state:
            return "present" if draw < 0.65 else "past"
        if draw < 0.3:
            return "present"
        if draw < 0.66:
            return "past"
        return "future" if draw < 0.85 or never_goes_on(verb) else "progressive"

    def time_for(self, verb: Verb, tense: Tense, negative: bool) -> Time | None:
        if verb.state or not self.may("time", 0.65):
            return None
        fitting = self.times[verb.times or ("long" if verb.long else ""), tense]
        if not (verb.times or verb.long) and self.random() < 0.45:
            fitting = self.times["clock", tense]
        if tense == "present" and verb.en not in HABITS:
            fitting = self.frequencies
        if (verb.stays or verb.times == "years") and tense == "present":
            return None
        if not fitting or (negative and tense in ("present", "progressive")):
            return None
        time = self.pick(fitting)
        if negative and (time.frequency or time.scale == "clock" or verb.mishap):
            return None
        return None if time.scale == "clock" and "person" not in verb.subjects else time

    def clause(
        self, verb: Verb, subject: Entity, *, asked: Asked | None = None, bare: bool = False
    ) -> Clause:
        """What the verb needs; unless `bare`, with when, where and how."""
        tense = self.tense_for(verb)
        counted = type(subject) is Phrase and subject.count > 0
        negative = asked in (None, "why") and not counted and self.may("negation", 0.16)
        fated = verb.state or verb.sudden or verb.en in UNPLANNED
        modal = None if fated or asked in ("when", "why") else self.modal(subject)
        if asked == "when" and tense == "progressive":
            tense = "past"
        if modal and verb.times == "dawn":
            modal = "must"
        if modal and tense in ("future", "progressive"):
            tense = "present"
        plain = negative or asked is not None
        said = None if asked in ("what", "whom") else self.object_for(verb, subject, plain)
        recipient = self.recipient(said, subject) if verb.gives else None
        goal = means = None
        if verb.motion or verb.stays:
            goal = None if asked == "where" else self.goal_for(verb)
        if verb.rides:
            goal, means = self.ride()
        clause = Clause(
            verb, subject, said, recipient, goal, None, tense, negative, modal, asked, means=means
        )
        time = None if bare else self.time_of(clause, verb)
        if verb.en_past == verb.en and tense == "past" and (time is None or time.scale == "clock"):
            tense, time = "present", None  # otherwise nobody could hear the tense
        clause = replace(clause, tense=tense, time=time)
        if bare or negative or asked in ("when", "why"):
            return self.fronting(clause)
        return self.fronting(self.adorned(clause, verb))

    def time_of(self, clause: Clause, verb: Verb) -> Time | None:
        """When it happens, if it can be told of such a clause."""
        if clause.asked in ("when", "why"):
            return None
        # What one can, wants to or has to do lies ahead.
        ahead = clause.modal and clause.tense == "present"
        time = self.time_for(verb, "future" if ahead else clause.tense, clause.negative)
        if time is None or (clause.modal and time.en in ("soon", "in an hour")):
            return None
        if is_animal(clause.subject) and not (time.frequency or time.en in OBSERVED):
            return None
        counted = type(clause.object) is Phrase and clause.object.count > 0
        return None if time.frequency and (clause.asked or counted) else time

    def modal(self, subject: Entity) -> Modal | None:
        if not self.may("modal", 0.14) or is_animal(subject):
            return None
        modals: tuple[Modal, ...] = ("can", "want", "must")
        return self.pick(modals)

    def ride(self) -> tuple[Place, Noun | None]:
        vehicles = self.nouns["transport"]
        if self.random() < 0.5:
            return self.pick(self.cities), self.pick(vehicles[:2]) if self.may("manner", 0.5) else None
        if "manner" not in self.allowed:
            return self.pick(self.cities), None
        return self.pick(self.places["go"]), self.pick(
            tuple(noun for noun in vehicles if noun.en in LOCAL) or vehicles
        )

    def adorned(self, clause: Clause, verb: Verb) -> Clause:
        """With at most two of: how, with whom, with what, where."""
        heavy = has_relative(clause.object) or has_relative(clause.recipient)
        if heavy:
            return clause
        if self.may("manner", 0.3) and not clause.modal:
            clause = self.with_manner(clause, verb)
        if clause.manner:
            return clause
        if clause.asked != "where" and self.may("place", 0.4):
            spots = self.places.get(verb.places, ())
            if verb.places == "buy" and not is_food(clause.object):
                spots = ()
            if spots:
                clause = replace(clause, place=self.pick(spots))
        return clause

    def with_manner(self, clause: Clause, verb: Verb) -> Clause:
        if verb.rides or is_animal(clause.subject):
            return clause
        social = verb.manners in SOCIAL and clause.asked is None
        if social and self.random() < 0.4 and type(clause.subject) is not Both:
            companion = self.person(clause.subject)
            return replace(clause, companion=companion) if not has_relative(companion) else clause
        tool = self.tool_for(clause, verb)
        if tool:
            return replace(clause, means=tool)
        fitting = self.manners.get(verb.manners)
        if not fitting or clause.asked:
            return clause
        manner = self.pick(fitting)
        many = clause.subject is not None and is_plural(clause.subject)
        if (manner.en == "together" and not many) or (manner.en == "alone" and many):
            return clause
        if manner.en in ("early", "late") and clause.time and clause.time.scale == "clock":
            return clause
        unsettled = clause.time or clause.tense == "progressive" or is_any(clause.object)
        if manner.en == "well" and unsettled:
            return clause
        return replace(clause, manner=manner)

    def tool_for(self, clause: Clause, verb: Verb) -> Noun | None:
        said = clause.object
        if type(said) is not Phrase or clause.asked:
            return None
        if verb.en == "write":
            return self.pick(self.nouns["pen"]) if self.random() < 0.5 and said.noun.en != "email" else None
        if verb.en == "eat" and said.noun.kind in ("dish", "rice"):
            cutlery = self.nouns["cutlery"]
            return cutlery[0] if said.noun.en in ("soup", "curry", "rice") else cutlery[-1]
        return None

    def fronting(self, clause: Clause) -> Clause:
        """A time goes first in a third of the statements, and wherever a relative clause would catch it."""
        if clause.time is None or clause.time.frequency or clause.asked:
            caught = clause.time is not None and has_relative(clause.object)
            return replace(clause, time=None) if caught and clause.asked else clause
        if has_relative(clause.object) or has_relative(clause.recipient) or self.random() < 0.35:
            return replace(clause, fronted=True)
        return clause


def never_goes_on(verb: Verb | Adjective | Noun) -> bool:
    if type(verb) is not Verb:
        return True
    return verb.sudden or verb.stays or verb.times == "dawn" or verb.en in MOMENTARY


def is_animal(said: Entity | None) -> bool:
    return type(said) is Phrase and said.noun.kind in DENS


def is_any(said: Entity | None) -> bool:
    """A song, two songs, soup; but not the song, and not English."""
    if type(said) is not Phrase:
        return said is not None
    return not (said.determiner in ("the", "this") or said.possessor or said.noun.kind in BARE)


def is_food(said: Entity | None) -> bool:
    return type(said) is Phrase and said.noun.kind in FOOD
