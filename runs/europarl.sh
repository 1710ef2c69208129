#!/bin/sh
# The model of runs/europarl.toml in two stages, and how it holds up: capitals, lower case, typos, copied text, hostile
# input, confidence, short sentences; beside the same steps without noise. One GPU, about 20 minutes
# (docs/results/robustness.md).
#
#   sh runs/europarl.sh [OUT]                    by default europarl-base: OUT/first/model and OUT/second/model
#
# The first stage is runs/europarl.toml for 570 s. The second, 160 s, goes on from its weights, rounded to int8, with a
# linear decay and more noise. Together they take the 729 s of the model without noise (docs/results/europarl.md).
# decoding.alpha stays 0.6: on newstest2013 no smaller value is better.
#
# The data is that of runs/data/europarl.toml, which says how to get it. Text of other domains, one sentence a line,
# may stand in OTHER, such as OTHER='captions.en manual.en'. Each measurement has a time limit, and results that exist
# are not measured again: the same call goes on. Copy the model folders away before anything else if the machine is lent.
set -e
out=${1:-europarl-base}
steps=6000    # of the comparison with and without noise
test_source=news/14/full/test.en test_reference=news/14/full/test.de
short_source=tatoeba/test.en short_reference=tatoeba/test.de

[ -d europarl/data ] || manyheads prepare europarl/data --recipe runs/data/europarl.toml
manyheads train runs/europarl.toml --out "$out/first" train.seconds=570 train.validate_every=10000
[ -d "$out/int8" ] || manyheads export "$out/first/model" --to int8 --out "$out/int8"
manyheads train runs/europarl.toml --out "$out/second" train.init_from="$out/int8" train.steps=5600 train.seconds=165 \
    train.seed=2 train.schedule=linear train.learning_rate=3e-4 train.warmup=200 train.validate_every=2800 \
    train.checkpoint_every=200 train.average_checkpoints=3 augmentation.lower=0.20 augmentation.typos=0.20

measure() {    # measure FILE SECONDS COMMAND...: write the output of a command to a file, complete or not at all
    file=$1 limit=$2
    shift 2
    [ -s "$file" ] && return
    if timeout "$limit" "$@" > "$file.part" 2> "$file.err"; then
        mv "$file.part" "$file"
    else
        echo "$file: not measured (exit code $?): $(tail -n 1 "$file.err")" >&2
    fi
}

results=$out/results
mkdir -p "$results"
for stage in first second; do
    model=$out/$stage/model
    measure "$results/$stage-clean.json" 120 manyheads evaluate "$model" $test_source $test_reference --json
    measure "$results/$stage-stress.json" 240 manyheads evaluate "$model" $test_source $test_reference --stress \
        --copies 5000 --picture "$results/$stage-stress.svg" --json
    measure "$results/$stage-robustness.txt" 300 python bench/robustness.py "$model" $test_source $test_reference \
        --hostile 20000 --short $short_source $short_reference $(for file in $OTHER; do echo "--other $file"; done)
done

# The same number of steps with noise and without.
quiet="augmentation.lower=0 augmentation.title=0 augmentation.capitals=0 augmentation.typos=0 augmentation.punctuation=0
    augmentation.spacing=0 augmentation.variants=0 augmentation.accents=0 augmentation.copied=0"
manyheads train runs/europarl.toml --out "$out-noisy" train.steps=$steps train.card=false
manyheads train runs/europarl.toml --out "$out-quiet" train.steps=$steps train.card=false $quiet
for name in noisy quiet; do
    measure "$results/$name.json" 240 manyheads evaluate "$out-$name/model" $test_source $test_reference --stress \
        --copies 0 --json
done
measure "$results/short.txt" 120 python bench/robustness.py "$out-noisy/model" $test_source $test_reference \
    --short $short_source $short_reference --baseline "$out-quiet/model"
