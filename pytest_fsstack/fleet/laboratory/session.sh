#!/bin/sh
# A task of Slurm's: one session, in whose directory all of its files are. All words come from sbatch; none is evaluated.
#   session.sh DIRECTORY RUN N KERNEL-1 ... KERNEL-N PYTEST-ARGUMENTS
set -u
umask 077
index=$SLURM_ARRAY_TASK_ID results=$1/runs/$2/results/$SLURM_ARRAY_TASK_ID python=$1/runs/$2/python/bin/python count=$3
mkdir -p "${results%/*}"
# Slurm discards the output of this script.
exec 2>>"$results.errors"
cd "$1/runs/$2/files" || exit 125
shift 3
kernel=
while [ "$count" -gt 0 ]; do
    [ "$index" -gt 0 ] || kernel=${kernel:-$1}
    index=$((index - 1)) count=$((count - 1))
    shift
done
[ -z "$kernel" ] || set -- "$@" "--fsstack-kernel=$kernel"
# A session that has begun is not begun again.
mkdir "$results" || exit 125
rm "$results.errors"

stopped= session=
trap 'stopped=1; [ -z "$session" ] || kill -TERM "$session"' TERM
"$python" -m pytest -p no:cacheprovider "$@" --fsstack-json="$results/run.json" --fsstack-log="$results/rounds.jsonl" \
    --junitxml="$results/junit.xml" >"$results/output" 2>&1 &
session=$!
[ -z "$stopped" ] || kill -TERM "$session"
while :; do
    wait "$session"
    code=$?
    # A signal ends `wait`, and not the session.
    kill -0 "$session" 2>/dev/null || break
done
trap '' TERM
[ "$code" -lt 128 ] || "$python" -m pytest --fsstack-cleanup -p no:cacheprovider >>"$results/output" 2>&1
echo "$code" >"$results/exit"
exit "$code"
