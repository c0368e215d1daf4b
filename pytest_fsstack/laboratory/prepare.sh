# Run on a host before its session: unpack what comes by stdin, and build the environment if it is not there.
#   prepare.sh DIRECTORY RUN PYTHON WHEELS ENVIRONMENT VERSION
set -eu
umask 077
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"
directory=$1 run=$2 python=$3 wheels=$4 environment=$5 version=$6
mkdir -p "$directory/runs"
cd "$directory"
# Hosts in a trial share one directory.
exec 9>lock
flock 9
find runs -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
find . -mindepth 1 -maxdepth 1 -name 'python-*' -mtime +90 -exec rm -rf {} +
rm -rf "runs/$run/incoming"
mkdir -p "runs/$run/incoming"
tar -x --no-same-owner -C "runs/$run/incoming"
if [ -z "$environment" ]; then
    environment=$directory/python-$wheels-$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
    if [ ! -e "$environment/ready" ]; then
        rm -rf "$environment"
        "$python" -m venv "$environment"
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \
            --find-links "runs/$run/incoming/wheels" "runs/$run/incoming/wheels"/*.whl
        : >"$environment/ready"
    fi
    touch "$environment"
fi
here=$("$environment/bin/python" -c 'from pytest_fsstack import __version__; print(__version__)')
if [ "$here" != "$version" ]; then
    echo "$environment has pytest-fsstack $here, and the laboratory $version" >&2
    exit 1
fi
ln -sfn "$environment" "runs/$run/python"
# For Slurm's epilog.
ln -sfn "$environment" current
rm -rf "runs/$run/files"
mv "runs/$run/incoming/files" "runs/$run/files"
rm -rf "runs/$run/incoming"
