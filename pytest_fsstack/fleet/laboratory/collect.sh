# Run on a host after its sessions: undo what a killed one has left, and send all of their files by stdout.
#   collect.sh DIRECTORY RUN
set -eu
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"
cd "$1/runs/$2"
# It is missing if all sessions were cancelled before they began.
mkdir -p results
cd results
../python/bin/python -m pytest --fsstack-cleanup -p no:cacheprovider --rootdir=. >&2
exec tar -c .
