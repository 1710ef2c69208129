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

# Each system with three learning rates and two initializations, chosen on valid by the first seed; then three seeds. The
# best model on valid of 20 validations counts. To equal tokens, then to equal FLOPs; seconds beside them, all at once.
systems=rnn,plain-rnn,gru,convs2s,bytenet,experts,window
manyheads paper table2 multi30k/data --out paper-gpu --scale tiny --systems $systems --rate-multiples 0.5,1,2 --both-inits \
    --validations 20 --seeds 3 --budget 15000000tokens --jobs 12
manyheads paper table2 multi30k/data --out paper-gpu-flops --scale tiny --systems $systems --rate-multiples 0.5,1,2 \
    --both-inits --validations 20 --seeds 3 --budget 2e14FLOPs --jobs 12
manyheads paper table2 multi30k/data --out paper-gpu-seconds --scale tiny --systems $systems --budget 45s --jobs 8
manyheads paper table3 multi30k/data --out paper-gpu --scale tiny --rows A,B,C,D,E --seeds 2 \
    --budget 15000000tokens --jobs 7

[ -z "$1" ] || sh runs/parsing.sh "$1" paper-gpu
