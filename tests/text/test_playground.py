"""The built-in corpus: what a native reader expects of each sentence, written by hand."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from manyheads import demo
from manyheads.errors import ConfigError, DataError
from manyheads.playground import (
    CONSTRUCTIONS,
    PlaygroundExample,
    assign_split,
    generate_corpus,
    generate_examples,
    lexicon,
)
from manyheads.playground.english import realize_english
from manyheads.playground.german import realize_german
from manyheads.playground.korean import realize_korean
from manyheads.playground.korean_morphology import add_particle
from manyheads.playground.lexicon import (
    HE,
    HOME,
    RAINING,
    SHE,
    THEY,
    WE,
    YOU,
    I,
    find_adjective,
    find_manner,
    find_noun,
    find_place,
    find_time,
    find_verb,
)
from manyheads.playground.meaning import (
    GAP,
    Adjective,
    CausalSentence,
    Clause,
    CompoundSentence,
    Coordination,
    ExistentialClause,
    Manner,
    Name,
    Noun,
    Phrase,
    Place,
    ReportedSpeech,
    Sentence,
    Time,
    Verb,
    WeatherClause,
)
from manyheads.playground.sentences import SentenceSampler


def do(verb: str, subject: Any = I, object_: Any = None, **rest: Any) -> Clause:
    return Clause(find_verb(verb, rest.pop("ko", None)), subject, object_, **rest)


def the(noun: str, **rest: Any) -> Phrase:
    return Phrase(find_noun(noun), **rest)


def a(noun: str, **rest: Any) -> Phrase:
    return Phrase(find_noun(noun), "a", **rest)


def some(noun: str, **rest: Any) -> Phrase:
    return Phrase(find_noun(noun), "", **rest)


def count(number: int, noun: str, **rest: Any) -> Phrase:
    return Phrase(find_noun(noun), "", count=number, **rest)


def my(noun: str, owner: Any = I, **rest: Any) -> Phrase:
    return Phrase(find_noun(noun), "", possessor=owner, **rest)


def be(adjective: str, subject: Any, **rest: Any) -> Clause:
    return Clause(find_adjective(adjective, rest.pop("ko", None)), subject, **rest)


def name(english_name: str) -> Name:
    return next(name for name in lexicon.ALL_NAMES if name.en == english_name)


def adjective(english_word: str) -> Any:
    return find_adjective(english_word)


def place(english_word: str) -> Any:
    return find_place(english_word)


MINA, MINHO, ANNA = name("Mina"), name("Minho"), name("Anna")
MY_GRANDMOTHER = my("grandmother")
GO_HOME = do("go", goal=HOME)
READ_BOOK = do("read", object_=a("book"))


WORD = re.compile(r"\w+")


def on(day: str) -> Any:
    return find_time(day)


KOREAN: list[tuple[Sentence, str, str]] = [
    # tense and contraction
    (GO_HOME, "I go home.", "나는 집에 간다."),
    (replace(GO_HOME, tense="past"), "I went home.", "나는 집에 갔다."),
    (replace(GO_HOME, tense="future"), "I will go home.", "나는 집에 갈 것이다."),
    (replace(GO_HOME, tense="progressive"), "I am going home.", "나는 집에 가고 있다."),
    (do("come", HE, goal=HOME, tense="past"), "He came home.", "그는 집에 왔다."),
    (do("drink", SHE, some("milk"), tense="past"), "She drank milk.", "그녀는 우유를 마셨다."),
    (do("study", WE, some("English"), tense="past"), "We studied English.", "우리는 영어를 공부했다."),
    (do("see", THEY, the("dog"), tense="past"), "They saw the dog.", "그들은 개를 봤다."),
    # irregular stems: ㅂ ㄷ ㅅ 르 ㄹ 으 ㅎ 하
    (do("help", HE, SHE, tense="past"), "He helped her.", "그는 그녀를 도왔다."),
    (do("bake", SHE, a("cake"), tense="past"), "She baked a cake.", "그녀는 케이크를 구웠다."),
    (do("walk", MINA, tense="past"), "Mina walked.", "미나는 걸었다."),
    (do("walk", MINA, tense="future"), "Mina will walk.", "미나는 걸을 것이다."),
    (do("build", WE, a("house"), tense="past"), "We built a house.", "우리는 집을 지었다."),
    (do("sing", SHE, a("song"), tense="past"), "She sang a song.", "그녀는 노래를 불렀다."),
    (do("choose", HE, the("hat"), tense="past"), "He chose the hat.", "그는 모자를 골랐다."),
    (do("live", HE, goal=place("Seoul")), "He lives in Seoul.", "그는 서울에 산다."),
    (do("write", SHE, a("letter"), tense="past"), "She wrote a letter.", "그녀는 편지를 썼다."),
    (
        do("collect", HE, some("stamp", plural=True), tense="past"),
        "He collected stamps.",
        "그는 우표를 모았다.",
    ),
    (be("busy", I, tense="past"), "I was busy.", "나는 바빴다."),
    (be("red", the("rose"), tense="past"), "The rose was red.", "장미는 빨갰다."),
    (be("lazy", HE, tense="past"), "He was lazy.", "그는 게을렀다."),
    # adjectives before the noun
    (
        do("wear", HE, a("coat", adjective=adjective("red"))),
        "He wears a red coat.",
        "그는 빨간 코트를 입는다.",
    ),
    (
        do("hug", SHE, the("cat", adjective=adjective("cute"))),
        "She hugs the cute cat.",
        "그녀는 귀여운 고양이를 안는다.",
    ),
    (
        do("read", SHE, a("novel", adjective=adjective("long"))),
        "She reads a long novel.",
        "그녀는 긴 소설을 읽는다.",
    ),
    (
        do("eat", I, some("bread", adjective=adjective("delicious"))),
        "I eat delicious bread.",
        "나는 맛있는 빵을 먹는다.",
    ),
    (do("buy", HE, a("car", adjective=adjective("new"))), "He buys a new car.", "그는 새 자동차를 산다."),
    (be("big", the("house"), negative=True), "The house is not big.", "집은 크지 않다."),
    (be("kind", SHE), "She is kind.", "그녀는 친절하다."),
    (be("cold", Phrase(place("kitchen").noun), ko="춥"), "The kitchen is cold.", "부엌은 춥다."),
    # negation
    (replace(READ_BOOK, negative=True), "I do not read a book.", "나는 책을 읽지 않는다."),
    (replace(GO_HOME, negative=True, tense="past"), "I did not go home.", "나는 집에 가지 않았다."),
    (do("know", HE, I, negative=True), "He does not know me.", "그는 나를 모른다."),
    (Clause(find_noun("doctor"), HE, negative=True), "He is not a doctor.", "그는 의사가 아니다."),
    (Clause(find_noun("teacher"), SHE), "She is a teacher.", "그녀는 선생님이다."),
    # modals
    (do("swim", I, modal="can"), "I can swim.", "나는 수영할 수 있다."),
    (do("swim", I, modal="can", negative=True), "I cannot swim.", "나는 수영할 수 없다."),
    (do("sleep", I, modal="want"), "I want to sleep.", "나는 자고 싶다."),
    (do("sleep", SHE, modal="want"), "She wants to sleep.", "그녀는 자고 싶어 한다."),
    (do("help", WE, HE, modal="must"), "We have to help him.", "우리는 그를 도와야 한다."),
    (do("work", HE, modal="must", negative=True), "He does not have to work.", "그는 일하지 않아도 된다."),
    # questions and commands
    (do("read", YOU, a("book"), question="yes"), "Do you read a book?", "너는 책을 읽니?"),
    (do("live", YOU, question="where"), "Where do you live?", "너는 어디에 사니?"),
    (do("work", HE, question="where"), "Where does he work?", "그는 어디에서 일하니?"),
    (do("eat", HE, a("cake"), question="who", tense="past"), "Who ate a cake?", "누가 케이크를 먹었니?"),
    (do("buy", YOU, question="what", tense="future"), "What will you buy?", "너는 무엇을 살 거니?"),
    (do("call", SHE, question="whom", tense="past"), "Who did she call?", "그녀는 누구에게 전화했니?"),
    (
        do("come", MINHO, goal=HOME, question="when", tense="past"),
        "When did Minho come home?",
        "민호는 언제 집에 왔니?",
    ),
    (do("cry", YOU, question="why", tense="progressive"), "Why are you crying?", "너는 왜 울고 있니?"),
    (do("open", None, the("window")), "Open the window.", "창문을 열어라."),
    (do("open", None, the("window"), negative=True), "Do not open the window.", "창문을 열지 마라."),
    # particles
    (do("meet", name("Sujin"), MINA), "Sujin meets Mina.", "수진은 미나를 만난다."),
    (
        do("go", MINA, goal=place("museum"), means=find_noun("subway"), ko="가"),
        "Mina goes to the museum by subway.",
        "미나는 지하철로 박물관에 간다.",
    ),
    (
        do("eat", I, some("rice"), means=find_noun("spoon", "cutlery")),
        "I eat rice with a spoon.",
        "나는 숟가락으로 밥을 먹는다.",
    ),
    (
        do("give", I, a("book"), recipient=the("child"), tense="past"),
        "I gave the child a book.",
        "나는 아이에게 책을 줬다.",
    ),
    (
        do("read", I, a("book"), place=place("library")),
        "I read a book in the library.",
        "나는 도서관에서 책을 읽는다.",
    ),
    (
        do("eat", I, a("apple"), companion=my("friend")),
        "I eat an apple with my friend.",
        "나는 친구와 함께 사과를 먹는다.",
    ),
    (do("walk", Coordination(MINHO, I)), "Minho and I walk.", "민호와 나는 걷는다."),
    (do("play", Coordination(name("Sujin"), MINA)), "Sujin and Mina play.", "수진과 미나는 논다."),
    # possession
    (do("love", I, my("mother")), "I love my mother.", "나는 어머니를 사랑한다."),
    (do("love", HE, my("dog", HE)), "He loves his dog.", "그는 자신의 개를 사랑한다."),
    (do("love", HE, my("dog", SHE)), "He loves her dog.", "그는 그녀의 개를 사랑한다."),
    (do("sell", I, my("car")), "I sell my car.", "나는 내 자동차를 판다."),
    (
        do("repair", HE, my("lamp", WE, adjective=adjective("old"))),
        "He repairs our old lamp.",
        "그는 우리의 오래된 램프를 고친다.",
    ),
    (do("borrow", I, my("book", MINA)), "I borrow Mina's book.", "나는 미나의 책을 빌린다."),
    # numbers with counters; topic or subject
    (do("buy", I, count(5, "book"), tense="past"), "I bought five books.", "나는 책 다섯 권을 샀다."),
    (do("drink", HE, count(3, "coffee")), "He drinks three cups of coffee.", "그는 커피 세 잔을 마신다."),
    (do("smile", count(2, "student")), "Two students smile.", "학생 두 명이 미소 짓는다."),
    (
        do("wash", I, count(4, "socks", plural=True)),
        "I wash four pairs of socks.",
        "나는 양말 네 켤레를 빤다.",
    ),
    (
        ExistentialClause(count(3, "cat"), place("garden")),
        "There are three cats in the garden.",
        "정원에 고양이 세 마리가 있다.",
    ),
    (
        ExistentialClause(a("cat"), place("garden"), negative=True),
        "There is no cat in the garden.",
        "정원에 고양이가 없다.",
    ),
    # relative clauses: their subject takes 이/가
    (
        do("like", I, the("book", relative=do("write", the("teacher"), GAP, tense="past"))),
        "I like the book that the teacher wrote.",
        "나는 선생님이 쓴 책을 좋아한다.",
    ),
    (
        do("smile", the("man", relative=do("live", GAP, goal=place("Busan")))),
        "The man who lives in Busan smiles.",
        "부산에 사는 남자는 미소 짓는다.",
    ),
    (
        do("buy", SHE, the("bag", relative=do("choose", I, GAP, tense="past")), tense="past"),
        "She bought the bag that I chose.",
        "그녀는 내가 고른 가방을 샀다.",
    ),
    # and catch neither the time nor the recipient of the main clause
    (
        do(
            "sleep",
            the("man", relative=do("live", GAP, goal=place("Busan"), tense="past")),
            time=on("yesterday"),
            fronted=True,
            tense="past",
        ),
        "Yesterday the man who lived in Busan slept.",
        "부산에 살던 남자는 어제 잤다.",
    ),
    (
        do("lend", I, the("book", relative=do("borrow", MINHO, GAP, tense="past")), recipient=MINA),
        "I lend Mina the book that Minho borrowed.",
        "나는 민호가 빌린 책을 미나에게 빌려준다.",
    ),
    # two clauses
    (
        CompoundSentence(do("drink", MINA, some("tea")), "and", do("drink", MINHO, some("coffee"))),
        "Mina drinks tea, and Minho drinks coffee.",
        "미나는 차를 마시고 민호는 커피를 마신다.",
    ),
    (
        CompoundSentence(do("dance", MINA, tense="past"), "but", do("dance", I, tense="past", negative=True)),
        "Mina danced, but I did not dance.",
        "미나는 춤췄지만 나는 춤추지 않았다.",
    ),
    (
        CausalSentence(replace(GO_HOME, subject=SHE, tense="past"), be("tired", SHE, tense="past")),
        "She went home because she was tired.",
        "그녀는 피곤해서 집에 갔다.",
    ),
    (
        CausalSentence(do("stay", WE, goal=HOME, tense="past"), WeatherClause(RAINING, tense="past")),
        "We stayed at home because it rained.",
        "비가 와서 우리는 집에 머물렀다.",
    ),
    (
        ReportedSpeech(I, find_verb("think"), be("interesting", the("movie"))),
        "I think that the movie is interesting.",
        "나는 영화가 재미있다고 생각한다.",
    ),
    (
        ReportedSpeech(MINA, find_verb("say"), Clause(find_noun("doctor"), HE)),
        "Mina says that he is a doctor.",
        "미나는 그가 의사라고 말한다.",
    ),
    (
        ReportedSpeech(HE, find_verb("say"), be("dirty", my("cup", HE))),
        "He says that his cup is dirty.",
        "그는 자신의 컵이 더럽다고 말한다.",
    ),
    (
        do("smile", the("child", plural=True, relative=do("read", GAP, some("book", plural=True)))),
        "The children who read books smile.",
        "책을 읽는 아이들은 미소 짓는다.",
    ),
    (
        do("speak", SHE, some("German"), manner=find_manner("well")),
        "She speaks German well.",
        "그녀는 독일어를 잘한다.",
    ),
    # what one does not choose to do, one fails to do
    (do("understand", HE, WE, negative=True), "He does not understand us.", "그는 우리를 이해하지 못한다."),
    (
        do("see", HE, I, negative=True, tense="past"),
        "He did not see me.",
        "그는 나를 보지 못했다.",
    ),
    (
        do("find", HE, the("key"), negative=True, tense="past"),
        "He did not find the key.",
        "그는 열쇠를 발견하지 못했다.",
    ),
    (
        do("speak", HE, some("English"), negative=True),
        "He does not speak English.",
        "그는 영어를 하지 못한다.",
    ),
    (
        do("watch", HE, the("movie"), negative=True, tense="past"),
        "He did not watch the movie.",
        "그는 영화를 보지 않았다.",
    ),
    # each thing with its verb
    (
        do("look for", HE, the("key"), tense="past"),
        "He looked for the key.",
        "그는 열쇠를 찾아다녔다.",
    ),
    (do("play", HE, some("soccer"), ko="하"), "He plays soccer.", "그는 축구를 한다."),
    (do("play", HE, some("tennis"), ko="치"), "He plays tennis.", "그는 테니스를 친다."),
    (do("play", HE, some("chess"), ko="두", tense="past"), "He played chess.", "그는 체스를 뒀다."),
    (do("play", HE, the("drums"), ko="치"), "He plays the drums.", "그는 드럼을 친다."),
    (
        do("build", HE, a("bridge"), ko="건설하", tense="past"),
        "He built a bridge.",
        "그는 다리를 건설했다.",
    ),
    (do("ask", HE, MINA, tense="future"), "He will ask Mina.", "그는 미나에게 물어볼 것이다."),
    (
        do("plant", SHE, a("tree"), place=place("garden"), tense="past"),
        "She planted a tree in the garden.",
        "그녀는 정원에 나무를 심었다.",
    ),
    # a couple with me in it; what lasted; elders
    (
        ReportedSpeech(SHE, find_verb("say"), do("dance", Coordination(MINHO, I), tense="past")),
        "She says that Minho and I danced.",
        "그녀는 민호와 내가 춤췄다고 말한다.",
    ),
    (
        ReportedSpeech(SHE, find_verb("say"), do("dance", Coordination(MINHO, ANNA), tense="past")),
        "She says that Minho and Anna danced.",
        "그녀는 민호와 안나가 춤췄다고 말한다.",
    ),
    (
        do("smile", the("man", relative=do("know", WE, GAP, tense="past"))),
        "The man who we knew smiles.",
        "우리가 알던 남자는 미소 짓는다.",
    ),
    (do("call", SHE, my("aunt")), "She calls my aunt.", "그녀는 우리 이모에게 전화한다."),
    # the subject's own family has no possessor, that of others has one
    (do("love", HE, my("mother", HE)), "He loves his mother.", "그는 어머니를 사랑한다."),
    (do("love", HE, my("mother", SHE)), "He loves her mother.", "그는 그녀의 어머니를 사랑한다."),
    (do("wait for", WE, my("friend", WE)), "We wait for our friend.", "우리는 친구를 기다린다."),
    (
        ReportedSpeech(I, find_verb("think"), be("tired", my("father"))),
        "I think that my father is tired.",
        "나는 아버지가 피곤하다고 생각한다.",
    ),
    (
        CompoundSentence(do("dance", HE), "and", do("sing", my("uncle", HE), a("song"))),
        "He dances, and his uncle sings a song.",
        "그는 춤추고 삼촌은 노래를 부른다.",
    ),
    (
        CompoundSentence(do("dance", HE), "and", do("sing", my("uncle", SHE), a("song"))),
        "He dances, and her uncle sings a song.",
        "그는 춤추고 그녀의 삼촌은 노래를 부른다.",
    ),
    # names, counters, and words that a native speaker prefers
    (do("meet", name("Peter"), name("Paul")), "Peter meets Paul.", "피터는 폴을 만난다."),
    (do("meet", name("Julia"), name("Martin")), "Julia meets Martin.", "줄리아는 마틴을 만난다."),
    (do("smile", count(2, "teacher")), "Two teachers smile.", "선생님 두 분이 미소 짓는다."),
    (do("smile", count(3, "guest")), "Three guests smile.", "손님 세 분이 미소 짓는다."),
    (
        do("see", I, the("man", adjective=adjective("strong"))),
        "I see the strong man.",
        "나는 힘센 남자를 본다.",
    ),
    (be("strong", HE, tense="past"), "He was strong.", "그는 힘이 셌다."),
    (do("see", I, the("man", adjective=adjective("tall"))), "I see the tall man.", "나는 키 큰 남자를 본다."),
    (do("break", HE, the("cup"), tense="past"), "He broke the cup.", "그는 컵을 깼다."),
    (do("wake up", HE, tense="past"), "He woke up.", "그는 잠에서 깼다."),
    (do("thank", I, MINA, tense="past"), "I thanked Mina.", "나는 미나에게 감사를 전했다."),
    (do("walk", I, place=place("park")), "I walk in the park.", "나는 공원을 걷는다."),
    # simple sentences of textbooks
    (do("take a rest", I, tense="past"), "I took a rest.", "나는 쉬었다."),
    (
        do("eat", I, some("lunch"), tense="past", time=on("today")),
        "I ate lunch today.",
        "나는 오늘 점심을 먹었다.",
    ),
    (do("go", I, goal=place("school"), tense="past"), "I went to the school.", "나는 학교에 갔다."),
    (do("come back", I, goal=HOME, tense="past"), "I came back home.", "나는 집으로 돌아왔다."),
    (do("come back", HE, goal=place("school")), "He comes back to the school.", "그는 학교로 돌아온다."),
    (do("love", I, YOU), "I love you.", "나는 너를 사랑한다."),
    (do("give", I, a("book"), recipient=YOU), "I give you a book.", "나는 너에게 책을 준다."),
    # a and an
    (do("wash", HE, a("uniform")), "He washes a uniform.", "그는 제복을 빤다."),
    (
        ExistentialClause(a("doctor", adjective=adjective("honest")), place("hospital")),
        "There is an honest doctor in the hospital.",
        "병원에 정직한 의사가 있다.",
    ),
    # time and manner
    (
        do("meet", I, MINHO, tense="past", time=on("yesterday"), fronted=True),
        "Yesterday I met Minho.",
        "어제 나는 민호를 만났다.",
    ),
    (do("get up", I, time=on("at six o'clock")), "I get up at six o'clock.", "나는 여섯 시에 일어난다."),
    (
        do("walk", the("child"), manner=find_manner("slowly"), tense="progressive"),
        "The child is walking slowly.",
        "아이는 천천히 걷고 있다.",
    ),
    (do("call", HE, the("teacher", plural=True)), "He calls the teachers.", "그는 선생님들에게 전화한다."),
]

POLITE: list[tuple[Sentence, str]] = [
    (GO_HOME, "저는 집에 가요."),
    (replace(GO_HOME, tense="past"), "저는 집에 갔어요."),
    (replace(GO_HOME, tense="future"), "저는 집에 갈 거예요."),
    (do("help", MINA, I), "미나는 저를 도와요."),
    (Clause(find_noun("doctor"), HE), "그는 의사예요."),
    (Clause(find_noun("student"), HE), "그는 학생이에요."),
    (Clause(find_noun("student"), HE, negative=True), "그는 학생이 아니에요."),
    (do("live", YOU, question="where"), "어디에 살아요?"),
    (do("eat", None, the("bread")), "빵을 드세요."),
    (do("open", None, the("door")), "문을 여세요."),
    (do("open", None, the("door"), negative=True), "문을 열지 마세요."),
    (do("sell", I, my("car")), "저는 제 자동차를 팔아요."),
    (be("lonely", SHE), "그녀는 외로워요."),
    (ReportedSpeech(HE, find_verb("say"), replace(GO_HOME, tense="past")), "그는 제가 집에 갔다고 말해요."),
    (
        ReportedSpeech(HE, find_verb("say"), do("dance", Coordination(MINHO, I))),
        "그는 민호와 제가 춤춘다고 말해요.",
    ),
    # who is honored: the subject with 께서 and -시-, the recipient with 께 and its own verbs
    (replace(GO_HOME, subject=MY_GRANDMOTHER), "우리 할머니께서는 집에 가세요."),
    (replace(GO_HOME, subject=MY_GRANDMOTHER, tense="past"), "우리 할머니께서는 집에 가셨어요."),
    (replace(GO_HOME, subject=MY_GRANDMOTHER, tense="future"), "우리 할머니께서는 집에 가실 거예요."),
    (replace(GO_HOME, subject=MY_GRANDMOTHER, tense="progressive"), "우리 할머니께서는 집에 가고 계세요."),
    (replace(GO_HOME, subject=MY_GRANDMOTHER, negative=True), "우리 할머니께서는 집에 가지 않으세요."),
    (do("sleep", MY_GRANDMOTHER, negative=True, tense="past"), "우리 할머니께서는 주무시지 않았어요."),
    (
        do("sleep", MY_GRANDMOTHER, negative=True, tense="progressive"),
        "우리 할머니께서는 주무시고 계시지 않아요.",
    ),
    (do("eat", MY_GRANDMOTHER, some("rice"), tense="past"), "우리 할머니께서는 밥을 드셨어요."),
    (do("open", MY_GRANDMOTHER, the("door"), modal="can"), "우리 할머니께서는 문을 여실 수 있어요."),
    (do("sleep", MY_GRANDMOTHER, modal="want"), "우리 할머니께서는 주무시고 싶어 하세요."),
    (do("work", MY_GRANDMOTHER, modal="must"), "우리 할머니께서는 일하셔야 해요."),
    (do("work", MY_GRANDMOTHER, modal="must", negative=True), "우리 할머니께서는 일하지 않으셔도 돼요."),
    (do("know", MY_GRANDMOTHER, I, negative=True), "우리 할머니께서는 저를 모르세요."),
    (do("see", MY_GRANDMOTHER, the("dog"), negative=True), "우리 할머니께서는 개를 보지 못하세요."),
    (do("have", MY_GRANDMOTHER, a("car")), "우리 할머니께서는 자동차를 가지고 계세요."),
    (be("busy", MY_GRANDMOTHER, tense="past"), "우리 할머니께서는 바쁘셨어요."),
    (be("sick", MY_GRANDMOTHER), "우리 할머니께서는 편찮으세요."),
    (Clause(find_noun("doctor"), MY_GRANDMOTHER), "우리 할머니께서는 의사세요."),
    (Clause(find_noun("teacher"), MY_GRANDMOTHER, tense="past"), "우리 할머니께서는 선생님이셨어요."),
    (Clause(find_noun("doctor"), MY_GRANDMOTHER, negative=True), "우리 할머니께서는 의사가 아니세요."),
    (
        do("give", MY_GRANDMOTHER, a("gift"), recipient=I, tense="past"),
        "우리 할머니께서는 저에게 선물을 주셨어요.",
    ),
    (do("give", I, a("gift"), recipient=MY_GRANDMOTHER, tense="past"), "저는 할머니께 선물을 드렸어요."),
    (do("show", HE, the("map"), recipient=MY_GRANDMOTHER), "그는 우리 할머니께 지도를 보여 드려요."),
    (do("call", I, MY_GRANDMOTHER, tense="past"), "저는 할머니께 전화드렸어요."),
    (do("send", I, a("letter"), recipient=MY_GRANDMOTHER), "저는 할머니께 편지를 보내 드려요."),
    (
        do("lend", I, a("book"), recipient=the("teacher"), tense="past"),
        "저는 선생님께 책을 빌려드렸어요.",
    ),
    (do("drink", MY_GRANDMOTHER, some("tea")), "우리 할머니께서는 차를 드세요."),
    (do("help", I, the("guest")), "저는 손님을 도와드려요."),
    (do("ask", None, the("teacher")), "선생님께 여쭤보세요."),
    (do("sleep", None), "주무세요."),
    (do("go", count(2, "teacher"), goal=HOME, tense="past"), "선생님 두 분이 집에 가셨어요."),
    (ExistentialClause(count(2, "guest"), place("park")), "공원에 손님 두 분이 계세요."),
    (ExistentialClause(a("guest"), place("park"), negative=True), "공원에 손님이 안 계세요."),
    (
        do("like", I, the("book", relative=do("write", the("teacher"), GAP, tense="past"))),
        "저는 선생님께서 쓰신 책을 좋아해요.",
    ),
    (
        do("like", I, the("teacher", relative=do("live", GAP, goal=place("Busan"), tense="past"))),
        "저는 부산에 사시던 선생님을 좋아해요.",
    ),
    (
        do("like", I, the("teacher", relative=do("help", WE, GAP, tense="past"))),
        "저는 우리가 도와드린 선생님을 좋아해요.",
    ),
    (
        ReportedSpeech(MY_GRANDMOTHER, find_verb("say"), be("tired", the("teacher"))),
        "우리 할머니께서는 선생님께서 피곤하시다고 말씀하세요.",
    ),
    (
        CausalSentence(do("take a rest", MY_GRANDMOTHER, tense="past"), be("tired", MY_GRANDMOTHER)),
        "우리 할머니께서는 피곤하셔서 쉬셨어요.",
    ),
    # the listener as an object; the future as it is spoken
    (do("love", I, YOU), "저는 당신을 사랑해요."),
    (
        ReportedSpeech(I, find_verb("think"), do("dance", MINA, tense="future")),
        "저는 미나가 춤출 거라고 생각해요.",
    ),
]

GERMAN: list[tuple[Sentence, str]] = [
    # tenses
    (GO_HOME, "Ich gehe nach Hause."),
    (replace(GO_HOME, tense="past"), "Ich bin nach Hause gegangen."),
    (replace(GO_HOME, tense="future"), "Ich werde nach Hause gehen."),
    (replace(READ_BOOK, tense="progressive"), "Ich lese gerade ein Buch."),
    (replace(READ_BOOK, tense="past"), "Ich habe ein Buch gelesen."),
    (do("have", WE, a("car"), tense="past"), "Wir hatten ein Auto."),
    (do("like", HE, some("cat", plural=True), tense="past"), "Er mochte Katzen."),
    (do("know", THEY, the("man"), tense="past"), "Sie kannten den Mann."),
    (be("tired", WE, tense="past"), "Wir waren müde."),
    (be("happy", SHE, tense="future"), "Sie wird glücklich sein."),
    # cases and weak nouns
    (do("see", I, the("man")), "Ich sehe den Mann."),
    (do("see", I, the("woman")), "Ich sehe die Frau."),
    (do("see", I, the("girl")), "Ich sehe das Mädchen."),
    (do("ask", HE, the("student")), "Er fragt den Studenten."),
    (do("help", SHE, the("boy")), "Sie hilft dem Jungen."),
    (do("help", I, the("child", plural=True)), "Ich helfe den Kindern."),
    (do("follow", HE, SHE, tense="past"), "Er ist ihr gefolgt."),
    (do("give", I, a("ring"), recipient=the("woman")), "Ich gebe der Frau einen Ring."),
    (do("give", I, the("key"), recipient=HE, tense="past"), "Ich habe ihm den Schlüssel gegeben."),
    (do("wait for", WE, my("neighbor", WE)), "Wir warten auf unseren Nachbarn."),
    (do("talk with", SHE, the("guest", plural=True)), "Sie spricht mit den Gästen."),
    # adjective endings
    (do("buy", I, a("coat", adjective=adjective("red"))), "Ich kaufe einen roten Mantel."),
    (do("buy", I, the("coat", adjective=adjective("red"))), "Ich kaufe den roten Mantel."),
    (do("read", I, a("book", adjective=adjective("interesting"))), "Ich lese ein interessantes Buch."),
    (do("drink", I, some("tea", adjective=adjective("hot"))), "Ich trinke heißen Tee."),
    (do("drink", I, some("milk", adjective=adjective("hot"))), "Ich trinke heiße Milch."),
    (do("help", I, my("friend", adjective=adjective("sick"))), "Ich helfe meinem kranken Freund."),
    (do("eat", I, count(3, "apple", adjective=adjective("sweet"))), "Ich esse drei süße Äpfel."),
    (do("hug", the("singer", adjective=adjective("tired")), I), "Der müde Sänger umarmt mich."),
    (be("busy", the("singer")), "Der Sänger ist beschäftigt."),
    (do("see", I, the("singer", adjective=adjective("busy"))), "Ich sehe den vielbeschäftigten Sänger."),
    (be("expensive", the("car")), "Das Auto ist teuer."),
    (do("buy", HE, a("car", adjective=adjective("expensive"))), "Er kauft ein teures Auto."),
    (do("sell", I, my("car", MINA, adjective=adjective("old"))), "Ich verkaufe Minas altes Auto."),
    (
        do("wear", HE, Phrase(find_noun("hat"), "this", adjective=adjective("old")), ko="쓰"),
        "Er trägt diesen alten Hut.",
    ),
    # possession
    (do("read", I, my("book", the("teacher"))), "Ich lese das Buch des Lehrers."),
    (do("read", I, my("book", the("student"))), "Ich lese das Buch des Studenten."),
    (do("read", I, my("book", the("woman"))), "Ich lese das Buch der Frau."),
    (do("love", SHE, my("dog", the("child"))), "Sie liebt den Hund des Kindes."),
    (do("visit", I, my("grandmother")), "Ich besuche meine Großmutter."),
    # word order: verb second, separable verbs, adverbials
    (do("get up", I, manner=find_manner("early")), "Ich stehe früh auf."),
    (do("get up", I, tense="past", time=on("at six o'clock")), "Ich bin um sechs Uhr aufgestanden."),
    (
        do("meet", I, MINHO, tense="past", time=on("yesterday"), fronted=True),
        "Gestern habe ich Minho getroffen.",
    ),
    (
        do("see", the("teacher"), HE, tense="past", time=on("yesterday"), fronted=True),
        "Gestern hat ihn der Lehrer gesehen.",
    ),
    (
        do("see", the("teacher"), SHE, tense="past", time=on("yesterday"), fronted=True),
        "Gestern hat der Lehrer sie gesehen.",
    ),
    (do("invite", HE, SHE, time=on("often")), "Er lädt sie oft ein."),
    (do("play", MINA, Phrase(find_noun("piano")), ko="치"), "Mina spielt Klavier."),
    # reflexive verbs, meals, and the listener as an object
    (do("take a rest", I, tense="past"), "Ich habe mich ausgeruht."),
    (do("take a rest", YOU, question="yes"), "Ruhst du dich aus?"),
    (do("take a rest", Coordination(MINA, I)), "Mina und ich ruhen uns aus."),
    (
        do("take a rest", the("teacher"), tense="past", time=on("yesterday"), fronted=True),
        "Gestern hat der Lehrer sich ausgeruht.",
    ),
    (do("take a rest", None), "Ruhe dich aus!"),
    (
        ReportedSpeech(HE, find_verb("say"), do("take a rest", WE, tense="past")),
        "Er sagt, dass wir uns ausgeruht haben.",
    ),
    (do("eat", I, some("lunch"), tense="past", time=on("today")), "Ich habe heute zu Mittag gegessen."),
    (do("eat", I, some("lunch"), tense="past", negative=True), "Ich habe nicht zu Mittag gegessen."),
    (do("eat", I, some("dinner"), companion=MINA), "Ich esse mit Mina zu Abend."),
    (do("come back", I, goal=HOME, tense="past"), "Ich bin nach Hause zurückgekommen."),
    (do("love", I, YOU), "Ich liebe dich."),
    (
        do("see", the("teacher"), YOU, tense="past", time=on("yesterday"), fronted=True),
        "Gestern hat dich der Lehrer gesehen.",
    ),
    # two-way prepositions and contractions
    (do("go", I, goal=place("park")), "Ich gehe in den Park."),
    (do("go", I, goal=place("cinema")), "Ich gehe ins Kino."),
    (do("go", I, goal=place("school")), "Ich gehe zur Schule."),
    (do("go", I, goal=place("station")), "Ich gehe zum Bahnhof."),
    (do("go", I, goal=place("beach")), "Ich gehe an den Strand."),
    (do("read", I, a("book"), place=place("park")), "Ich lese im Park ein Buch."),
    (do("read", I, the("book"), place=place("library")), "Ich lese das Buch in der Bibliothek."),
    (do("arrive", WE, goal=place("station"), tense="past"), "Wir sind am Bahnhof angekommen."),
    (do("live", HE, goal=place("farm")), "Er wohnt auf dem Bauernhof."),
    # nicht and kein
    (replace(READ_BOOK, negative=True), "Ich lese kein Buch."),
    (do("read", I, the("book"), negative=True, tense="past"), "Ich habe das Buch nicht gelesen."),
    (replace(GO_HOME, negative=True), "Ich gehe nicht nach Hause."),
    (do("drink", HE, some("coffee"), negative=True), "Er trinkt keinen Kaffee."),
    (be("big", the("house"), negative=True), "Das Haus ist nicht groß."),
    (
        do("call", I, MINA, negative=True, tense="past", time=on("yesterday")),
        "Ich habe Mina gestern nicht angerufen.",
    ),
    (
        do("play", HE, Phrase(find_noun("piano")), ko="치", negative=True, modal="can"),
        "Er kann nicht Klavier spielen.",
    ),
    (do("play", HE, some("chess"), ko="두", negative=True), "Er spielt nicht Schach."),
    # professions
    (Clause(find_noun("doctor"), SHE), "Sie ist Ärztin."),
    (Clause(find_noun("doctor"), SHE, negative=True), "Sie ist keine Ärztin."),
    (Clause(find_noun("doctor"), THEY), "Sie sind Ärzte."),
    # modals
    (do("call", I, MINHO, modal="want"), "Ich will Minho anrufen."),
    (do("work", WE, modal="must", tense="past"), "Wir mussten arbeiten."),
    (do("swim", YOU, modal="can", question="yes"), "Kannst du schwimmen?"),
    # questions and commands
    (do("read", YOU, the("newspaper"), question="yes"), "Liest du die Zeitung?"),
    (do("go", YOU, question="where"), "Wohin gehst du?"),
    (do("live", YOU, question="where"), "Wo wohnst du?"),
    (do("help", YOU, question="whom", tense="past"), "Wem hast du geholfen?"),
    (do("wait for", YOU, question="whom"), "Auf wen wartest du?"),
    (do("eat", HE, the("cake"), question="who", tense="past"), "Wer hat den Kuchen gegessen?"),
    (do("invite", YOU, SHE, question="why"), "Warum lädst du sie ein?"),
    (do("read", None, the("book")), "Lies das Buch!"),
    (do("open", None, the("window"), negative=True), "Öffne das Fenster nicht!"),
    (do("turn on", None, the("lamp")), "Schalte die Lampe ein!"),
    (do("sleep", None), "Schlaf!"),
    # numbers
    (do("drink", I, count(2, "coffee")), "Ich trinke zwei Tassen Kaffee."),
    (do("buy", I, count(1, "shoes", plural=True)), "Ich kaufe ein Paar Schuhe."),
    (ExistentialClause(count(3, "cat"), place("garden")), "Im Garten sind drei Katzen."),
    (ExistentialClause(a("cat"), place("garden"), is_question=True), "Ist im Garten eine Katze?"),
    # relative and subordinate clauses: the verb last
    (
        do("know", I, the("man", relative=do("get up", GAP, manner=find_manner("early")))),
        "Ich kenne den Mann, der früh aufsteht.",
    ),
    (
        do("sleep", the("woman", relative=do("buy", GAP, a("car"), tense="past"))),
        "Die Frau, die ein Auto gekauft hat, schläft.",
    ),
    (
        do("read", SHE, the("book", relative=do("write", HE, GAP, tense="past")), tense="past"),
        "Sie hat das Buch gelesen, das er geschrieben hat.",
    ),
    (
        do("love", I, the("child", relative=do("help", WE, GAP))),
        "Ich liebe das Kind, dem wir helfen.",
    ),
    (
        do("know", I, the("boy", relative=do("wait for", SHE, GAP))),
        "Ich kenne den Jungen, auf den sie wartet.",
    ),
    (
        CausalSentence(replace(GO_HOME, subject=MINHO, tense="past"), be("tired", MINHO, tense="past")),
        "Minho ist nach Hause gegangen, weil er müde war.",
    ),
    (
        CausalSentence(do("stay", WE, goal=HOME, tense="past"), WeatherClause(RAINING, tense="past")),
        "Wir sind zu Hause geblieben, weil es geregnet hat.",
    ),
    (
        ReportedSpeech(I, find_verb("believe"), do("come", ANNA, goal=HOME, tense="future")),
        "Ich glaube, dass Anna nach Hause kommen wird.",
    ),
    (
        CompoundSentence(do("dance", MINA, tense="past"), "but", do("dance", I, tense="past", negative=True)),
        "Mina hat getanzt, aber ich habe nicht getanzt.",
    ),
    (
        CompoundSentence(do("drink", MINA, some("tea")), "and", do("drink", MINHO, some("coffee"))),
        "Mina trinkt Tee und Minho trinkt Kaffee.",
    ),
]


@pytest.mark.parametrize(("meaning", "source", "target"), KOREAN, ids=[row[1] for row in KOREAN])
def test_english_and_plain_korean_read_like_a_native_speaker(
    meaning: Sentence, source: str, target: str
) -> None:
    assert realize_english(meaning) == source
    assert realize_korean(meaning) == target


@pytest.mark.parametrize(("meaning", "target"), POLITE, ids=[row[1] for row in POLITE])
def test_polite_korean_reads_like_a_native_speaker(meaning: Sentence, target: str) -> None:
    assert realize_korean(meaning, "polite") == target


@pytest.mark.parametrize(("meaning", "target"), GERMAN, ids=[row[1] for row in GERMAN])
def test_german_reads_like_a_native_speaker(meaning: Sentence, target: str) -> None:
    assert realize_german(meaning) == target


def test_a_particle_follows_the_last_sound() -> None:
    assert [add_particle(word, "은") for word in ("책", "나무")] == ["책은", "나무는"]
    assert [add_particle(word, "이") for word in ("책", "나무", "나")] == ["책이", "나무가", "내가"]
    assert [add_particle(word, "을") for word in ("책", "나무")] == ["책을", "나무를"]
    assert [add_particle(word, "과") for word in ("책", "나무")] == ["책과", "나무와"]
    assert [add_particle(word, "으로") for word in ("손", "버스", "연필")] == ["손으로", "버스로", "연필로"]


# --- The stream


def draw(number: int, pair: str = "en-ko", **settings: Any) -> list[PlaygroundExample]:
    return list(itertools.islice(generate_examples(pair, **settings), number))


@pytest.mark.parametrize(
    ("pair", "register"), [("en-ko", "plain"), ("en-ko", "tagged"), ("en-de", "plain")], ids=str
)
def test_a_source_has_one_target(pair: str, register: str) -> None:
    known: dict[str, str] = {}
    for seed in range(4):
        for example in draw(17_000, pair, seed=seed, register=register):
            assert known.setdefault(example.source, example.target) == example.target


@pytest.mark.parametrize("words", [4, 12])
def test_a_source_has_one_target_with_few_words(words: int) -> None:
    """Few words bring the same sentence from many meanings: I read (today), I read (yesterday)."""
    for pair in ("en-ko", "en-de"):
        known: dict[str, str] = {}
        for example in draw(15_000, pair, words=words):
            assert known.setdefault(example.source, example.target) == example.target


def test_the_first_sentences_of_a_seed_are_fixed() -> None:
    assert [(example.source, example.target) for example in draw(3)] == [
        (
            "The journalist believes that the vest is quite warm.",
            "기자는 조끼가 꽤 따뜻하다고 믿는다.",
        ),
        (
            "The judge trusts the carpenter, but the scientists do not trust the singer.",
            "판사는 목수를 믿지만 과학자들은 가수를 믿지 않는다.",
        ),
        (
            "Every evening the brave lawyers turn off a lamp.",
            "매일 저녁 용감한 변호사들은 램프를 끈다.",
        ),
    ]
    assert [example.target for example in draw(3, "en-de")] == [
        "Der Journalist glaubt, dass die Weste ziemlich warm ist.",
        "Der Richter vertraut dem Tischler, aber die Wissenschaftler vertrauen dem Sänger nicht.",
        "Jeden Abend schalten die mutigen Anwälte eine Lampe aus.",
    ]


def test_sampled_sentences_make_sense() -> None:
    """What readers once found: a waiter who flies, a forest that is cleaned, Maria who speaks of Maria."""
    author = SentenceSampler(5, frozenset(CONSTRUCTIONS), None)
    for _ in range(60_000):
        meaning = author.sample_sentence()
        clauses = [meaning] if type(meaning) is Clause else []
        if type(meaning) is CompoundSentence:
            clauses = [meaning.first, meaning.second]
            if isinstance(meaning.first.subject, Phrase) and isinstance(meaning.second.subject, Phrase):
                first, second = meaning.first.subject, meaning.second.subject
                assert first.possessor or second.possessor or first.noun is not second.noun
        if type(meaning) is ReportedSpeech:
            clauses = [meaning.content]
            assert meaning.content.subject is not meaning.speaker
            assert meaning.content.object is not meaning.speaker
        for clause in clauses:
            verb, subject, entity = clause.predicate, clause.subject, clause.object
            if type(verb) is not Verb:
                continue
            if type(subject) is Phrase and subject.noun.category not in ("person", "kin"):
                assert subject.noun.category in verb.subject_categories
            if type(subject) is Phrase and subject.noun.category == "person":
                assert {"person", "youth"} & set(verb.subject_categories)
            if verb.en in ("clean", "paint") and type(entity) is Phrase and entity.noun.category == "place":
                assert entity.noun in author.nouns["room"]


TEXTBOOK = (
    *("I go home.", "I went to the school.", "I came back home.", "I took a rest.", "I ate lunch today."),
    "I love you.",
)


def test_the_demo_has_every_word_of_the_textbook_sentences() -> None:
    examples = draw(8_000, words=demo.WORDS_PER_CLASS)
    counts = Counter(word for example in examples for word in WORD.findall(example.source))
    assert [word for text in TEXTBOOK for word in WORD.findall(text) if counts[word] < 5] == []
    assert set(TEXTBOOK) <= {source for _, source, _ in KOREAN}


def test_meals_are_eaten_at_their_time_and_come_without_an_article() -> None:
    sources = [
        example.source for example in draw(20_000, words=12) if re.search(r"lunch|dinner", example.source)
    ]
    assert len(sources) > 40
    odd = [source for source in sources if re.search(r"o'clock|night|morning|evening|afternoon", source)]
    assert [source for source in odd if "because" not in source] == []
    assert not [source for source in sources if re.search(r"(a|the|this|\'s|my|two) (lunch|dinner)", source)]


def test_the_listener_is_never_the_object_of_a_command_or_of_you() -> None:
    author = SentenceSampler(9, frozenset(CONSTRUCTIONS), None)
    seen = 0
    for _ in range(20_000):
        meaning = author.sample_sentence()
        if type(meaning) is Clause and YOU in (meaning.object, meaning.recipient):
            seen += 1
            assert meaning.subject is not None
            assert meaning.subject is not YOU
    assert seen > 100


def test_two_people_go_to_different_places() -> None:
    author = SentenceSampler(9, frozenset(CONSTRUCTIONS), None)
    for _ in range(20_000):
        meaning = author.sample_sentence()
        if type(meaning) is CompoundSentence and meaning.conjunction == "and" and meaning.first.goal:
            assert meaning.first.goal is not meaning.second.goal


def test_i_go_home_is_sampled() -> None:
    easy = draw(5_000, constructions=[], words=4)
    assert ("I go home.", "나는 집에 간다.") in {(example.source, example.target) for example in easy}
    both = {
        (example.source, example.target)
        for example in draw(10_000, constructions=[], words=4, register="tagged")
    }
    assert {
        ("<plain> I go home.", "나는 집에 간다."),
        ("<polite> I go home.", "저는 집에 가요."),
    } <= both


def test_the_seed_determines_the_stream() -> None:
    assert draw(200, seed=7) == draw(200, seed=7)
    assert draw(200, seed=7) != draw(200, seed=8)
    sources = [example.source for example in draw(200, "en-ko", seed=7)]
    assert sources == [example.source for example in draw(200, "en-de", seed=7)]


def test_every_construction_is_sampled_and_none_that_is_not_allowed() -> None:
    assert set().union(*(example.constructions for example in draw(3_000))) == set(CONSTRUCTIONS)
    for name_ in CONSTRUCTIONS:
        allowed = {name_, "tense"}
        sampled = set().union(*(example.constructions for example in draw(2_000, constructions=allowed)))
        assert sampled <= allowed
        assert name_ in sampled


@pytest.mark.parametrize("words", [2, 5, 10, 30])
def test_a_small_lexicon_works_with_every_construction(words: int) -> None:
    small = {word for example in draw(3_000, words=words) for word in example.source.split()}
    large = {word for example in draw(3_000) for word in example.source.split()}
    assert len(small) < len(large)
    for name_ in CONSTRUCTIONS:
        draw(300, "en-de", constructions=[name_], words=words)


Word = Noun | Verb | Adjective | Manner | Time


def words_in(meaning: Any) -> Iterator[Word]:
    if isinstance(meaning, Word):
        yield meaning
    elif isinstance(meaning, Place):
        yield meaning.noun
    elif is_dataclass(meaning):
        for part in fields(meaning):
            yield from words_in(getattr(meaning, part.name))


@pytest.fixture(scope="module")
def drawn_words() -> dict[Word, None]:
    author = SentenceSampler(1, frozenset(CONSTRUCTIONS), None)
    return dict.fromkeys(word for _ in range(25_000) for word in words_in(author.sample_sentence()))


def lemmas(words: Iterable[Word], index: int) -> set[str]:
    """Of one language; without hours, weekdays and the like, and without names."""
    words_ = set()
    for word in words:
        ending = "다" if isinstance(word, Verb | Adjective) else ""
        german_word = word.de_prefix + word.de if isinstance(word, Verb) else word.de
        if not isinstance(word, Time) or word.frequency:
            words_.add((word.en, word.ko + ending, german_word)[index])
    return words_


@pytest.mark.parametrize(("index", "language"), list(enumerate(("en", "ko", "de"))))
def test_three_hundred_content_words_of_each_language_are_sampled(
    drawn_words: dict[Word, None], index: int, language: str
) -> None:
    assert len(lemmas(drawn_words, index)) >= 400


def test_every_word_of_the_lexicon_is_used(drawn_words: dict[Word, None]) -> None:
    nouns = [noun for nouns in lexicon.ALL_NOUNS.values() for noun in nouns]
    nouns += [place.noun for place, _ in lexicon.ALL_PLACES]
    others: Any = (
        *lexicon.ALL_VERBS,
        *lexicon.ALL_REPORTING,
        *lexicon.ALL_ADJECTIVES,
        *lexicon.ALL_FREQUENCIES,
    )
    assert [word.en for word in [*nouns, *others] if word not in drawn_words] == []
    assert [manner.en for manner, _ in lexicon.ALL_MANNERS if manner not in drawn_words] == []


# --- The corpus


def test_no_sentence_is_in_two_splits_for_any_seed_and_size() -> None:
    small = generate_corpus("en-ko", train=3_000, valid=100, test=100, seed=1)
    large = generate_corpus("en-ko", train=6_000, valid=300, test=300, seed=2)
    for side in (0, 1):
        train = {pair[side] for corpus in (small, large) for pair in corpus["train"]}
        valid = {pair[side] for corpus in (small, large) for pair in corpus["valid"]}
        test = {pair[side] for corpus in (small, large) for pair in corpus["test"]}
        assert not train & valid
        assert not train & test
        assert not valid & test


def test_a_corpus_has_the_requested_sizes_and_no_pair_twice() -> None:
    corpus = generate_corpus("en-de", train=2_000, valid=50, test=70)
    assert {name_: len(pairs) for name_, pairs in corpus.items()} == {"train": 2_000, "valid": 50, "test": 70}
    everything = [pair for pairs in corpus.values() for pair in pairs]
    assert len(set(everything)) == len(everything)
    assert all(assign_split(target) == name_ for name_, pairs in corpus.items() for _, target in pairs)


def test_a_larger_corpus_begins_with_the_smaller_one() -> None:
    small = generate_corpus("en-ko", train=200, valid=20, test=20)
    large = generate_corpus("en-ko", train=400, valid=20, test=20)
    assert large["train"][:200] == small["train"]
    assert large["test"] == small["test"]


def test_an_impossible_corpus_is_refused_with_the_remedy() -> None:
    with pytest.raises(DataError, match=r"train is 1000000, but only \d+ distinct .* raise words"):
        generate_corpus("en-ko", train=1_000_000, valid=1, test=1, constructions=[], words=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pair": "en-kr"}, "unknown pair en-kr; did you mean en-ko?"),
        ({"register": "polight"}, "unknown register polight; did you mean polite?"),
        ({"constructions": ["negatoin"]}, "unknown construction negatoin; did you mean negation?"),
        ({"constructions": "tense"}, 'must be a list: \\["tense"\\]'),
        ({"pair": "en-de", "register": "polite"}, "German has only"),
        ({"words": 1}, "words is 1, but must be at least 2"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", "[?]")):
        generate_examples(**settings)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ConfigError, match="valid is -1"):
        generate_corpus("en-ko", train=1, valid=-1, test=1)
