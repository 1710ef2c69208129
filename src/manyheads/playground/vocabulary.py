"""The allowed words, grouped by what makes sense: who can do what, where and when."""

import random
from typing import TypeVar

from manyheads.playground.lexicon import (
    ALL_ADJECTIVES,
    ALL_CITIES,
    ALL_MANNERS,
    ALL_NAMES,
    ALL_NOUNS,
    ALL_PLACES,
    ALL_REPORTING,
    ALL_TIMES,
    ALL_VERBS,
    HOME,
)
from manyheads.playground.meaning import Adjective, Manner, Noun, Place, Tense, Time, Verb

Option = TypeVar("Option")

PEOPLE = ("person", "kin")
OWNED_PEOPLE = ("teacher", "guest")
AT_HOME = ("read", "eat", "study", "cook", "play", "stay")
DAYS = ("", "yesterday ", "tomorrow ")
PARTS_OF_DAY = {
    "dawn": (
        "tomorrow morning",
        "every morning",
        "every day",
        *(f"{day}at {hour} o'clock" for day in DAYS for hour in ("five", "six", "seven", "eight")),
    ),
    "dusk": (
        "last night",
        "every day",
        *(f"{day}at {hour} o'clock" for day in DAYS for hour in ("nine", "ten", "eleven")),
    ),
    "mood": ("today", "yesterday", "last night", "last week", "last weekend", "two days ago", "tomorrow"),
}
HABITATS = {
    "pet": "play",
    "animal": "wild",
    "exotic": "zoo",
    "livestock": "farm",
    "prey": "stroll",
    "bird": "stroll",
}


class Vocabulary:
    """The first words of each class, and the random numbers of a seed."""

    def __init__(self, seed: int, constructions: frozenset[str], words: int | None) -> None:
        self.random = random.Random(seed).random
        self.allowed = constructions
        self.nouns = {category: nouns[:words] for category, nouns in ALL_NOUNS.items()}
        self.verbs = ALL_VERBS[:words]
        self.adjectives = ALL_ADJECTIVES[:words]
        self.names = ALL_NAMES[:words]
        self.cities = ALL_CITIES[:words]
        self.reporting = ALL_REPORTING[:words]
        young = ("child", "girl", "boy")
        self.nouns["youth"] = tuple(noun for noun in self.nouns["person"] if noun.en in young)
        self.set_places(words)
        self.set_times(words)
        self.manners: dict[str, tuple[Manner, ...]] = {}
        for manner, groups in ALL_MANNERS[:words]:
            for group in groups:
                self.manners[group] = (*self.manners.get(group, ()), manner)
        self.set_verbs()
        self.set_words()

    def set_places(self, words: int | None) -> None:
        self.places: dict[str, tuple[Place, ...]] = dict.fromkeys(AT_HOME, (HOME,))
        for place, groups in ALL_PLACES[:words]:
            for group in groups:
                self.places[group] = (*self.places.get(group, ()), place)
        for den, names in (("wild", ("zoo", "forest")), ("zoo", ("zoo",)), ("farm", ("farm",))):
            self.places[den] = tuple(place for place, _ in ALL_PLACES[:words] if place.noun.en in names)
        for group in ("live", "arrive", "stay"):
            self.places[group] = (*self.places.get(group, ()), *self.cities)
        self.places["go"] = (HOME, *self.places.get("go", ()))
        spots = [place for place, _ in ALL_PLACES[:words]]
        self.nouns["place"] = tuple(place.noun for place in spots)
        self.nouns["room"] = tuple(place.noun for place in self.places.get("room", ()))
        self.nouns["site"] = tuple(place.noun for place in self.places.get("visit", ()))

    def set_times(self, words: int | None) -> None:
        capped: list[Time] = list(ALL_TIMES if words is None else ())
        for tense in ("present", "progressive", "past", "future"):
            fitting = [time for time in ALL_TIMES if tense in time.tenses]
            capped += [time for time in fitting[:words] if time not in capped]
        self.frequencies = tuple(time for time in capped if time.en in ("often", "sometimes"))
        self.times: dict[tuple[str, Tense], tuple[Time, ...]] = {}
        tenses: tuple[Tense, ...] = ("present", "progressive", "past", "future")
        for tense in tenses:
            fitting = [time for time in capped if tense in time.tenses]
            self.times["long", tense] = tuple(time for time in fitting if time.scale != "clock")
            self.times["", tense] = tuple(time for time in fitting if time.scale == "")
            self.times["years", tense] = tuple(
                time for time in fitting if time.scale == "long" or tense == "progressive"
            )
            told_by_hour = tuple(time for time in fitting if time.scale == "clock" and tense != "present")
            self.times["clock", tense] = told_by_hour or self.times["", tense]
            for part, names in PARTS_OF_DAY.items():
                self.times[part, tense] = tuple(
                    time for time in fitting if time.en in names and time.scale != "long"
                )

    def set_verbs(self) -> None:
        def can(verb: Verb) -> bool:
            return not verb.object_categories or any(
                self.nouns[category] for category in verb.object_categories
            )

        self.verbs = tuple(verb for verb in self.verbs if can(verb))
        human = [verb for verb in self.verbs if "person" in verb.subject_categories]
        self.intransitive = tuple(
            verb for verb in human if not (verb.object_categories or verb.takes_goal or verb.takes_location)
        )
        self.actions = tuple(verb for verb in human if not verb.is_stative and not verb.is_sudden)
        self.human_verbs = tuple(human)
        unasked = ("travel", "look for", *(() if "negation" in self.allowed else ("cry",)))
        self.imperative_verbs = tuple(verb for verb in self.actions if verb.en not in unasked)
        spellings = [verb.en for verb in ALL_VERBS]
        self.thing_verbs = tuple(  # not "wear": "what do you wear" can be 입다 or 신다
            verb
            for verb in human
            if verb.object_categories
            and verb.object_categories[0] not in PEOPLE
            and spellings.count(verb.en) == 1
            and verb.en != "turn on"
        )
        self.person_verbs = tuple(verb for verb in human if "person" in verb.object_categories)
        self.located_verbs = tuple(
            verb for verb in human if self.places.get(verb.places) and verb.places != "buy"
        )
        self.staying_verbs = tuple(verb for verb in human if verb.en == "live")
        self.motion_verbs = tuple(
            verb for verb in human if verb.takes_goal and not verb.needs_vehicle and verb.en == "go"
        )
        self.things_by_verb = {
            verb: tuple(
                noun
                for category in verb.object_categories
                if category not in PEOPLE
                for noun in self.nouns[category]
            )
            for verb in self.verbs
        }
        self.verbs_by_category: dict[str, tuple[Verb, ...]] = {}
        for verb in human:
            for category in verb.object_categories:
                self.verbs_by_category[category] = (*self.verbs_by_category.get(category, ()), verb)

    def set_words(self) -> None:
        self.adjectives_by_category: dict[str, tuple[Adjective, ...]] = {}
        for adjective in self.adjectives:
            for category in adjective.categories:
                if adjective.attributive:
                    self.adjectives_by_category[category] = (
                        *self.adjectives_by_category.get(category, ()),
                        adjective,
                    )
        self.categories_by_adjective = {
            adjective: tuple(category for category in adjective.categories if self.nouns.get(category))
            for adjective in self.adjectives
        }
        self.predicative = tuple(
            adjective
            for adjective in self.adjectives
            if adjective.predicative and self.categories_by_adjective[adjective]
        )
        self.relatives = self.nouns["kin"] + tuple(
            noun for noun in self.nouns["person"] if noun.en in OWNED_PEOPLE
        )
        self.professions = tuple(noun for noun in self.nouns["person"] if noun.feminine)
        self.inhabitants = self.find_inhabitants()

    def find_inhabitants(self) -> tuple[tuple[Noun, tuple[Place, ...]], ...]:
        """Return the nouns with the places where they can be."""
        homes = (
            HABITATS | dict.fromkeys(("furniture", "item", "print", "keepsake"), "room") | {"person": "meet"}
        )
        return tuple(
            (noun, self.places[home])
            for category, home in homes.items()
            for noun in self.nouns[category]
            if self.places.get(home)
        )

    # ---- random choices

    def pick(self, options: tuple[Option, ...]) -> Option:
        return options[int(self.random() * len(options))]

    def may(self, construction: str, probability: float) -> bool:
        return construction in self.allowed and self.random() < probability
