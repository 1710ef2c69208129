"""Sources whose translations a calibrated model must distrust: damaged sentences, and text of no domain.

Random choices depend on the seed alone.
"""

import random
from collections.abc import Callable, Sequence

REPLACED_SHARE, DROPPED_SHARE = 0.5, 0.3  # of the words
MIN_WORDS = 3  # of a sentence whose order can be damaged
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Corrupt = Callable[[list[str], Sequence[str], random.Random], list[str]]


def shuffle_words(words: list[str], vocabulary: Sequence[str], generator: random.Random) -> list[str]:
    """Return the words in another order."""
    shuffled = list(words)
    while shuffled == words and len(set(words)) > 1:
        generator.shuffle(shuffled)
    return shuffled


def replace_words(words: list[str], vocabulary: Sequence[str], generator: random.Random) -> list[str]:
    """Return the sentence with half of its words from other sentences."""
    chosen = set(generator.sample(range(len(words)), max(1, round(REPLACED_SHARE * len(words)))))
    return [generator.choice(vocabulary) if n in chosen else word for n, word in enumerate(words)]


def drop_words(words: list[str], vocabulary: Sequence[str], generator: random.Random) -> list[str]:
    """Return the sentence without some of its words."""
    num_dropped = max(1, round(DROPPED_SHARE * len(words)))
    chosen = set(generator.sample(range(len(words)), num_dropped))
    return [word for n, word in enumerate(words) if n not in chosen]


def capitalize_words(words: list[str], vocabulary: Sequence[str], generator: random.Random) -> list[str]:
    return [word.upper() for word in words]


CORRUPTIONS: dict[str, Corrupt] = {
    "shuffled": shuffle_words,
    "replaced": replace_words,
    "dropped": drop_words,
    "capitals": capitalize_words,
}


def corrupt_sources(sources: Sequence[str], corruption: str, count: int, seed: int) -> list[tuple[int, str]]:
    """Return `count` corrupted sources with the numbers of the originals, from all parts of the list."""
    generator = random.Random(f"{seed} {corruption}")
    usable = [n for n, source in enumerate(sources) if len(source.split()) >= MIN_WORDS]
    vocabulary = [word for source in sources for word in source.split()]
    chosen = sorted(generator.sample(usable, min(count, len(usable))))
    corrupt = CORRUPTIONS[corruption]
    return [(n, " ".join(corrupt(sources[n].split(), vocabulary, generator))) for n in chosen]


def make_letter_strings(count: int, seed: int) -> list[str]:
    """Return sentences of random words."""
    generator = random.Random(f"{seed} letters")

    def word() -> str:
        return "".join(generator.choices(LETTERS, k=generator.randint(2, 9)))

    return [
        " ".join(word() for _ in range(generator.randint(2, 12))).capitalize() + "." for _ in range(count)
    ]


def make_piece_salad(pieces: Sequence[str], count: int, seed: int) -> list[str]:
    """Return sentences of random pieces of the vocabulary, which start words where U+2581 says so."""
    generator = random.Random(f"{seed} pieces")
    plain = [piece for piece in pieces if not piece.startswith("<")]
    return [
        "".join(generator.choices(plain, k=generator.randint(4, 20))).replace("\u2581", " ").strip()
        for _ in range(count)
    ]


# Everyday sentences. Those in the language of the source are left out: a model may know them.
OFF_DOMAIN = {
    "en": [
        "The committee postponed its decision until next Thursday.",
        "Please restart the router and wait for the green light.",
        "Her latest novel sold over two million copies worldwide.",
        "Never mix bleach with other cleaning products.",
    ],
    "fr": [
        "Je ne sais pas pourquoi le train est encore en retard.",
        "Les enfants jouent dans le jardin depuis ce matin.",
        "Nous avons oublié d'acheter du pain pour demain.",
        "Il faudrait vérifier les freins avant de partir.",
    ],
    "es": [
        "¿Dónde puedo comprar un billete para el autobús?",
        "Mi hermana trabaja en un hospital cerca del puerto.",
        "No entiendo por qué cerraron la biblioteca.",
        "Mañana iremos a la playa si no llueve.",
    ],
    "it": [
        "Non ho mai visto una montagna così alta.",
        "Il medico gli ha consigliato di riposare qualche giorno.",
        "Quanto costa questo tavolo di legno?",
    ],
    "pt": [
        "O vizinho pediu emprestada a escada ontem à noite.",
        "As lojas fecham mais cedo aos domingos.",
        "Preciso trocar a lâmpada da cozinha.",
    ],
    "nl": [
        "De fiets staat al weken buiten in de regen.",
        "Kun je me uitleggen hoe dit apparaat werkt?",
        "Zij heeft gisteren haar sleutels verloren.",
    ],
    "de": [
        "Der Zug nach Hamburg fällt heute leider aus.",
        "Könnten Sie das Fenster bitte etwas öffnen?",
        "Seit gestern funktioniert die Heizung nicht mehr.",
    ],
    "pl": [
        "Nie mogę znaleźć swoich okularów.",
        "Dzieci wróciły ze szkoły bardzo zmęczone.",
        "Czy mógłbyś zamknąć drzwi?",
    ],
    "tr": [
        "Yarın sabah erkenden yola çıkmamız gerekiyor.",
        "Bu kitabı daha önce okumuş muydun?",
        "Komşumuzun köpeği bütün gece havladı.",
    ],
    "fi": [
        "En ole koskaan nähnyt niin suurta koiraa.",
        "Voisitko avata ikkunan, täällä on kuuma.",
        "Junat ovat tänään myöhässä lumen takia.",
    ],
    "ru": [
        "Вчера вечером мы долго говорили о работе.",
        "Где находится ближайшая аптека?",
        "Он забыл закрыть окно перед дождём.",
    ],
    "el": ["Δεν ξέρω πού έβαλα τα κλειδιά μου.", "Το λεωφορείο έρχεται κάθε είκοσι λεπτά."],
    "ar": ["لا أعرف لماذا تأخر القطار اليوم.", "هل يمكنك أن تغلق النافذة من فضلك؟"],
    "he": ["שכחתי את המטרייה שלי בבית.", "הילדים משחקים בחצר מהבוקר."],
    "hi": ["मुझे नहीं पता कि ट्रेन आज देर से क्यों आई।", "क्या आप खिड़की बंद कर सकते हैं?"],
    "ko": [
        "어제 산 우산을 버스에 두고 내렸어요.",
        "가까운 약국이 어디에 있는지 아세요?",
        "회의가 길어져서 점심을 못 먹었다.",
    ],
    "ja": [
        "昨日買った本をまだ読んでいません。",
        "駅までどのくらいかかりますか。",
        "雨が降りそうだから傘を持って行こう。",
    ],
    "zh": ["我不知道火车今天为什么晚点。", "请问附近有没有药店？", "孩子们从早上就在院子里玩。"],
    "vi": ["Hôm qua trời mưa suốt cả ngày.", "Bạn có thể chỉ cho tôi đường đến nhà ga không?"],
}  # fmt: skip


def list_foreign_sentences(language: str) -> list[str]:
    """Return the sentences in other languages than this one."""
    own = language.replace("_", "-").partition("-")[0].lower()
    return [text for code, texts in OFF_DOMAIN.items() if code != own for text in texts]
