#!/bin/sh
# Which initial weights should be the default: base on Europarl to 20,000 steps with each, the same batches. One GPU,
# about 35 minutes (three runs of 20,000 steps of 28 ms, checkpoints and validations). Each run resumes: call it again.
#
#   sh runs/initialization.sh [OUT]                    by default initialization
#
# The data is that of runs/data/europarl.toml, which says how to get it. OUT/comparison.txt has, for each scheme, the
# mean training loss up to some steps, and perplexity and BLEU on newstest2013. The lowest perplexity after 20,000 steps
# chooses the default; differences below that of two seeds (SEEDS="1 2") decide nothing.
set -e
out=${1:-initialization}
[ -d europarl/data ] || manyheads prepare europarl/data --recipe runs/data/europarl.toml
for seed in ${SEEDS:-1}; do
    for scheme in init=scaled init=authors init_gain=1; do
        manyheads train runs/europarl.toml --out "$out/$scheme-seed$seed" "model.$scheme" train.seed="$seed" \
            train.steps=20000 train.seconds=none train.card=false train.validate_every=5000
        [ -s "$out/$scheme-seed$seed.json" ] || {
            manyheads evaluate "$out/$scheme-seed$seed/model" europarl/data/valid.en europarl/data/valid.de --json \
                > "$out/$scheme-seed$seed.json.part"
            mv "$out/$scheme-seed$seed.json.part" "$out/$scheme-seed$seed.json"
        }
    done
done
python bench/compare_runs.py "$out" | tee "$out/comparison.txt"
