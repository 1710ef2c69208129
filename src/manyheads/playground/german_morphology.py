"""German inflection: verbs, nouns and determiners."""

from functools import lru_cache

from manyheads.playground.lexicon import get_german_stem, needs_e
from manyheads.playground.meaning import Entity, Noun, Verb, get_person, is_plural

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"acc": ACCUSATIVE, "dat": DATIVE}

# One form per case, in the order above; p is the plural.
DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
RELATIVE = {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die denen"}
EIN = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
DIESER = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
STRONG = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}

# ich du er wir sie
IRREGULAR = {
    "sein": "bin bist ist sind sind",
    "haben": "habe hast hat haben haben",
    "werden": "werde wirst wird werden werden",
    "können": "kann kannst kann können können",
    "wollen": "will willst will wollen wollen",
    "müssen": "muss musst muss müssen müssen",
    "mögen": "mag magst mag mögen mögen",
}
PRETERITE = {
    "sein": "war",
    "haben": "hatte",
    "können": "konnte",
    "wollen": "wollte",
    "müssen": "musste",
    "mögen": "mochte",
    "kennen": "kannte",
}


def look_up_form(table: dict[str, str], gender: str, case: int) -> str:
    return table[gender].split()[case].strip("-")


# ---- verbs


@lru_cache(maxsize=4096)
def inflect_present(infinitive: str, third: str, person: int, plural: bool) -> str:
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive].split()[3 if plural else person - 1]
    if plural:
        return infinitive
    if person == 1:
        return inflect_first_person(infinitive)
    if person == 3:
        return third
    return inflect_second_person(third)


def inflect_first_person(infinitive: str) -> str:
    return infinitive[:-3] + "le" if infinitive.endswith("eln") else get_german_stem(infinitive) + "e"


def inflect_second_person(third: str) -> str:
    if third == "lädt":
        return "lädst"
    return third if third[-2] in "sßzx" else third[:-1] + "st"


@lru_cache(maxsize=1024)
def inflect_preterite(infinitive: str, person: int, plural: bool) -> str:
    stem = PRETERITE[infinitive]
    if plural:
        return stem + ("en" if stem == "war" else "n")
    return stem + "st" if person == 2 else stem


@lru_cache(maxsize=1024)
def inflect_imperative(verb: Verb) -> str:
    """Return the imperative: lies, gib, nimm; schlaf, trag; weak verbs with -e: kaufe, öffne, sammle."""
    stem = get_german_stem(verb.de)
    changed = verb.de_third[:-1]
    if verb.de.endswith("eln"):
        return inflect_first_person(verb.de)
    if not verb.de_third.startswith(stem) and "ä" not in verb.de_third:
        return changed
    return stem + "e" if needs_e(stem) or verb.de_participle.endswith("t") else stem


def inflect_finite(verb: str, third: str, subject: Entity | None, past: bool = False) -> str:
    person, plural = (3, False) if subject is None else (get_person(subject), is_plural(subject))
    return inflect_preterite(verb, person, plural) if past else inflect_present(verb, third, person, plural)


# ---- nouns and determiners


@lru_cache(maxsize=8192)
def decline_noun(noun: Noun, plural: bool, case: int) -> str:
    if plural:
        return noun.de_plural + ("n" if case == DATIVE and noun.de_plural[-1] not in "ns" else "")
    if noun.weak and case != NOMINATIVE:
        return noun.de_plural
    if case == GENITIVE and noun.gender != "f":
        return noun.de + find_genitive_ending(noun.de)
    return noun.de


def find_genitive_ending(noun: str) -> str:
    vowels = "aeiouäöüy"
    syllables = sum(
        letter in vowels and (index == 0 or noun.lower()[index - 1] not in vowels)
        for index, letter in enumerate(noun.lower())
    )
    return "es" if syllables == 1 or noun.endswith(("s", "ß", "z", "zt", "st", "nn", "lt", "nd")) else "s"


@lru_cache(maxsize=8192)
def decline_ein_word(stem: str, gender: str, case: int) -> str:
    return stem + look_up_form(EIN, gender, case)
