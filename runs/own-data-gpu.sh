#!/bin/sh
# What docs/own-data.md promises, measured on one GPU in about 25 minutes: judging and training again, adaptation,
# terms of a glossary, back-translation.
#
#   sh runs/own-data-gpu.sh MODEL DATA OUT
#   LIMIT=560 sh runs/own-data-gpu.sh MODEL DATA OUT     stop after 560 seconds with exit code 75; the same call goes on
#   SKIP="judge tatoeba" sh runs/own-data-gpu.sh ...     without these steps
#   REHEARSAL=1 sh runs/own-data-gpu.sh ...              the same steps with hundreds of pairs, for minutes of a CPU
#
# MODEL is an English-German model folder, such as that of runs/europarl.sh. DATA has the corpora as xz files:
# europarl/{train,valid,test}, multi30k/{train,valid,test_2016_flickr}, tatoeba/{train,valid,test} and
# newstest/{train_2008_2012,newstest2013,newstest2014}, each with .en.xz and .de.xz, and multi30k/train.fr.xz.
#
#   step              seconds   limit   result in OUT/results
#   text                   40      90   (texts and data folders)
#   judge                 330     400   judge.json: AUROC, and BLEU of clean, damaged and kept pairs at 10 and 30 %
#   multi30k              180     240   multi30k.json: gain and loss on newstest2014 of each method, with both curves
#   tatoeba               180     240   tatoeba.json
#   terms-de, terms-ko     60     120   terms-de.json, terms-ko.json: term rate, right forms, BLEU and CPU time (torch)
#   backtranslation       600     700   backtranslation.json (Europarl), backtranslation-news.json: 100,000 pairs and
#                                       1,000,000 German lines against the pairs alone
#
# A step whose result exists is not repeated. A step that fails or exceeds its limit leaves what it had, and the others
# run. OUT/results/times.tsv has the seconds of each step, OUT/results/STEP.log its output.
set -u
MODEL=${1:?"give a model folder"} DATA=${2:?"give the folder of the corpora"} OUT=${3:?"give a folder for the results"}
HERE=$(dirname "$0")
RESULTS=$OUT/results
DEADLINE=$(($(date +%s) + ${LIMIT:-1700}))
PAIRS=100000 MONO=1000000 JUDGED=200000 GENERAL=200000 VOCAB=16000 JUDGE_VOCAB=16000 SENTENCES=3003
SMALL_RUN="train.card=false train.bleu_sentences=0"
BT_CHANGES="model.dropout=0.3 data.batch_tokens=12000 train.warmup=1500 train.validate_every=2000 train.calibrate=false"
BT_CHANGES="$BT_CHANGES train.seconds=80"
BT_LATER="model.dropout=0.1 data.batch_tokens=25000 train.seconds=150"
ADAPT="train.seconds=40"
JUDGE="train.seconds=60 train.validate_every=100000 train.calibrate=false"
JUDGE_OPTIONS="--preset small --steps 3500 --batch-tokens 16000"
TERMS="--steps 3000 --device cuda"
if [ -n "${REHEARSAL:-}" ]; then
    PAIRS=300 MONO=200 JUDGED=400 GENERAL=200 VOCAB=500 JUDGE_VOCAB=500 SENTENCES=20
    tiny="model.layers=1 model.d_model=16 model.d_ff=32 model.heads=2 data.batch_tokens=600 train.steps=6"
    BT_CHANGES="$tiny" BT_LATER="" ADAPT="train.steps=4 train.validate_every=2"
    JUDGE="model.layers=1 model.d_model=16 model.d_ff=32 model.heads=2 train.calibrate=false"
    JUDGE_OPTIONS="--preset tiny --steps 6 --batch-tokens 600"
    TERMS="--steps 10 --terms 2"
fi
mkdir -p "$RESULTS" "$OUT/text"

step() {  # NAME SECONDS FILE COMMAND...: run a command that writes FILE, unless that exists or the step is skipped
    name=$1 limit=$2 file=$3
    shift 3
    case " ${SKIP:-} " in *" $name "*) echo "$name: skipped" >&2; return 0 ;; esac
    [ ! -s "$file" ] || { echo "$name: complete" >&2; return 0; }
    left=$((DEADLINE - $(date +%s)))
    [ "$left" -gt 15 ] || { echo "$name: no time left; the same call goes on" >&2; exit 75; }
    [ "$left" -gt "$limit" ] || limit=$left
    start=$(date +%s)
    timeout --signal=TERM --kill-after=30 "$limit" "$@" >> "$RESULTS/$name.log" 2>&1
    code=$?
    printf '%s\t%s\t%s\n' "$name" "$(($(date +%s) - start))" "$code" >> "$RESULTS/times.tsv"
    [ -s "$file" ] || echo "$name: not complete (exit code $code): $(tail -n 1 "$RESULTS/$name.log")" >&2
}

# ---- text

text() {
    python - "$DATA" "$OUT/text" "$PAIRS" "$MONO" "$GENERAL" "$JUDGED" <<'PYTHON' || return
import lzma, sys
from itertools import islice
data, out = sys.argv[1:3]
pairs, mono, general, judged = map(int, sys.argv[3:])

def write(name, corpus, language, first=0, count=None):
    with lzma.open(f"{data}/{corpus}.{language}.xz", "rt", encoding="utf-8", newline="\n") as lines:
        with open(f"{out}/{name}.{language}", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(islice(lines, first, None if count is None else first + count))

for language in ("en", "de"):
    write("pairs", "europarl/train", language, 0, pairs)
    write("judged", "europarl/train", language, 0, judged)
    write("general", "europarl/train", language, 0, general)
    for name, corpus in {
        "valid": "europarl/valid", "test": "europarl/test", "news": "newstest/train_2008_2012",
        "news13": "newstest/newstest2013", "news14": "newstest/newstest2014",
        "multi30k": "multi30k/train", "multi30k-valid": "multi30k/valid", "multi30k-test": "multi30k/test_2016_flickr",
        "tatoeba": "tatoeba/train", "tatoeba-valid": "tatoeba/valid", "tatoeba-test": "tatoeba/test",
    }.items():
        write(name, corpus, language)
write("mono", "europarl/train", "de", max(pairs, judged), mono)
PYTHON
    prepare general news13 news14 general news && prepare multi30k multi30k-valid multi30k-test multi30k \
        && prepare tatoeba tatoeba-valid tatoeba-test tatoeba && echo complete > "$OUT/text/complete"
}

prepare() {  # NAME VALID TEST TRAIN...: a data folder with the subwords of the model
    data=$OUT/$1-data text=$OUT/text
    [ ! -d "$data" ] || return 0
    set -- "--valid=$text/$2.en" "--valid=$text/$2.de" "--test=$text/$3.en" "--test=$text/$3.de" $(
        shift 3
        for stem in "$@"; do echo "--train=$text/$stem.en --train=$text/$stem.de"; done
    )
    manyheads prepare "$data" "$@" subwords.reuse_from="$MODEL"
}

# ---- measurements

adaptation() {  # NAME
    # shellcheck disable=SC2086
    python "$HERE/../bench/adaptation.py" "$MODEL" --new "$OUT/$1-data" --general "$OUT/general-data" \
        --out "$OUT/$1" --only replay adapter-replay --sentences "$SENTENCES" --json "$RESULTS/$1.part.json" \
        --set $SMALL_RUN $ADAPT && mv "$RESULTS/$1.part.json" "$RESULTS/$1.json"
}

judge() {
    # shellcheck disable=SC2086
    python "$HERE/../bench/judge.py" "$OUT/text/judged.en" "$OUT/text/judged.de" \
        --foreign "$DATA/multi30k/train.fr.xz" --pairs "$JUDGED" --rates 0.1 0.3 --vocab-size "$JUDGE_VOCAB" \
        --test "$OUT/text/test.en" "$OUT/text/test.de" $JUDGE_OPTIONS --out "$OUT/judge" \
        --json "$RESULTS/judge.part.json" --set $SMALL_RUN $JUDGE && mv "$RESULTS/judge.part.json" "$RESULTS/judge.json"
}

terms() {  # LANGUAGE
    # shellcheck disable=SC2086
    python "$HERE/../bench/terminology.py" --pair "en-$1" --out "$OUT/terms-$1" --models annotated --per-term 1 \
        --engines torch $TERMS --json "$OUT/terms-$1/rows.json" && mv "$OUT/terms-$1/rows.json" "$RESULTS/terms-$1.json"
}

backtranslation() {
    runs=$OUT/backtranslation
    PARALLEL=$OUT/text/pairs TARGET_MONO=$OUT/text/mono.de VALID=$OUT/text/valid TEST=$OUT/text/test VOCAB=$VOCAB \
        SOURCE_MONO='' OPTIONS="--beam 1" MIN='' CHANGES="$SMALL_RUN $BT_CHANGES" LATER_CHANGES=$BT_LATER \
        sh "$HERE/backtranslation.sh" "$runs" || return
    manyheads evaluate "$runs/en-de.1/model" "$OUT/text/news14.en" "$OUT/text/news14.de" --worst 0 \
        --baseline "$runs/en-de.0/model" --json > "$runs/news.json" || return
    cp "$runs/news.json" "$RESULTS/backtranslation-news.json"
    cp "$runs/result-1.json" "$RESULTS/backtranslation.json"
}

# Each step runs in a process of its own, so that a signal ends all of it.
case ${STEP:-} in
    text) text; exit ;;
    judge) judge; exit ;;
    multi30k | tatoeba) adaptation "$STEP"; exit ;;
    terms-*) terms "${STEP#terms-}"; exit ;;
    backtranslation) backtranslation; exit ;;
esac
step text 90 "$OUT/text/complete" env STEP=text sh "$0" "$@"
step judge 400 "$RESULTS/judge.json" env STEP=judge sh "$0" "$@"
step multi30k 240 "$RESULTS/multi30k.json" env STEP=multi30k sh "$0" "$@"
step tatoeba 240 "$RESULTS/tatoeba.json" env STEP=tatoeba sh "$0" "$@"
step terms-de 120 "$RESULTS/terms-de.json" env STEP=terms-de sh "$0" "$@"
step terms-ko 120 "$RESULTS/terms-ko.json" env STEP=terms-ko sh "$0" "$@"
step backtranslation 700 "$RESULTS/backtranslation.json" env STEP=backtranslation sh "$0" "$@"
cat "$RESULTS/times.tsv" >&2
ls "$RESULTS"
