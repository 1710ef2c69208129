#!/bin/sh
# A student of a model of runs/europarl.toml, English to German: its teacher translates the training data, the student
# (runs/student.toml) learns from it, becomes int8 and is measured. Results: student/model, student/report.md.
#
#   sh runs/distill.sh [TEACHER] [OUT]           by default europarl-base/model and student
#   LIMIT=540 sh runs/distill.sh                 stop after 540 seconds with exit code 75; the same call goes on
#
# Further options of `manyheads distill` may stand in OPTIONS, such as OPTIONS='--choose chrf --min-confidence 0.2'.
set -e
teacher=${1:-europarl-base/model}
out=${2:-student}

if [ ! -d europarl/data ]; then
    manyheads prepare europarl/data --recipe runs/data/europarl.toml
fi

# SIGTERM ends a shard or a step, keeps what is complete, and exits with 75. What hangs is killed a minute later.
${LIMIT:+timeout --preserve-status --signal=TERM --kill-after=60 "$LIMIT"} \
    manyheads distill "$teacher" --data europarl/data --preset runs/student.toml --out "$out" \
    --vocab-size 16000 --beam 4 $OPTIONS
