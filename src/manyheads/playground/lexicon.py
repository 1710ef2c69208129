"""The lexicon: the words of word_tables.py, parsed."""

from typing import Literal

from manyheads.playground.meaning import Adjective, Manner, Name, Noun, Place, Pronoun, Tense, Time, Verb
from manyheads.playground.word_tables import (
    ADJECTIVES,
    CITIES,
    DAYS,
    DEFAULT_COUNTERS,
    DEGREES,
    FREQUENCIES,
    GERMAN_NUMBERS,
    KOREAN_NUMBERS,
    MANNERS,
    MEASURES,
    NAMES,
    NOUNS,
    NUMBERS,
    PLACES,
    PRONOUNS,
    RAIN,
    REPORTING,
    SEASONS,
    SNOW,
    TIMES,
    VERBS,
)

GENDERS: dict[str, Literal["m", "f", "n"]] = {"der": "m", "die": "f", "das": "n"}


def parse_rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.strip()]


def parse_options(cell: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in cell.split() if word != "-")}


def form_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def parse_noun(cells: list[str], category: str) -> Noun:
    english, _, plural = cells[0].partition("/")
    korean, _, counter = cells[1].partition("/")
    article, _, german = cells[2].partition(" ")
    german, _, german_plural = german.partition("/")
    chosen = parse_options(cells[3]) if len(cells) > 3 else {}
    measure = MEASURES[chosen["measure"]] if "measure" in chosen else None
    usual_counter = "분" if "honored" in chosen else DEFAULT_COUNTERS.get(category, "개")
    always = {"-": "", "+": english}  # never plural, always plural
    return Noun(
        en=english,
        plural=always.get(plural, plural or form_plural(english)),
        ko=korean,
        counter=counter or (measure[2] if measure else usual_counter),
        de=german.removesuffix("*"),
        de_plural=german_plural,
        gender=GENDERS[article],
        category=category,
        weak=german.endswith("*"),
        feminine=chosen.get("fem", ""),
        sex=chosen.get("sex", ""),
        honored="honored" in chosen,
        measure=(*measure[:2], *measure[3:]) if measure else None,
        de_bare=category == "instrument",
    )


def parse_place(cells: list[str]) -> tuple[Place, list[str]]:
    word = parse_noun(cells[:3], "place")
    where, whither = cells[4].split()
    place = Place(word, f"{cells[3]} the {word.en}", f"to the {word.en}", where, whither)
    return place, cells[5].split()


def parse_city(line: str) -> Place:
    english, korean, german = line.split()
    word = Noun(english, "", korean, "", german, "", "n", "city")
    return Place(word, f"in {english}", f"to {english}", "in", "nach", proper=True)


def parse_pronoun(line: str) -> Pronoun:
    subject, object_, possessive, korean, person, plural, sex, *german = line.split()
    return Pronoun(
        subject,
        object_,
        possessive,
        korean,
        int(person),
        plural == "+",
        sex.strip("-"),
        (german[0], german[1], german[2]),
        german[3],
    )


def form_german_third_person(infinitive: str) -> str:
    stem = get_german_stem(infinitive)
    return stem + ("et" if needs_e(stem) else "t")


def get_german_stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def needs_e(stem: str) -> bool:
    """Return whether endings take an e: arbeit-et, öffn-et, zeichn-et; but lern-t, wohn-t."""
    clustered = stem[-1] in "nm" and (stem[-2] not in "aeiouäöürlhnm" or stem.endswith("chn"))
    return stem.endswith(("d", "t")) or clustered


def parse_verb(cells: list[str]) -> Verb:
    english, past = cells[0].replace("_", "\0").split()
    korean, _, korean_class = cells[1].partition(":")
    infinitive, *third, participle = [part.strip() for part in cells[2].split(",")]
    prefix, _, bare = infinitive.rpartition("-")
    chosen = parse_options(cells[5])
    return Verb(
        en=english.replace("\0", " "),
        en_past=past,
        ko=korean,
        ko_class=korean_class,
        ko_particle=chosen.get("ko", "을"),
        ko_goal=chosen.get("goal", "에"),
        ko_place=chosen.get("at", "에서"),
        de=bare,
        de_prefix=prefix,
        de_third=third[0] if third else form_german_third_person(bare),
        de_participle=participle.removeprefix("ist "),
        de_is=participle.startswith("ist "),
        de_object=chosen.get("de", "acc").replace("+", " "),
        subject_categories=tuple(cells[3].split()),
        object_categories=tuple(category for category in cells[4].split() if category != "-"),
        places=chosen.get("places", ""),
        manners=chosen.get("manners", ""),
        is_ditransitive="gives" in chosen,
        takes_goal="motion" in chosen,
        takes_location="stays" in chosen,
        needs_vehicle="ride" in chosen,
        is_sudden="sudden" in chosen,
        is_mishap="mishap" in chosen,
        is_long="long" in chosen,
        times=next((part for part in ("dawn", "dusk", "years") if part in chosen), ""),
        is_stative="state" in chosen,
    )


def parse_adjective(cells: list[str]) -> Adjective:
    korean, _, korean_class = cells[1].partition(":")
    korean, _, attributive = korean.partition("/")
    german, _, stem = cells[2].partition("/")
    only = cells[4] if len(cells) > 4 else ""
    return Adjective(
        en=cells[0],
        ko=korean,
        ko_class=korean_class,
        de=german,
        de_stem=stem or german,
        categories=tuple(cells[3].split()),
        attributive=only != "predicative",
        predicative=only != "attributive",
        ko_attributive=attributive,
    )


def make_calendar_times() -> list[Time]:
    either: tuple[Tense, ...] = ("past", "future")
    times = []
    for day in DAYS.split(";"):
        english, korean, german = day.split()
        times.append(Time(f"on {english}", f"{korean}에", f"am {german}", either))
        times.append(Time(f"every {english}", f"{korean}마다", f"jeden {german}", ("present",)))
    for season in SEASONS.split(";"):
        english, korean, german = season.split()
        times.append(Time(f"in {english}", f"{korean}에", f"im {german}", ("present",), scale="long"))
    for hour in range(1, 13):
        english, korean, german = NUMBERS[hour], KOREAN_NUMBERS[hour], GERMAN_NUMBERS[hour]
        always: tuple[Tense, ...] = ("present", "past", "future")
        times.append(
            Time(f"at {english} o'clock", f"{korean} 시에", f"um {german} Uhr", always, scale="clock")
        )
    return times


def make_appointment_times() -> list[Time]:
    """Return times like "yesterday at seven o'clock" and "on Monday at ten o'clock"."""
    days = [
        time for time in SIMPLE_TIMES if time.en in ("yesterday", "tomorrow") or time.en.startswith("on ")
    ]
    hours = [time for time in SIMPLE_TIMES if time.scale == "clock" and time.en.startswith("at ")]
    return [
        Time(
            f"{day.en} {hour.en}",
            f"{day.ko.removesuffix('에')} {hour.ko}",
            f"{day.de} {hour.de}",
            day.tenses,
            scale="clock",
        )
        for day in days
        for hour in hours
    ]


ALL_NOUNS = {
    category: tuple(parse_noun(row, category) for row in parse_rows(table))
    for category, table in NOUNS.items()
}
ALL_PLACES = tuple(parse_place(row) for row in parse_rows(PLACES))
ALL_CITIES = tuple(parse_city(line) for line in CITIES.strip().splitlines())
HOME = Place(
    Noun("home", "", "집", "", "Hause", "", "n", "home"), "at home", "home", "zu", "nach", proper=True
)
ALL_NAMES = tuple(Name(*line.split()) for line in NAMES.strip().splitlines())
I, HE, SHE, WE, THEY, YOU = (parse_pronoun(line) for line in PRONOUNS.strip().splitlines())  # noqa: E741
ALL_VERBS = tuple(parse_verb(row) for row in parse_rows(VERBS))
ALL_REPORTING = tuple(parse_verb(row) for row in parse_rows(REPORTING))
RAINING, SNOWING = parse_verb(parse_rows(RAIN)[0]), parse_verb(parse_rows(SNOW)[0])
ALL_ADJECTIVES = tuple(parse_adjective(row) for row in parse_rows(ADJECTIVES))
WEATHER_ADJECTIVES = tuple(
    Adjective(english, korean, "" if korean.endswith("하") else "ㅂ", german, german, ("weather",))
    for english, korean, german in (("cold", "춥", "kalt"), ("hot", "덥", "heiß"), ("warm", "따뜻하", "warm"))
)
ALL_MANNERS = tuple((Manner(*row[:3]), row[3].split()) for row in parse_rows(MANNERS))
ALL_DEGREES = tuple(Manner(*row) for row in parse_rows(DEGREES))
ALL_FREQUENCIES = tuple(
    Time(english, korean, german, ("present",), frequency=True)
    for english, korean, german in parse_rows(FREQUENCIES)
)
TODAY = Time("today", "오늘", "heute", ("past", "future"))
SIMPLE_TIMES = (
    TODAY,
    *(
        Time(english, korean, german, (tense,), scale="".join(scale))
        for tense, table in TIMES.items()
        for english, korean, german, *scale in parse_rows(table)
    ),
    *make_calendar_times(),
    *ALL_FREQUENCIES,
)
ALL_TIMES = (*SIMPLE_TIMES, *make_appointment_times())


def find_noun(english: str, category: str | None = None) -> Noun:
    """Return the noun of an English spelling, for meanings written by hand."""
    for name, nouns in ALL_NOUNS.items():
        for word in nouns:
            if word.en == english and category in (None, name):
                return word
    raise KeyError(english)


def find_verb(english: str, korean: str | None = None) -> Verb:
    return next(
        word for word in (*ALL_VERBS, *ALL_REPORTING) if word.en == english and korean in (None, word.ko)
    )


def find_adjective(english: str, korean: str | None = None) -> Adjective:
    return next(word for word in ALL_ADJECTIVES if word.en == english and korean in (None, word.ko))


def find_place(english: str) -> Place:
    if english == "home":
        return HOME
    return next(
        word for word in (*ALL_CITIES, *(place for place, _ in ALL_PLACES)) if word.noun.en == english
    )


def find_time(english: str) -> Time:
    return next(word for word in ALL_TIMES if word.en == english)


def find_manner(english: str) -> Manner:
    return next(word for word, _ in ALL_MANNERS if word.en == english)
