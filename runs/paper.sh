#!/bin/sh
# Tables 2, 3 and 4 on one GPU: Multi30k English to German, and your own treebank. Results: docs/results/the-paper.md.
# Several runs share the GPU; NVIDIA's MPS (nvidia-cuda-mps-control -d, if installed) lets their kernels overlap.
#
#   sh runs/paper.sh [TREES]        TREES: a folder of bracketed trees, NAME.train.ptb, NAME.valid.ptb, NAME.test.ptb
set -e

if [ ! -d multi30k/data ]; then
    manyheads get multi30k --pair en-de --out multi30k
    manyheads prepare multi30k/data \
        --train=multi30k/train.en --train=multi30k/train.de --valid=multi30k/valid.en --valid=multi30k/valid.de \
        --test=multi30k/test.en --test=multi30k/test.de subwords.vocab_size=8000
fi

# Each system with three learning rates; the best by perplexity on valid counts. All run at once, for comparable times.
manyheads paper table2 multi30k/data --out paper-gpu --scale tiny --systems rnn,gru,convs2s,bytenet,experts,window \
    --rate-multiples 0.5,1,2 --budget 15000000tokens --jobs 12
manyheads paper table2 multi30k/data --out paper-gpu-seconds --scale tiny --systems rnn,gru,convs2s,bytenet,experts,window \
    --budget 45s --jobs 7
manyheads paper table3 multi30k/data --out paper-gpu --scale tiny --rows A,B,C,D,E --budget 15000000tokens --jobs 7

if [ -n "$1" ]; then
    manyheads paper table4 "$1" --out paper-gpu --device cuda --input words,both --steps 9000 \
        --set model.layers=4 --set model.d_model=256 --set model.d_ff=1024 --set model.dropout=0.3 --set model.norm=pre \
        --set train.learning_rate=1e-3 --set train.warmup=1000 --set data.batch_tokens=5000 \
        --set train.validate_every=2000 --set train.checkpoint_every=400 --set train.average_checkpoints=8 --set train.keep_checkpoints=8
fi
