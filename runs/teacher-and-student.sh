#!/bin/sh
# A model of runs/europarl.toml, a student of it, and what is measured of both, unattended on a GPU that is lent for half
# an hour: LIMIT seconds in all, of which the student gets what the other steps leave. About 1,700 s on an H200.
#
#   LIMIT=1650 sh runs/teacher-and-student.sh DATA SUBWORDS NEWS LINES OUT
#
# DATA: the data folder of runs/data/europarl.toml, prepared before. SUBWORDS: a folder with the subwords of the student
# (16,000 pieces). NEWS: a folder with 13.en, 13.de, 14.en, 14.de (newstest2013 and 2014), short.en and short.de, and
# perhaps other.*: English text of other domains, and domain.en and domain.de: held-out text of Europarl.
# LINES: a file of 200,000 lines to translate. Steps that are complete are not repeated, so the same call resumes.
#
#   step         seconds  result in OUT
#   teacher      770      teacher/model, int8/ (to copy away first)
#   file         200      results/file.json: the command, the engine and a peer
#   distill      260      student/translations, and student/data of them
#   evaluate      90      results/*.json: newstest2013 and 2014, stress tests, hostile lines, beside student/data
#   student      rest     student-run/model: quantize and measure it where it is to be used
#
# RATE is how many steps of the student a second takes (64 on an H200), OPTIONS changes keys of the teacher.
set -u
. "$(dirname "$0")/limits.sh"
LIMIT=${LIMIT:-1650}
data=$1 subwords=$2 news=$3 lines=$4 out=$5
results=$out/results
mkdir -p "$results"

echo "teacher: $(remaining) s left" >&2
limited 850 manyheads train runs/europarl.toml --out "$out/teacher" data.folder="$data" train.card=false ${OPTIONS:-} \
    2> "$results/teacher.err" || exit $?
[ -d "$out/int8" ] || manyheads export "$out/teacher/model" --to int8 --out "$out/int8"

echo "file: $(remaining) s left" >&2
measure "$results/file.txt" 240 python3 bench/translate_file.py "$out/teacher/model" "$lines" --peer-sentences 512 \
    --json "$results/file.json" ${FILE_OPTIONS:-}

distill() {    # distill SECONDS STAGE: the stages up to this one
    limited "$1" manyheads distill "$out/teacher/model" --data "$data" --preset runs/student.toml --out "$out/student" \
        --beam "${BEAM:-2}" --subwords "$subwords" --until "$2" ${STUDENT:-} 2>> "$results/distill.err"
}

echo "translate: $(remaining) s left" >&2
distill 400 translate || exit $?

echo "evaluate and prepare: $(remaining) s left" >&2
(
    measure "$results/clean.json" 60 manyheads evaluate "$out/teacher/model" "$news/14.en" "$news/14.de" --json
    measure "$results/valid.json" 60 manyheads evaluate "$out/teacher/model" "$news/13.en" "$news/13.de" --json
    measure "$results/stress.json" 150 manyheads evaluate "$out/teacher/model" "$news/14.en" "$news/14.de" --stress \
        --copies "${COPIES:-5000}" --picture "$results/stress.svg" --json
    measure "$results/robustness.txt" 240 python3 bench/robustness.py "$out/teacher/model" "$news/14.en" "$news/14.de" \
        --hostile "${HOSTILE:-20000}" --short "$news/short.en" "$news/short.de" \
        $(for file in "$news"/other.*; do [ -f "$file" ] && echo "--other $file"; done) --json "$results/robustness.json"
    [ ! -f "$news/domain.en" ] || measure "$results/domain.txt" 60 python3 bench/robustness.py "$out/teacher/model" \
        "$news/domain.en" "$news/domain.de" --json "$results/domain.json"
) &
distill 300 data || {
    code=$?
    wait
    exit $code
}

seconds=$(($(remaining) - 45))    # what loading takes, and the average and calibration at the end
echo "student: $seconds s" >&2
limited "$(remaining)" manyheads train runs/student.toml --out "$out/student-run" data.folder="$out/student/data" \
    train.card=false train.seconds="$seconds" train.steps=$((seconds * ${RATE:-64})) ${STUDENT:-} 2> "$results/student.err"
code=$?
wait
exit $code
