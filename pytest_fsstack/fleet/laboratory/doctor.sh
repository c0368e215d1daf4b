# Run on a host: whether the selected tests can run there on its disk. The last line is the exit code.
#   doctor.sh DIRECTORY RUN PYTEST-ARGUMENTS
set -u
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"
cd "$1/runs/$2/files" || exit 1
shift 2
../python/bin/python -m pytest -p no:cacheprovider --fsstack-doctor=show "$@" 2>&1
echo "$?"
