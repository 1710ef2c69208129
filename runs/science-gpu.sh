#!/bin/sh
# Everything of docs/results/the-paper.md that needs a GPU, in steps that fit into a short lease of one.
#
#   LIMIT=540 sh runs/science-gpu.sh OUT STEP...       e.g. sh runs/science-gpu.sh science data table3 pack
#
# A call ends after LIMIT seconds with code 75; the same call resumes. Every trained row has a JSON file, which is
# written when it is finished, and rows with one are not trained again. `pack` writes all results without weights to
# OUT/home.tar.gz; on another machine `unpack` restores them, and the remaining rows follow. OUT/steps.jsonl logs the
# seconds of each step. REHEARSE=1 runs every step at a tiny size on the CPU, on built-in text.
#
# Minutes on one H200, estimated from 25 ms a step of base (measured: docs/results/training-step.md) and from earlier
# runs; a step with several hours goes on in the next lease:
#
#   data             4   Europarl and news, Multi30k, and the 200,000 pairs of rows D
#   table1           3   costs of layers on the GPU
#   table3          65   base three times and 18 rows of 6,000 steps (3 each, C-d1024 7), one seed; resumes row by row
#   table3-seed2    55   a second seed of each row: then differences are paired, with 17 degrees of freedom
#   table3-200k     45   rows D on 200,000 pairs, 12,000 steps (about 50 epochs), base three times
#   table3-multi30k 12   rows A to E at a quarter of the widths on Multi30k, two seeds, 7 at once
#   table2          70   8 systems, three rates, two initializations, three seeds, to equal tokens: 64 runs, 12 at once
#   table2-flops    70   the same to equal FLOPs
#   table2-seconds   2   45 seconds each, all at once
#   initialization  35   base from three initial weights to 20,000 steps
#   convergence     85   runs/convergence.sh: base 20, dropout3 20, rdrop 40, finetuned 2, ensemble 3
#   parsing        180   runs/parsing.sh; needs TREES, a folder of bracketed trees
#   figures          2   heads of the Europarl model, the paper's sentences, BLEU without each head (after convergence)
#   headline        12   Multi30k in a minute with and without R-Drop, beside peers with and without it; two test sets
#   koen             4   the Korean model: decontaminated test pairs, by morphemes and by characters (needs KOEN)
set -e
. "$(dirname "$0")/limits.sh"
out=${1:?usage: sh runs/science-gpu.sh OUT STEP...}
shift
mkdir -p "$out"

device=cuda europarl=europarl/data multi30k=multi30k/data scale=base small=tiny row_limit=900
row_steps=6000 scarce_steps=12000 tokens=15000000tokens flops=2e14FLOPs seconds=45s jobs=12 all_jobs=8
rows="A-h1 A-h4 A-h16 A-h32 B-dk16 B-dk32 C-n2 C-n4 C-n8 C-d256 C-d1024 C-ff1024 C-ff4096 D-drop0 D-drop2 D-smooth0
    D-smooth2 E-learned"
scarce_rows="D-drop0 D-drop2 D-smooth0 D-smooth2"
systems=rnn,plain-rnn,gru,convs2s,bytenet,experts,window
search="--rate-multiples 0.5,1,2 --both-inits --validations 20 --seeds 3"
minute=60 quality_settings=
if [ -n "$REHEARSE" ]; then
    device=cpu europarl=$out/rehearsal/data multi30k=$europarl scale=playground small=playground
    row_steps=4 scarce_steps=4 tokens=4steps flops=2e9FLOPs seconds=1s jobs=1 all_jobs=1
    rows="A-h1 D-drop0" scarce_rows=D-drop0 systems=experts
    search="--rate-multiples 1,2 --both-inits --validations 2 --seeds 2" minute=3
    export STAGES="4 8" NEWS_STEPS=4 DATA="$europarl" NEWS="$europarl"
    export SETTINGS="model.layers=1 model.d_model=32 model.d_ff=64 model.heads=2 data.batch_tokens=500"
    quality_settings="--set model.layers=1 --set model.d_model=32 --set model.d_ff=64 --set model.heads=2
        --set data.batch_tokens=500 --set data.subword_regularization=0"
fi
scarce=$europarl-200k

table3() {    # table3 FOLDER DATA STEPS SEEDS ROW...: row by row, then the report of all
    folder=$1 data=$2 steps=$3 seeds=$4
    shift 4
    for row in "$@" "$(echo "$@" | tr ' ' ,)"; do
        limited $row_limit manyheads paper table3 "$data" --scale $scale --rows "$row" --budget "${steps}steps" \
            --seeds "$seeds" --jobs 1 --device $device --out "$folder" > "$folder.txt" || return $?
    done
}

table2() {    # table2 FOLDER BUDGET JOBS OPTION...
    folder=$1 budget=$2 processes=$3
    shift 3
    limited 3600 manyheads paper table2 $multi30k --scale $small --systems $systems --budget "$budget" \
        --jobs $processes --device $device --out "$folder" "$@" > "$folder.txt"
}

prepare_data() {
    if [ -n "$REHEARSE" ]; then
        [ -d "$europarl" ] || python bench/rehearsal_data.py "$(dirname "$europarl")"
        [ -d "$scarce" ] || cp -r "$europarl" "$scarce"
        return
    fi
    [ -d $europarl ] || limited 300 manyheads prepare $europarl --recipe runs/data/europarl.toml || return $?
    [ -d $multi30k ] || limited 120 manyheads prepare $multi30k --train=multi30k/train.en --train=multi30k/train.de \
        --valid=multi30k/valid.en --valid=multi30k/valid.de --test=multi30k/test.en --test=multi30k/test.de \
        subwords.vocab_size=8000 || return $?
    if [ ! -d "$scarce" ]; then
        for side in en de; do head -n 200000 europarl/train.$side > europarl/train-200k.$side; done
        limited 120 manyheads prepare "$scarce" --train=europarl/train-200k.en --train=europarl/train-200k.de \
            --valid=$europarl/valid.en --valid=$europarl/valid.de subwords.reuse_from=$europarl
    fi
}

headline() {    # each in a process of its own; test_2017_flickr is what nobody tuned on
    test17="--test multi30k/test_2017_flickr.en multi30k/test_2017_flickr.de"
    [ -z "$REHEARSE" ] || test17="--test $europarl/test.en $europarl/test.de"
    quality="python bench/quality.py multi30k --data $multi30k --seconds $minute --device $device $test17"
    quality="$quality $quality_settings"
    measure "$out/headline/ours.txt" 300 $quality --json "$out/headline/ours.json"
    measure "$out/headline/ours-plain.txt" 300 $quality --set train.r_drop=0 --json "$out/headline/ours-plain.json"
    measure "$out/headline/peer.txt" 420 $quality --only "PyTorch without padding" --json "$out/headline/peer.json"
    measure "$out/headline/peer-plain.txt" 420 $quality --only "PyTorch without padding" --set train.r_drop=0 \
        --json "$out/headline/peer-plain.json"
    [ -n "$REHEARSE" ] || measure "$out/headline/marian.txt" 420 $quality --only "Hugging Face Marian" \
        --peer-set train.warmup=250 --json "$out/headline/marian.json"
}

koen() {    # KOEN: a folder with train.en, test.en, test.ko and a trained model
    [ -n "$KOEN" ] || { echo "koen: set KOEN to a folder with train.en, test.en, test.ko and model" >&2 && return 2; }
    measure "$out/koen/overlap.txt" 120 python bench/overlap.py "$KOEN/train.en" "$KOEN/test.en" "$KOEN/test.ko" \
        --out "$out/koen/clean"
    for tokenizer in char ko-mecab; do
        for folder in "$KOEN" "$out/koen/clean"; do
            measure "$out/koen/$(basename "$folder")-$tokenizer.json" 180 manyheads evaluate "$KOEN/model" \
                "$folder/test.en" "$folder/test.ko" --tokenize $tokenizer --device $device --json
        done
    done
}

run_step() {
    case $1 in
    data) prepare_data ;;
    table1) limited 300 manyheads paper table1 --device $device -o "$out/table1" $TABLE1_SIZES > "$out/table1.txt" ;;
    table3) table3 "$out/table3" "$europarl" $row_steps 1 $rows ;;
    table3-seed2) table3 "$out/table3" "$europarl" $row_steps 2 $rows ;;
    table3-200k) table3 "$out/table3-200k" "$scarce" $scarce_steps 1 $scarce_rows ;;
    table3-multi30k)
        limited 3600 manyheads paper table3 $multi30k --scale $small --rows "$(echo $rows | tr ' ' ,)" --seeds 2 \
            --budget $tokens --jobs $jobs --device $device --out "$out/table3-multi30k" > "$out/table3-multi30k.txt"
        ;;
    table2) table2 "$out/table2" $tokens $jobs $search ;;
    table2-flops) table2 "$out/table2-flops" $flops $jobs $search ;;
    table2-seconds) table2 "$out/table2-seconds" $seconds $all_jobs ;;
    initialization) limited 3600 sh runs/initialization.sh "$out/initialization" ;;
    convergence) LIMIT=$(remaining) sh runs/convergence.sh "$out/convergence" $ROWS ;;
    parsing) limited 3600 sh runs/parsing.sh "${TREES:?a folder of trees}" "$out/parsing" ;;
    figures)
        limited 300 manyheads paper figures "$out/convergence/base/model" "$europarl/test.en" \
            --reference "$europarl/test.de" --paper-sentences --device $device --out "$out/figures" > "$out/figures.txt"
        ;;
    headline) headline ;;
    koen) koen ;;
    pack)
        (cd "$out" && find . -type f \( -name '*.json' -o -name '*.jsonl' -o -name '*.md' -o -name '*.csv' \
            -o -name '*.svg' -o -name '*.txt' \) ! -path '*/step-*' ! -path '*/model/*' ! -path './rehearsal/*' \
            ! -name 'manifest.json' > files.list && tar czf home.tar.gz -T files.list)
        ;;
    unpack) tar xzf "$out/home.tar.gz" -C "$out" --exclude=steps.jsonl ;;
    *) echo "unknown step $1" >&2 && return 2 ;;
    esac
}

for step in "$@"; do
    begun=$(date +%s)
    code=0
    (run_step "$step") || code=$?
    echo "{\"step\": \"$step\", \"seconds\": $(($(date +%s) - begun)), \"code\": $code}" | tee -a "$out/steps.jsonl"
    [ $code -eq 0 ] || exit $code
done
