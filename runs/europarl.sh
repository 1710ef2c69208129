#!/bin/sh
# The model of runs/europarl.toml, and how it holds up: capitals, lower case, typos, copied text, hostile input,
# confidence, short sentences; beside the same steps without noise. One GPU, about 20 minutes
# (docs/results/robustness.md).
#
#   sh runs/europarl.sh [OUT]                    by default europarl-base: OUT/model
#
# decoding.alpha stays 0.6: on newstest2013 no smaller value is better.
#
# The data is that of runs/data/europarl.toml, which says how to get it. Text of other domains, one sentence a line,
# may stand in OTHER, such as OTHER='captions.en manual.en'. Each measurement has a time limit, and results that exist
# are not measured again: the same call goes on. Copy the model folder away before anything else if the machine is lent.
set -e
. "$(dirname "$0")/limits.sh"
out=${1:-europarl-base}
steps=6000    # of the comparison with and without noise
test_source=news/14/full/test.en test_reference=news/14/full/test.de
short_source=tatoeba/test.en short_reference=tatoeba/test.de

[ -d europarl/data ] || manyheads prepare europarl/data --recipe runs/data/europarl.toml
manyheads train runs/europarl.toml --out "$out"

results=$out/results model=$out/model
mkdir -p "$results"
measure "$results/valid.json" 120 manyheads evaluate "$model" news/13/test.en news/13/test.de --json
measure "$results/clean.json" 120 manyheads evaluate "$model" $test_source $test_reference --json
measure "$results/stress.json" 240 manyheads evaluate "$model" $test_source $test_reference --stress --copies 5000 \
    --picture "$results/stress.svg" --json
measure "$results/robustness.txt" 300 python bench/robustness.py "$model" $test_source $test_reference \
    --hostile 20000 --short $short_source $short_reference $(for file in $OTHER; do echo "--other $file"; done)

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
