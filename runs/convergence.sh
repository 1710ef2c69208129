#!/bin/sh
# How good base becomes on Europarl and news by the paper's number of epochs (about 45,000 steps): BLEU by sacreBLEU and
# by the paper's protocol on newstest2013 and 2014 after 5, 10, 20 and 45 thousand steps, without noise in the sources.
#
#   sh runs/convergence.sh OUT [ROW...]        by default all rows; OUT/ROW-STEP.json has the scores, OUT/table.md all
#
# Rows, on one H200 at 25 ms a step: base (dropout 0.1), 20 minutes; dropout3 (0.3), 20; rdrop (base with R-Drop: two
# forward passes), 40; finetuned (base, then 1,000 steps on news), 2; ensemble (base and dropout3), 3. With LIMIT=540 a
# call ends after so many seconds with code 75, and the same call resumes; a lost machine loses the checkpoints, and a
# row begins again. The data is that of runs/data/europarl.toml, which says how to get it.
set -e
. "$(dirname "$0")/limits.sh"
out=${1:-convergence}
[ $# -eq 0 ] || shift
rows=${*:-base dropout3 rdrop finetuned ensemble}
stages=${STAGES:-5000 10000 20000 45000}
data=${DATA:-europarl/data}
recipe=runs/europarl.toml
last=${stages##* }
quiet="augmentation.lower=0 augmentation.title=0 augmentation.capitals=0 augmentation.typos=0 augmentation.punctuation=0
    augmentation.spacing=0 augmentation.variants=0 augmentation.accents=0 augmentation.copied=0"
common="data.folder=$data train.seconds=none train.card=false train.calibrate=false train.validate_every=5000
    train.checkpoint_every=500 $quiet $SETTINGS"

[ -d "$data" ] || limited 600 manyheads prepare "$data" --recipe runs/data/europarl.toml

evaluate() {    # evaluate LABEL MODEL [OPTION...]: newstest2013 and 2014
    label=$1 model=$2
    shift 2
    for split in valid test; do
        measure "$out/$label-$split.json" 180 manyheads evaluate "$model" "$data/$split.en" "$data/$split.de" --json "$@"
    done
}

train_row() {    # train_row NAME SETTING...: train to each stage in turn, and evaluate the average of its checkpoints
    name=$1
    shift
    for step in $stages; do
        [ -s "$out/$name-$step-test.json" ] && [ "$step" != "$last" ] && continue
        [ -s "$out/$name-$last-test.json" ] && [ -d "$out/$name/model" ] && return
        limited 3600 manyheads train "$recipe" --out "$out/$name" --change-config $common train.steps="$step" "$@"
        evaluate "$name-$step" "$out/$name/model"
    done
}

for row in $rows; do
    case $row in
    base) train_row base ;;
    dropout3) train_row dropout3 model.dropout=0.3 ;;
    rdrop) train_row rdrop train.r_drop=2.5 ;;
    finetuned)
        news=${NEWS:-news/data}
        [ -d "$news" ] || {
            for year in 08 09 10 11 12; do cat news/$year/test.en; done > news/train.en
            for year in 08 09 10 11 12; do cat news/$year/test.de; done > news/train.de
            limited 300 manyheads prepare "$news" --train=news/train.en --train=news/train.de \
                --valid="$data/valid.en" --valid="$data/valid.de" subwords.reuse_from="$data"
        }
        limited 600 manyheads train "$recipe" --out "$out/finetuned" $common data.folder="$news" \
            train.init_from="$out/base/model" train.steps="${NEWS_STEPS:-1000}" train.schedule=linear \
            train.learning_rate=1e-4 train.warmup=100 train.checkpoint_every=200 train.validate_every=500
        evaluate finetuned "$out/finetuned/model"
        ;;
    ensemble) evaluate ensemble "$out/base/model" --ensemble "$out/dropout3/model" ;;
    *) echo "unknown row $row" >&2 && exit 2 ;;
    esac
done
python bench/convergence_table.py "$out" | tee "$out/table.md"
