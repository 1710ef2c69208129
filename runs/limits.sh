# Sourced by scripts of this folder: commands with time limits, and results that are written whole or not at all.
# LIMIT is how many seconds the whole script may take. Then it ends with code 75, and the same call resumes.
started=$(date +%s)

remaining() {    # print how many seconds are left
    echo $((${LIMIT:-86400} - $(date +%s) + started))
}

limited() {    # limited SECONDS COMMAND...: run a command for at most so long; code 75: stopped, can be resumed
    allowed=$1
    shift
    left=$(remaining)
    [ "$left" -ge "$allowed" ] || allowed=$left
    [ "$allowed" -gt 0 ] || return 75
    ended=0
    timeout --signal=TERM --kill-after=60 "$allowed" "$@" || ended=$?
    case $ended in 124 | 137 | 143) return 75 ;; esac
    return $ended
}

measure() {    # measure FILE SECONDS COMMAND...: write the output of a command to a file, complete or not at all
    file=$1 most=$2
    shift 2
    [ -s "$file" ] && return
    mkdir -p "$(dirname "$file")"
    if limited "$most" "$@" > "$file.part" 2> "$file.err"; then
        mv "$file.part" "$file"
    else
        echo "$file: not measured: $(tail -n 1 "$file.err")" >&2
    fi
}
