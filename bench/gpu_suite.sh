#!/bin/sh
# All measurements of one GPU that the documents report, one after the other, each with a time limit. What has its
# result is not measured again, so the same call goes on after an interruption. For a machine that is lent for a short
# time: start it in the background (setsid nohup sh bench/gpu_suite.sh ... &) and copy OUT away now and then.
#
#   sh bench/gpu_suite.sh MODEL TEXT CAPTIONS OUT [STEP...]
#
# MODEL: a calibrated base model (runs/europarl.sh). TEXT: 200,000 lines in its source language. CAPTIONS: short lines
# for the server. OUT: a folder for results. Paths are absolute or relative to the repository. OLD=CHECKOUT and
# OLD_MODEL=MODEL compare the server with older code. Steps:
# tests serve file train sizes decode fp8; without any, all of them. OUT/steps says when each began and ended.
set -u
[ $# -ge 4 ] || { sed -n '2,11p' "$0"; exit 2; }
model=$1 text=$2 captions=$3 out=$4
shift 4
[ $# -gt 0 ] || set -- tests serve file train sizes decode fp8
cd "$(dirname "$0")/.." || exit 2
mkdir -p "$out"
export PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
old=${OLD:+--old $OLD} old_model=${OLD_MODEL:+--old-model $OLD_MODEL}

measure() {    # measure NAME SECONDS COMMAND...
    name=$1 limit=$2
    shift 2
    [ -e "$out/$name.done" ] && return
    echo "$(date +%T) $name: start" >> "$out/steps"
    timeout -k 5 "$limit" "$@" > "$out/$name.out" 2> "$out/$name.err"
    code=$?
    echo "$(date +%T) $name: exit code $code" >> "$out/steps"
    [ "$code" = 0 ] && touch "$out/$name.done"
}

for step in "$@"; do
    case $step in
    tests) measure tests 200 python3 -m pytest -q -p no:cacheprovider -n 8 -m "not heavy" tests/gpu \
        tests/invariants/test_slots.py tests/invariants/test_ops.py tests/invariants/test_vocabulary_ops.py \
        tests/invariants/test_stream_steps.py tests/invariants/test_cuda_graphs.py ;;
    serve) measure serve 150 python3 bench/serve.py "$model" "$captions" $old $old_model --clients 1 64 1000 \
        --seconds 5 --json "$out/serve.json" ;;
    file) measure file 240 python3 bench/translate_file.py "$model" "$text" --peer-sentences 2048 --profile \
        --json "$out/file.json" ;;
    train) measure train 300 python3 bench/train_step.py --json "$out/train.json" ;;
    sizes) measure sizes 120 python3 bench/train_step.py --preset tiny --preset big --only manyheads \
        --json "$out/sizes.json" ;;
    decode) measure decode 300 python3 bench/decode.py --row-seconds 4 --json "$out/decode.json" ;;
    fp8) measure fp8 90 python3 bench/fp8_products.py --json "$out/fp8.json" ;;
    *) echo "gpu_suite.sh: unknown step $step" >&2; exit 2 ;;
    esac
done
