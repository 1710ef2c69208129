#!/bin/sh
# Table 3 at base's own sizes on Europarl and news, measured on newstest2013: 6,000 steps a row, base three times. One
# GPU, about 3 minutes a row and 15 for C-d1024; every row resumes, and finished rows are not trained again.
#
#   sh runs/table3-europarl.sh [OUT]                    by default table3-europarl
#
# Rows D (dropout, label smoothing) are also trained on 200,000 pairs, about 30 epochs: regularization is for scarce
# data. SEEDS=2 trains every row twice: differences are then taken between equal seeds.
set -e
out=${1:-table3-europarl}
[ -d europarl/data ] || manyheads prepare europarl/data --recipe runs/data/europarl.toml
if [ ! -d europarl/data-200k ]; then
    for side in en de; do head -n 200000 europarl/train.$side > europarl/train-200k.$side; done
    manyheads prepare europarl/data-200k --train=europarl/train-200k.en --train=europarl/train-200k.de \
        --valid=europarl/data/valid.en --valid=europarl/data/valid.de subwords.reuse_from=europarl/data
fi
for rows in A B C D E; do
    manyheads paper table3 europarl/data --scale base --rows $rows --budget 6000steps --seeds "${SEEDS:-1}" --jobs 1 \
        --device cuda --out "$out"
done
manyheads paper table3 europarl/data --scale base --rows A,B,C,D,E --budget 6000steps --seeds "${SEEDS:-1}" --jobs 1 \
    --device cuda --out "$out"
manyheads paper table3 europarl/data-200k --scale base --rows D --budget 12000steps --seeds "${SEEDS:-1}" --jobs 1 \
    --device cuda --out "$out-200k"
