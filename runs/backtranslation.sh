#!/bin/sh
# Back-translation, iterated once: a model from few pairs and much text in one language. English to German here.
#
#   PARALLEL=text/train SOURCE_MONO=mono.en TARGET_MONO=mono.de VALID=text/valid TEST=text/test \
#       sh runs/backtranslation.sh OUT
#
# PARALLEL, VALID and TEST are the names of two files without their languages: text/train.en and text/train.de.
# Round 0 trains both directions on the pairs alone. Round 1 adds pairs from the text in the other language, made by
# the models of round 0; round 2 does so once more, with better models. The text of SOURCE_MONO only serves the
# model of the opposite direction; without it that model stays the one of round 0, and round 2 is left out.
#
#   SOURCE=en TARGET=de      the languages
#   RECIPE=europarl          sizes and schedule, a file of runs/
#   CHANGES="..."            keys of all runs, such as train.seconds=600
#   LATER_CHANGES="..."      keys of the runs with synthetic text besides, such as train.seconds=1200
#   VOCAB=16000              subwords of each direction
#   WEIGHT=1 REAL_WEIGHT=1   how often an epoch reads a synthetic pair and, beside those, a real one
#   METHOD=beam MIN=0.2      how synthetic text is made, and the least confidence; empty: no filter
#   OPTIONS="--beam 1"       further options of `manyheads backtranslate`
#
# OUT/result-1.json and result-2.json have the scores of both rounds, with confidence intervals, beside round 0. The
# same call goes on with what was stopped: SIGTERM ends a step with exit code 75.
set -e
OUT=${1:?"give a folder for the runs"}
SOURCE=${SOURCE:-en} TARGET=${TARGET:-de} RECIPE=${RECIPE:-europarl} VOCAB=${VOCAB:-16000} WEIGHT=${WEIGHT:-1}
METHOD=${METHOD:-beam} MIN=${MIN-0.2} REAL_WEIGHT=${REAL_WEIGHT:-1}
HERE=$(dirname "$0")
mkdir -p "$OUT"

write_recipe() {  # DATA FROM INTO [SYNTHETIC]: the recipe of one direction, with synthetic pairs if there are any
    {
        printf '[corpus]\nsource = "%s"\ntarget = "%s"\n' "$2" "$3"
        printf '[subwords]\nvocab_size = %s\nuser_symbols = ["<bt>"]\n' "$VOCAB"
        [ ! -d "$OUT/$2-$3.0-data" ] || printf 'reuse_from = "%s"\n' "$OUT/$2-$3.0-data"
        for split in train valid test; do
            case $split in train) stem=$PARALLEL ;; valid) stem=$VALID ;; test) stem=$TEST ;; esac
            printf '[[%s]]\nfiles = ["%s.%s", "%s.%s"]\n' $split "$stem" "$2" "$stem" "$3"
            [ $split != train ] || [ -z "$4" ] || printf 'weight = %s\n' "$REAL_WEIGHT"
        done
        [ -z "$4" ] || printf '[[train]]\nfiles = ["%s"]\ntag = "<bt>"\nweight = %s\n' "$4" "$WEIGHT"
    } > "$1.toml"
}

train() {  # ROUND FROM INTO [SYNTHETIC]
    data=$OUT/$2-$3.$1-data
    [ -d "$data" ] || { write_recipe "$data" "$2" "$3" "$4" && manyheads prepare "$data" --recipe "$data.toml"; }
    # shellcheck disable=SC2086
    manyheads train "$HERE/$RECIPE.toml" data.folder="$data" $CHANGES ${4:+$LATER_CHANGES} --out "$OUT/$2-$3.$1"
}

backtranslate() {  # ROUND FROM INTO MONO: pairs for the model from INTO to FROM
    # shellcheck disable=SC2086
    manyheads backtranslate "$OUT/$2-$3.$1/model" "$4" --out "$OUT/bt-$3-$2.$1" --method "$METHOD" \
        ${MIN:+--min-confidence "$MIN"} $OPTIONS
}

synthetic() {  # ROUND FROM INTO MONO: the file that `backtranslate` has written for the model from FROM to INTO
    printf '%s/bt-%s-%s.%s/%s.tsv' "$OUT" "$2" "$3" "$1" "$(basename "$4" | sed -E 's/\.(gz|xz|zst)$//')"
}

train 0 "$TARGET" "$SOURCE"
train 0 "$SOURCE" "$TARGET"
backtranslate 0 "$TARGET" "$SOURCE" "$TARGET_MONO"
train 1 "$SOURCE" "$TARGET" "$(synthetic 0 "$SOURCE" "$TARGET" "$TARGET_MONO")"
last=1
if [ -n "$SOURCE_MONO" ]; then
    backtranslate 1 "$SOURCE" "$TARGET" "$SOURCE_MONO"
    train 1 "$TARGET" "$SOURCE" "$(synthetic 1 "$TARGET" "$SOURCE" "$SOURCE_MONO")"
    backtranslate 1 "$TARGET" "$SOURCE" "$TARGET_MONO"
    train 2 "$SOURCE" "$TARGET" "$(synthetic 1 "$SOURCE" "$TARGET" "$TARGET_MONO")"
    last=2
fi
for round in $(seq 1 $last); do
    result=$OUT/result-$round.json
    [ -s "$result" ] || { manyheads evaluate "$OUT/$SOURCE-$TARGET.$round/model" "$TEST.$SOURCE" "$TEST.$TARGET" \
        --worst 0 --baseline "$OUT/$SOURCE-$TARGET.0/model" --json > "$result.part" && mv "$result.part" "$result"; }
    cat "$result"
done
