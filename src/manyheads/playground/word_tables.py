"""The words of the built-in corpus. Each line is one meaning, with one word in each language.

The most frequent words of a table come first: a smaller lexicon is a prefix of each. Nouns are written

    English/plural | Korean/counter | article German/plural | options

A regular English plural is omitted; "-" means no plural; * marks a weak German noun. Polite Korean honors
a person with the option "honored". The German of a meal is that of "to eat lunch": zu Mittag essen.
Verbs are written

    English past | Korean:class | German, third person, participle | subjects | objects | options

where the class of a Korean stem is what it loses (ㅂ ㄷ ㅅ 르 ㅎ; 있 conjugates as 있다; 못 is for
involuntary actions: 보지 못하다), the third person of a regular German verb is omitted, "auf-stehen" is
separable, "ist" before the participle is its auxiliary, and "de=sich" is reflexive. An adjective like
힘이 세/힘센 has its own form before a noun.
"""

from manyheads.playground.meaning import Tense

# English singular and plural, the Korean counter, German singular and plural.
MEASURES = {
    "cup": ("cup", "cups", "잔", "Tasse", "Tassen"),
    "glass": ("glass", "glasses", "잔", "Glas", "Gläser"),
    "pair": ("pair", "pairs", "켤레", "Paar", "Paar"),
    "piece": ("piece", "pieces", "조각", "Stück", "Stück"),
    "bowl": ("bowl", "bowls", "그릇", "Schüssel", "Schüsseln"),
}

DEFAULT_COUNTERS = {"person": "명", "kin": "명"} | dict.fromkeys(
    ("pet", "animal", "exotic", "livestock", "prey", "bird"), "마리"
)

NOUNS = {
    "person": """
        child/children | 아이 | das Kind/Kinder
        teacher | 선생님 | der Lehrer/Lehrer | fem=Lehrerin honored
        student | 학생 | der Student*/Studenten | fem=Studentin
        doctor | 의사 | der Arzt/Ärzte | fem=Ärztin
        girl | 소녀 | das Mädchen/Mädchen | sex=f
        boy | 소년 | der Junge*/Jungen | sex=m
        woman/women | 여자 | die Frau/Frauen | sex=f
        man/men | 남자 | der Mann/Männer | sex=m
        cook | 요리사 | der Koch/Köche | fem=Köchin
        singer | 가수 | der Sänger/Sänger | fem=Sängerin
        farmer | 농부 | der Bauer*/Bauern | fem=Bäuerin
        painter | 화가 | der Maler/Maler | fem=Malerin
        writer | 작가 | der Schriftsteller/Schriftsteller | fem=Schriftstellerin
        nurse | 간호사 | die Krankenschwester/Krankenschwestern | sex=f
        police officer | 경찰관 | der Polizist*/Polizisten | fem=Polizistin
        actor | 배우 | der Schauspieler/Schauspieler | fem=Schauspielerin
        journalist | 기자 | der Journalist*/Journalisten | fem=Journalistin
        lawyer | 변호사 | der Anwalt/Anwälte | fem=Anwältin
        baker | 제빵사 | der Bäcker/Bäcker | fem=Bäckerin
        driver | 운전사 | der Fahrer/Fahrer | fem=Fahrerin
        pilot | 조종사 | der Pilot*/Piloten | fem=Pilotin
        scientist | 과학자 | der Wissenschaftler/Wissenschaftler | fem=Wissenschaftlerin
        engineer | 기술자 | der Ingenieur/Ingenieure | fem=Ingenieurin
        guest | 손님 | der Gast/Gäste | honored
        tourist | 관광객 | der Tourist*/Touristen
        customer | 고객 | der Kunde*/Kunden
        waiter | 종업원 | der Kellner/Kellner | fem=Kellnerin
        dentist | 치과 의사 | der Zahnarzt/Zahnärzte | fem=Zahnärztin
        musician | 음악가 | der Musiker/Musiker | fem=Musikerin
        dancer | 무용수 | der Tänzer/Tänzer | fem=Tänzerin
        librarian | 사서 | der Bibliothekar/Bibliothekare | fem=Bibliothekarin
        gardener | 정원사 | der Gärtner/Gärtner | fem=Gärtnerin
        photographer | 사진작가 | der Fotograf*/Fotografen | fem=Fotografin
        architect | 건축가 | der Architekt*/Architekten | fem=Architektin
        professor | 교수 | der Professor/Professoren | fem=Professorin
        judge | 판사 | der Richter/Richter | fem=Richterin
        soldier | 군인 | der Soldat*/Soldaten | fem=Soldatin
        tailor | 재단사 | der Schneider/Schneider | fem=Schneiderin
        carpenter | 목수 | der Tischler/Tischler | fem=Tischlerin
        hairdresser | 미용사 | der Friseur/Friseure | fem=Friseurin
    """,
    "kin": """
        friend | 친구 | der Freund/Freunde
        mother | 어머니 | die Mutter/Mütter | sex=f honored
        father | 아버지 | der Vater/Väter | sex=m honored
        grandmother | 할머니 | die Großmutter/Großmütter | sex=f honored
        grandfather | 할아버지 | der Großvater/Großväter | sex=m honored
        son | 아들 | der Sohn/Söhne | sex=m
        daughter | 딸 | die Tochter/Töchter | sex=f
        uncle | 삼촌 | der Onkel/Onkel | sex=m honored
        aunt | 이모 | die Tante/Tanten | sex=f honored
        grandson | 손자 | der Enkel/Enkel | sex=m
        granddaughter | 손녀 | die Enkelin/Enkelinnen | sex=f
        neighbor | 이웃 | der Nachbar*/Nachbarn
        colleague | 동료 | der Kollege*/Kollegen
        cousin | 사촌 | der Cousin/Cousins | sex=m
        nephew | 조카 | der Neffe*/Neffen | sex=m
        niece | 조카딸 | die Nichte/Nichten | sex=f
    """,
    "pet": """
        dog | 개 | der Hund/Hunde
        cat | 고양이 | die Katze/Katzen
        puppy | 강아지 | der Welpe*/Welpen
    """,
    "animal": """
        lion | 사자 | der Löwe*/Löwen
        tiger | 호랑이 | der Tiger/Tiger
        bear | 곰 | der Bär*/Bären
        fox | 여우 | der Fuchs/Füchse
        wolf/wolves | 늑대 | der Wolf/Wölfe
    """,
    "exotic": """
        monkey | 원숭이 | der Affe*/Affen
        elephant | 코끼리 | der Elefant*/Elefanten
        snake | 뱀 | die Schlange/Schlangen
        giraffe | 기린 | die Giraffe/Giraffen
        turtle | 거북이 | die Schildkröte/Schildkröten
    """,
    "livestock": """
        horse | 말 | das Pferd/Pferde
        cow | 소 | die Kuh/Kühe
        rabbit | 토끼 | das Kaninchen/Kaninchen
        pig | 돼지 | das Schwein/Schweine
        goat | 염소 | die Ziege/Ziegen
        donkey | 당나귀 | der Esel/Esel
    """,
    "prey": """
        mouse/mice | 쥐 | die Maus/Mäuse
        frog | 개구리 | der Frosch/Frösche
        squirrel | 다람쥐 | das Eichhörnchen/Eichhörnchen
    """,
    "bird": """
        bird | 새 | der Vogel/Vögel
        duck | 오리 | die Ente/Enten
        owl | 부엉이 | die Eule/Eulen
        butterfly | 나비 | der Schmetterling/Schmetterlinge
        bee | 벌 | die Biene/Bienen
    """,
    "fruit": """
        apple | 사과 | der Apfel/Äpfel
        orange | 오렌지 | die Orange/Orangen
        banana | 바나나 | die Banane/Bananen
        pear | 배 | die Birne/Birnen
        peach | 복숭아 | der Pfirsich/Pfirsiche
        strawberry | 딸기 | die Erdbeere/Erdbeeren
        mango/mangoes | 망고 | die Mango/Mangos
    """,
    "vegetable": """
        tomato/tomatoes | 토마토 | die Tomate/Tomaten
        egg | 달걀 | das Ei/Eier
        potato/potatoes | 감자 | die Kartoffel/Kartoffeln
        carrot | 당근 | die Karotte/Karotten
        cucumber | 오이 | die Gurke/Gurken
        onion | 양파 | die Zwiebel/Zwiebeln
        mushroom | 버섯 | der Pilz/Pilze
    """,
    "dish": """
        soup/- | 수프 | die Suppe/Suppen | measure=bowl
        fish/- | 생선 | der Fisch/Fische
        meat/- | 고기 | das Fleisch/ | measure=piece
        chicken/- | 닭고기 | das Hähnchen/
        beef/- | 소고기 | das Rindfleisch/ | measure=piece
        curry/- | 카레 | das Curry/
        noodles/+ | 국수 | die Nudel/Nudeln | measure=bowl
    """,
    "rice": """
        rice/- | 밥 | der Reis/ | measure=bowl
    """,
    "baked": """
        cake | 케이크 | der Kuchen/Kuchen
        bread/- | 빵 | das Brot/ | measure=piece
        cookie | 쿠키 | der Keks/Kekse
        pizza | 피자/판 | die Pizza/Pizzen
    """,
    "meal": """
        lunch/- | 점심 | das zu Mittag/
        dinner/- | 저녁 | das zu Abend/
    """,
    "mixed": """
        salad/- | 샐러드 | der Salat/ | measure=bowl
        sandwich | 샌드위치 | das Sandwich/Sandwiches
        kimchi/- | 김치 | das Kimchi/
    """,
    "snack": """
        chocolate/- | 초콜릿 | die Schokolade/ | measure=piece
        cheese/- | 치즈 | der Käse/ | measure=piece
        ice cream/- | 아이스크림 | das Eis/
        honey/- | 꿀 | der Honig/
    """,
    "drink": """
        water/- | 물 | das Wasser/ | measure=glass
        juice/- | 주스 | der Saft/ | measure=glass
        lemonade/- | 레모네이드 | die Limonade/ | measure=glass
        apple juice/- | 사과 주스 | der Apfelsaft/ | measure=glass
    """,
    "hot_drink": """
        coffee/- | 커피 | der Kaffee/ | measure=cup
        tea/- | 차 | der Tee/ | measure=cup
        milk/- | 우유 | die Milch/ | measure=glass
        cocoa/- | 코코아 | der Kakao/ | measure=cup
    """,
    "print": """
        book | 책/권 | das Buch/Bücher
        newspaper | 신문/부 | die Zeitung/Zeitungen
        magazine | 잡지/권 | die Zeitschrift/Zeitschriften
        dictionary | 사전/권 | das Wörterbuch/Wörterbücher
        comic book | 만화책/권 | das Comicheft/Comichefte
        fairy tale | 동화/편 | das Märchen/Märchen
    """,
    "writing": """
        letter | 편지/통 | der Brief/Briefe
        poem | 시/편 | das Gedicht/Gedichte
        novel | 소설/편 | der Roman/Romane
        report | 보고서/편 | der Bericht/Berichte
        story | 이야기/편 | die Geschichte/Geschichten
        email | 이메일/통 | die E-Mail/E-Mails
    """,
    "clothes": """
        coat | 코트/벌 | der Mantel/Mäntel
        shirt | 셔츠/벌 | das Hemd/Hemden
        uniform | 제복/벌 | die Uniform/Uniformen
        vest | 조끼/벌 | die Weste/Westen
        sweater | 스웨터/벌 | der Pullover/Pullover
        jacket | 재킷/벌 | die Jacke/Jacken
        suit | 양복/벌 | der Anzug/Anzüge
        raincoat | 비옷/벌 | der Regenmantel/Regenmäntel
    """,
    "hat": """
        hat | 모자 | der Hut/Hüte
        helmet | 헬멧 | der Helm/Helme
        straw hat | 밀짚모자 | der Strohhut/Strohhüte
    """,
    "shoes": """
        shoes/+ | 신발 | der Schuh/Schuhe | measure=pair
        boots/+ | 장화 | der Stiefel/Stiefel | measure=pair
        socks/+ | 양말 | die Socke/Socken | measure=pair
    """,
    "device": """
        computer | 컴퓨터/대 | der Computer/Computer
        radio | 라디오/대 | das Radio/Radios
        camera | 카메라/대 | die Kamera/Kameras
        lamp | 램프 | die Lampe/Lampen
        television | 텔레비전/대 | der Fernseher/Fernseher
        washing machine | 세탁기/대 | die Waschmaschine/Waschmaschinen
    """,
    "vehicle": """
        car | 자동차/대 | das Auto/Autos
        bicycle | 자전거/대 | das Fahrrad/Fahrräder
        motorcycle | 오토바이/대 | das Motorrad/Motorräder
    """,
    "item": """
        bag | 가방 | die Tasche/Taschen
        umbrella | 우산 | der Regenschirm/Regenschirme
        key | 열쇠 | der Schlüssel/Schlüssel
        pencil | 연필/자루 | der Bleistift/Bleistifte
        knife/knives | 칼/자루 | das Messer/Messer
        spoon | 숟가락 | der Löffel/Löffel
        clock | 시계 | die Uhr/Uhren
        ring | 반지 | der Ring/Ringe
        box | 상자 | die Kiste/Kisten
        basket | 바구니 | der Korb/Körbe
        wallet | 지갑 | die Geldbörse/Geldbörsen
        ticket | 표/장 | die Karte/Karten
        blanket | 담요/장 | die Decke/Decken
        towel | 수건/장 | das Handtuch/Handtücher
        candle | 양초/자루 | die Kerze/Kerzen
        gift | 선물 | das Geschenk/Geschenke
        notebook | 공책/권 | das Heft/Hefte
    """,
    "keepsake": """
        stamp | 우표/장 | die Briefmarke/Briefmarken
        doll | 인형 | die Puppe/Puppen
        coin | 동전 | die Münze/Münzen
        toy | 장난감 | das Spielzeug/Spielzeuge
        photo | 사진/장 | das Foto/Fotos
        postcard | 엽서/장 | die Postkarte/Postkarten
    """,
    "crockery": """
        cup | 컵 | die Tasse/Tassen
        plate | 접시 | der Teller/Teller
        bottle | 병 | die Flasche/Flaschen
        mirror | 거울 | der Spiegel/Spiegel
        vase | 꽃병 | die Vase/Vasen
    """,
    "furniture": """
        chair | 의자 | der Stuhl/Stühle
        table | 탁자 | der Tisch/Tische
        bed | 침대 | das Bett/Betten
        sofa | 소파 | das Sofa/Sofas
    """,
    "flower": """
        flower | 꽃/송이 | die Blume/Blumen
        rose | 장미/송이 | die Rose/Rosen
        tulip | 튤립/송이 | die Tulpe/Tulpen
    """,
    "tree": """
        tree | 나무/그루 | der Baum/Bäume
        apple tree | 사과나무/그루 | der Apfelbaum/Apfelbäume
        pine tree | 소나무/그루 | die Kiefer/Kiefern
    """,
    "opening": """
        window | 창문 | das Fenster/Fenster
        door | 문 | die Tür/Türen
        suitcase | 여행 가방 | der Koffer/Koffer
        drawer | 서랍 | die Schublade/Schubladen
    """,
    "picture": """
        picture | 그림/점 | das Bild/Bilder
        map | 지도/장 | die Landkarte/Landkarten
        portrait | 초상화/점 | das Porträt/Porträts
    """,
    "building": """
        house | 집/채 | das Haus/Häuser
        castle | 성/채 | das Schloss/Schlösser
    """,
    "height": """
        tower | 탑 | der Turm/Türme
        wall | 벽 | die Mauer/Mauern
        bridge | 다리 | die Brücke/Brücken
    """,
    "song": """
        song | 노래/곡 | das Lied/Lieder
        folk song | 민요/곡 | das Volkslied/Volkslieder
        lullaby | 자장가/곡 | das Wiegenlied/Wiegenlieder
    """,
    "show": """
        movie | 영화/편 | der Film/Filme
        documentary | 다큐멘터리/편 | der Dokumentarfilm/Dokumentarfilme
        play | 연극/편 | das Theaterstück/Theaterstücke
    """,
    "sport": """
        soccer/- | 축구 | der Fußball/
        basketball/- | 농구 | der Basketball/
        baseball/- | 야구 | der Baseball/
        volleyball/- | 배구 | der Volleyball/
    """,
    "racket": """
        tennis/- | 테니스 | das Tennis/
        badminton/- | 배드민턴 | das Badminton/
        table tennis/- | 탁구 | das Tischtennis/
    """,
    "board": """
        chess/- | 체스 | das Schach/
        Go/- | 바둑 | das Go/
    """,
    "instrument": """
        piano | 피아노 | das Klavier/Klaviere
        guitar | 기타 | die Gitarre/Gitarren
        drums/- | 드럼 | das Schlagzeug/Schlagzeuge
    """,
    "subject": """
        Korean/- | 한국어 | das Koreanisch/
        English/- | 영어 | das Englisch/
        German/- | 독일어 | das Deutsch/
        mathematics/- | 수학 | die Mathematik/
        history/- | 역사 | die Geschichte/
        chemistry/- | 화학 | die Chemie/
        biology/- | 생물학 | die Biologie/
    """,
    "language": """
        Korean/- | 한국어 | das Koreanisch/
        English/- | 영어 | das Englisch/
        German/- | 독일어 | das Deutsch/
        French/- | 프랑스어 | das Französisch/
        Japanese/- | 일본어 | das Japanisch/
    """,
    "transport": """
        bus | 버스 | der Bus/Busse
        train | 기차 | der Zug/Züge
        subway | 지하철 | die U-Bahn/U-Bahnen
        bicycle | 자전거 | das Fahrrad/Fahrräder
        taxi | 택시 | das Taxi/Taxis
        car | 자동차 | das Auto/Autos
    """,
    "cutlery": """
        spoon | 숟가락 | der Löffel/Löffel
        fork | 포크 | die Gabel/Gabeln
    """,
    "pen": """
        pencil | 연필 | der Bleistift/Bleistifte
        fountain pen | 만년필 | der Füller/Füller
    """,
}

# noun line | English place preposition | German where, whither | what is done there
PLACES = """
    school | 학교 | die Schule/Schulen | at | in zu | go study play work
    park | 공원 | der Park/Parks | in | in in | go read play meet stroll eat
    library | 도서관 | die Bibliothek/Bibliotheken | in | in in | go read study meet work
    hospital | 병원 | das Krankenhaus/Krankenhäuser | in | in in | go work meet
    restaurant | 식당 | das Restaurant/Restaurants | in | in in | go eat dine meet work
    market | 시장 | der Markt/Märkte | at | auf auf | go buy meet
    store | 가게 | das Geschäft/Geschäfte | in | in in | go buy work
    café | 카페 | das Café/Cafés | in | in in | go eat dine read meet work
    garden | 정원 | der Garten/Gärten | in | in in | go play read eat plant
    kitchen | 부엌 | die Küche/Küchen | in | in in | room cook eat
    room | 방 | das Zimmer/Zimmer | in | in in | room read study
    office | 사무실 | das Büro/Büros | in | in in | go room work
    station | 기차역 | der Bahnhof/Bahnhöfe | at | an zu | go meet arrive
    airport | 공항 | der Flughafen/Flughäfen | at | an zu | go meet arrive work
    museum | 박물관 | das Museum/Museen | in | in in | go meet work visit
    bank | 은행 | die Bank/Banken | at | in zu | go work
    post office | 우체국 | die Post/ | at | in zu | go work
    theater | 극장 | das Theater/Theater | in | in in | go meet work visit
    cinema | 영화관 | das Kino/Kinos | in | in in | go meet
    supermarket | 슈퍼마켓 | der Supermarkt/Supermärkte | in | in in | go buy work
    university | 대학교 | die Universität/Universitäten | at | an zu | go study work visit
    beach | 해변 | der Strand/Strände | on | an an | go play meet stroll
    forest | 숲 | der Wald/Wälder | in | in in | go stroll
    village | 마을 | das Dorf/Dörfer | in | in in | live visit
    city | 도시 | die Stadt/Städte | in | in in | go live visit stroll
    hotel | 호텔 | das Hotel/Hotels | in | in in | work stay eat
    factory | 공장 | die Fabrik/Fabriken | in | in in | work visit
    bookstore | 서점 | die Buchhandlung/Buchhandlungen | in | in in | go meet work
    bakery | 빵집 | die Bäckerei/Bäckereien | in | in in | go work
    playground | 놀이터 | der Spielplatz/Spielplätze | on | auf auf | go play
    stadium | 경기장 | das Stadion/Stadien | in | in in | go meet sport
    swimming pool | 수영장 | das Schwimmbad/Schwimmbäder | in | in in | go swim
    lake | 호수 | der See/Seen | in | in an | go swim
    river | 강 | der Fluss/Flüsse | in | in an | go swim
    zoo | 동물원 | der Zoo/Zoos | in | in in | go work visit
    farm | 농장 | der Bauernhof/Bauernhöfe | on | auf auf | live work visit
    church | 교회 | die Kirche/Kirchen | in | in in | go meet
    living room | 거실 | das Wohnzimmer/Wohnzimmer | in | in in | room read
    island | 섬 | die Insel/Inseln | on | auf auf | live visit
    castle | 성 | das Schloss/Schlösser | in | in in | live visit
"""

CITIES = """
    Seoul 서울 Seoul
    Berlin 베를린 Berlin
    Busan 부산 Busan
    Paris 파리 Paris
    London 런던 London
    Munich 뮌헨 München
    Hamburg 함부르크 Hamburg
    Vienna 빈 Wien
    Cologne 쾰른 Köln
    Daegu 대구 Daegu
    Rome 로마 Rom
"""

NAMES = """
    Mina 미나 Mina f
    Minho 민호 Minho m
    Anna 안나 Anna f
    Sujin 수진 Sujin f
    Peter 피터 Peter m
    Jun 준 Jun m
    Maria 마리아 Maria f
    Paul 폴 Paul m
    Emma 에마 Emma f
    Daniel 다니엘 Daniel m
    Julia 줄리아 Julia f
    Martin 마틴 Martin m
    Yuna 유나 Yuna f
    Seojun 서준 Seojun m
    Lena 레나 Lena f
"""

PRONOUNS = """
    I me my 나 1 - - ich mich mir mein
    he him his 그 3 - m er ihn ihm sein
    she her her 그녀 3 - f sie sie ihr ihr
    we us our 우리 1 + - wir uns uns unser
    they them their 그들 3 + - sie sie ihnen ihr
    you you your 너 2 - - du dich dir dein
"""

FOOD = "fruit vegetable dish rice baked mixed snack"
LIKED = "person pet livestock fruit drink hot_drink snack song show flower"
DRAWN = "picture flower tree pet bird animal exotic building height"
ORDERED = "dish rice baked mixed drink hot_drink"
GIFTS = "print item flower keepsake picture"
WARES = f"{GIFTS} {FOOD} drink hot_drink clothes hat shoes device vehicle furniture crockery"
BEASTS = "pet animal exotic livestock prey"

VERBS = f"""
    go went | 가 | gehen, ist gegangen | person | - | motion manners=go
    go went | 가 | fahren, fährt, ist gefahren | person | - | motion ride
    eat ate | 먹 | essen, isst, gegessen | person | {FOOD} meal | places=eat manners=eat
    read read | 읽 | lesen, liest, gelesen | person | print writing | places=read manners=read
    drink drank | 마시 | trinken, getrunken | person | drink hot_drink | places=eat manners=eat
    buy bought | 사 | kaufen, gekauft | person | {WARES} | places=buy
    like liked | 좋아하 | mögen, mag, gemocht | person | {LIKED} | state
    love loved | 사랑하 | lieben, geliebt | person | person pet | state
    sleep slept | 자 | schlafen, schläft, geschlafen | person {BEASTS} | - | dusk
    take_a_rest took | 쉬 | aus-ruhen, ausgeruht | person | - | de=sich places=read manners=alone
    come_back came | 돌아오 | zurück-kommen, ist zurückgekommen | person | - | motion goal=으로
    give gave | 주 | geben, gibt, gegeben | person | {GIFTS} | gives
    meet met | 만나 | treffen, trifft, getroffen | person | person | places=meet
    help helped | 돕:ㅂ | helfen, hilft, geholfen | person | person | de=dat
    write wrote | 쓰 | schreiben, geschrieben | person | writing | places=read manners=write
    come came | 오 | kommen, ist gekommen | person | - | motion
    see saw | 보:못 | sehen, sieht, gesehen | person | person {BEASTS} bird tree building height | sudden
    sing sang | 부르:르 | singen, gesungen | person | song | places=play manners=sing
    work worked | 일하 | arbeiten, gearbeitet | person | - | places=work manners=work long
    live lived | 살 | wohnen, gewohnt | person | - | stays state
    open opened | 열 | öffnen, geöffnet | person | opening | manners=care
    close closed | 닫 | schließen, geschlossen | person | opening | manners=care
    walk walked | 걷:ㄷ | laufen, läuft, ist gelaufen | person | - | places=stroll manners=go at=을
    get_up got | 일어나 | auf-stehen, ist aufgestanden | person | - | manners=early dawn
    cook cooked | 요리하 | kochen, gekocht | person | dish | places=cook manners=cook
    wear wore | 입 | tragen, trägt, getragen | person | clothes | -
    build built | 짓:ㅅ | bauen, gebaut | person | building | manners=build years
    study studied | 공부하 | lernen, gelernt | person | subject | places=study manners=alone long
    wait_for waited | 기다리 | warten, gewartet | person | person | de=auf+acc places=meet
    send sent | 보내 | schicken, geschickt | person | writing flower keepsake picture | gives
    know knew | 알 | kennen, kennt, gekannt | person | person | state
    choose chose | 고르:르 | aus-suchen, ausgesucht | person | {WARES} | -
    watch watched | 보 | sehen, sieht, gesehen | person | show | manners=alone
    play played | 놀 | spielen, gespielt | youth | - | places=play manners=together
    laugh laughed | 웃 | lachen, gelacht | person | - | manners=loud
    cry cried | 울 | weinen, geweint | person | - | manners=loud
    run ran | 달리 | rennen, ist gerannt | person pet animal livestock | - | places=stroll manners=fast
    show showed | 보여 주 | zeigen, gezeigt | person | {GIFTS} writing clothes | gives
    make made | 만들 | machen, gemacht | person | mixed | places=cook
    clean cleaned | 청소하 | putzen, geputzt | person | room | manners=fast
    visit visited | 방문하 | besuchen, besucht | person | person site | long
    arrive arrived | 도착하 | an-kommen, ist angekommen | person | - | sudden stays manners=early
    look_for looked | 찾아다니 | suchen, gesucht | person | person pet item keepsake print | -
    call called | 전화하 | an-rufen, angerufen | person | person | ko=에게
    ask asked | 물어보 | fragen, gefragt | person | person | ko=에게
    wash washed | 빨 | waschen, wäscht, gewaschen | person | clothes | -
    play played | 하 | spielen, gespielt | person | sport | places=sport manners=well
    play played | 치 | spielen, gespielt | person | instrument | manners=well
    play played | 치 | spielen, gespielt | person | racket | places=sport manners=well
    play played | 두 | spielen, gespielt | person | board | manners=well
    build built | 건설하 | bauen, gebaut | person | height | manners=build years
    learn learned | 배우 | lernen, gelernt | person | language | places=study manners=alone long
    speak spoke | 하:못 | sprechen, spricht, gesprochen | person | language | state manners=speak
    teach taught | 가르치 | unterrichten, unterrichtet | person | subject | places=study long
    turn_on turned | 켜 | ein-schalten, eingeschaltet | person | device | -
    turn_off turned | 끄 | aus-schalten, ausgeschaltet | person | device | -
    wear wore | 쓰 | tragen, trägt, getragen | person | hat | -
    wear wore | 신 | tragen, trägt, getragen | person | shoes | -
    bake baked | 굽:ㅂ | backen, backt, gebacken | person | baked | places=cook
    sell sold | 팔 | verkaufen, verkauft | person | {WARES} | places=buy
    lend lent | 빌려주 | leihen, geliehen | person | print clothes vehicle | gives
    borrow borrowed | 빌리 | aus-leihen, ausgeliehen | person | print vehicle | -
    bring brought | 가져오 | mit-bringen, mitgebracht | person | {GIFTS} drink hot_drink fruit | -
    draw drew | 그리 | zeichnen, gezeichnet | person | {DRAWN} | manners=alone
    plant planted | 심 | pflanzen, gepflanzt | person | flower tree | places=plant long at=에
    repair repaired | 고치 | reparieren, repariert | person | vehicle device furniture | manners=alone
    dance danced | 춤추 | tanzen, getanzt | person | - | manners=together
    swim swam | 수영하 | schwimmen, ist geschwommen | person | - | places=swim manners=well long
    smile smiled | 미소 짓:ㅅ | lächeln, gelächelt | person | - | -
    travel traveled | 여행하 | reisen, ist gereist | person | - | manners=alone long
    invite invited | 초대하 | ein-laden, lädt, eingeladen | person | person | -
    thank thanked | 감사를 전하 | danken, gedankt | person | person | de=dat ko=에게
    find found | 발견하:못 | finden, gefunden | person | item keepsake pet | sudden
    lose lost | 잃어버리 | verlieren, verloren | person | item keepsake | sudden mishap
    break broke | 깨 | zerbrechen, zerbricht, zerbrochen | person | crockery | sudden mishap
    have had | 가지고 있:있 | haben, hat, gehabt | person | vehicle item device print clothes keepsake | state
    use used | 사용하 | benutzen, benutzt | person | device vehicle | -
    order ordered | 주문하 | bestellen, bestellt | person | {ORDERED} | places=dine
    collect collected | 모으 | sammeln, gesammelt | person | keepsake | long
    hide hid | 숨기 | verstecken, versteckt | person | item keepsake | -
    paint painted | 칠하 | streichen, gestrichen | person | height room | -
    push pushed | 밀 | schieben, geschoben | person | furniture vehicle | manners=care
    understand understood | 이해하:못 | verstehen, verstanden | person | person | state
    trust trusted | 믿 | vertrauen, vertraut | person | person | de=dat state
    miss missed | 그리워하 | vermissen, vermisst | person | person pet | state
    respect respected | 존경하 | respektieren, respektiert | person | person | state
    hug hugged | 안 | umarmen, umarmt | person | person pet | -
    answer answered | 대답하 | antworten, geantwortet | person | person | de=dat ko=에게
    follow followed | 따라가 | folgen, ist gefolgt | person | person pet | de=dat
    talk_with talked | 이야기하 | sprechen, spricht, gesprochen | person | person | ko=과 de=mit+dat
    fall_asleep fell | 잠들 | ein-schlafen, schläft, ist eingeschlafen | person | - | sudden dusk
    wake_up woke | 잠에서 깨 | auf-wachen, ist aufgewacht | person | - | sudden manners=early dawn
    stay stayed | 머무르:르 | bleiben, ist geblieben | person | - | stays long
    jump jumped | 뛰어오르:르 | springen, ist gesprungen | pet animal prey | - | -
    chase chased | 쫓 | jagen, gejagt | pet animal | prey bird livestock | -
    bite bit | 물 | beißen, gebissen | pet animal | person | sudden mishap
    fly flew | 날 | fliegen, ist geflogen | bird | - | manners=fast
"""

# Verbs that report; of what is said the plain form stands before 고.
REPORTING = """
    think thought | 생각하 | denken, gedacht | person | - | state
    say said | 말하 | sagen, gesagt | person | - | state
    believe believed | 믿 | glauben, geglaubt | person | - | state
"""

RAIN = "rain rained | 비가 오 | regnen, geregnet | - | - | -"
SNOW = "snow snowed | 눈이 오 | schneien, geschneit | - | - | -"

THINGS = "print writing item keepsake picture clothes hat shoes device vehicle furniture crockery"
ADJECTIVES = f"""
    big | 크 | groß | {BEASTS} bird fruit vegetable vehicle furniture crockery building height place tree
    small | 작 | klein | {BEASTS} bird fruit vegetable device furniture crockery building tree item keepsake
    beautiful | 아름답:ㅂ | schön | flower site song building height picture tree
    kind | 친절하 | freundlich | person kin
    happy | 행복하 | glücklich | person kin
    tired | 피곤하 | müde/müd | person kin
    hungry | 배고프 | hungrig | person kin pet animal
    expensive | 비싸 | teuer/teur | clothes hat device vehicle furniture shoes
    delicious | 맛있:있 | lecker | {FOOD} hot_drink
    interesting | 재미있:있 | interessant | print writing show
    busy | 바쁘 | beschäftigt/vielbeschäftigt | person kin
    cold | 차갑:ㅂ | kalt | drink
    heavy | 무겁:ㅂ | schwer | furniture device
    young | 젊 | jung | person | attributive
    sad | 슬프 | traurig | person kin
    cute | 귀엽:ㅂ | niedlich | pet livestock
    new | 새:관 | neu | {THINGS} building height | attributive
    old | 오래되 | alt | {THINGS} building height | attributive
    long | 길 | lang | writing show
    pretty | 예쁘 | hübsch | clothes flower
    sick | 아프 | krank | person kin pet livestock
    red | 빨갛:ㅎ | rot | clothes hat flower vehicle
    sweet | 달 | süß | fruit
    quiet | 조용하 | ruhig | room site
    famous | 유명하 | berühmt | site building height
    cheap | 싸 | billig | clothes hat device furniture vehicle
    clean | 깨끗하 | sauber | clothes shoes room crockery
    difficult | 어렵:ㅂ | schwierig | subject language
    easy | 쉽:ㅂ | einfach | subject language
    spicy | 맵:ㅂ | scharf | dish
    cold | 춥:ㅂ | kalt | room
    fast | 빠르:르 | schnell | vehicle
    brave | 용감하 | mutig | person kin
    smart | 똑똑하 | klug | person kin
    lazy | 게으르:르 | faul | person
    diligent | 부지런하 | fleißig | person
    honest | 정직하 | ehrlich | person kin
    rich | 부유하 | reich | person | predicative
    poor | 가난하 | arm | person | predicative
    healthy | 건강하 | gesund | person kin | predicative
    lonely | 외롭:ㅂ | einsam | person kin | predicative
    strict | 엄격하 | streng | person kin | predicative
    polite | 예의 바르:르 | höflich | person
    tall | 키가 크/키 큰 | groß | person
    strong | 힘이 세/힘센 | stark | person animal
    thirsty | 목마르:르 | durstig | person kin pet animal
    blue | 파랗:ㅎ | blau | clothes hat vehicle
    yellow | 노랗:ㅎ | gelb | clothes flower bird
    white | 하얗:ㅎ | weiß | clothes flower pet
    black | 까맣:ㅎ | schwarz | clothes hat pet shoes
    dirty | 더럽:ㅂ | schmutzig | clothes shoes crockery
    light | 가볍:ㅂ | leicht | clothes shoes
    warm | 따뜻하 | warm | clothes room
    boring | 지루하 | langweilig | print writing show
    fresh | 신선하 | frisch | fruit vegetable
    hot | 뜨겁:ㅂ | heiß | hot_drink
    sour | 시 | sauer/saur | fruit
    salty | 짜 | salzig | dish
    dangerous | 위험하 | gefährlich | animal
    dark | 어둡:ㅂ | dunkel/dunkl | room
    noisy | 시끄럽:ㅂ | laut | room site
    useful | 유용하 | nützlich | device print
    short | 짧 | kurz | writing show song
    soft | 부드럽:ㅂ | weich | clothes
    round | 둥글 | rund | crockery
    high | 높 | hoch/hoh | height
"""

FREQUENCIES = """
    often | 자주 | oft
    always | 항상 | immer
    sometimes | 가끔 | manchmal
    usually | 보통 | normalerweise
"""

TIMES: dict[Tense, str] = {
    "past": """
        yesterday | 어제 | gestern
        last week | 지난주에 | letzte Woche
        last night | 어젯밤에 | letzte Nacht | clock
        last year | 작년에 | letztes Jahr | long
        two days ago | 이틀 전에 | vor zwei Tagen
        last month | 지난달에 | letzten Monat | long
        last weekend | 지난 주말에 | letztes Wochenende
        an hour ago | 한 시간 전에 | vor einer Stunde | clock
        yesterday evening | 어제저녁에 | gestern Abend | clock
        last summer | 지난여름에 | letzten Sommer | long
        last winter | 지난겨울에 | letzten Winter | long
        three weeks ago | 3주 전에 | vor drei Wochen | long
    """,
    "future": """
        tomorrow | 내일 | morgen
        next week | 다음 주에 | nächste Woche
        soon | 곧 | bald
        next year | 내년에 | nächstes Jahr | long
        next month | 다음 달에 | nächsten Monat | long
        tomorrow morning | 내일 아침에 | morgen früh
        this evening | 오늘 저녁에 | heute Abend
        next weekend | 다음 주말에 | nächstes Wochenende
        in two days | 이틀 후에 | in zwei Tagen
        in an hour | 한 시간 후에 | in einer Stunde | clock
        next summer | 내년 여름에 | nächsten Sommer | long
    """,
    "present": """
        every day | 매일 | jeden Tag
        every morning | 매일 아침 | jeden Morgen
        in the evening | 저녁에 | am Abend
        every weekend | 주말마다 | jedes Wochenende
        in the afternoon | 오후에 | am Nachmittag
        every week | 매주 | jede Woche
        every evening | 매일 저녁 | jeden Abend
        every month | 매달 | jeden Monat | long
        every year | 해마다 | jedes Jahr | long
    """,
    "progressive": """
        now | 지금 | jetzt
    """,
}

DAYS = (
    "Monday 월요일 Montag;Tuesday 화요일 Dienstag;Wednesday 수요일 Mittwoch;Thursday 목요일 Donnerstag;"
    + ("Friday 금요일 Freitag;Saturday 토요일 Samstag;Sunday 일요일 Sonntag")
)
SEASONS = "spring 봄 Frühling;summer 여름 Sommer;fall 가을 Herbst;winter 겨울 Winter"

# 1 to 12; Korean as it stands before a counter.
NUMBERS = (
    *("", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
KOREAN_NUMBERS = (
    *("", "한", "두", "세", "네", "다섯", "여섯"),
    *("일곱", "여덟", "아홉", "열", "열한", "열두"),
)
GERMAN_NUMBERS = (
    *("", "ein", "zwei", "drei", "vier", "fünf", "sechs"),
    *("sieben", "acht", "neun", "zehn", "elf", "zwölf"),
)

DEGREES = """
    very | 매우 | sehr
    really | 정말 | wirklich
    quite | 꽤 | ziemlich
"""

MANNERS = """
    slowly | 천천히 | langsam | go eat read write care
    quickly | 빨리 | schnell | eat read write fast go
    alone | 혼자 | allein | go eat work alone build cook read
    hard | 열심히 | fleißig | work
    well | 잘 | gut | well sing speak cook
    quietly | 조용히 | leise | care sing loud
    loudly | 큰 소리로 | laut | sing loud read
    carefully | 조심스럽게 | vorsichtig | care
    early | 일찍 | früh | early
    late | 늦게 | spät | early
    together | 함께 | zusammen | together go eat work build cook read alone sing
"""
