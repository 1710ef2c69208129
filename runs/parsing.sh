#!/bin/sh
# Table 4 with the paper's settings: 4 layers of 1024, three seeds, subword regularization, and curves over the number of
# trees beside a PCFG. One GPU, several hours; each run resumes, and finished ones are not trained again.
#
#   sh runs/parsing.sh TREES [OUT]        TREES: a folder with wsj10.train.ptb.xz, wsj10.valid..., craft.train..., ...
#
# "More trees" and "more steps" are separate: each number of trees is trained for each number of steps. The trees of the
# tested corpus come first; those of the other corpora follow from 3,395 on.
set -e
trees=$1
out=${2:-paper-parsing}
settings="--device cuda --model parsing --vocab-size 16000 --set train.schedule=paper --set train.warmup=4000
    --set train.learning_rate=none --set data.batch_tokens=12000 --set data.subword_regularization=0.1
    --set train.checkpoint_every=500 --set train.average_checkpoints=8 --set train.keep_checkpoints=8
    --set train.validate_every=2000"
manyheads paper table4 "$trees" --out "$out" --input words,both --sizes 850,1700,3394,6000,10000,20896 \
    --steps 4000,9000,20000 --seeds 3 $settings
