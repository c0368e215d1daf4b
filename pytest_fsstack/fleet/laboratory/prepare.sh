# Run on a host before its session: unpack what comes by stdin, and build the environment if it is not there.
#   prepare.sh DIRECTORY RUN PYTHON WHEELS ENVIRONMENT VERSION OWNERS
# DIRECTORY is the laboratory's own, below the one that LAB.toml names. OWNERS is the text of machine/owners.py.
set -eu
umask 077
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"
directory=$1 run=$2 python=$3 wheels=$4 environment=$5 version=$6 owners=$7
if [ -n "$environment" ]; then
    python=$environment/bin/python
else
    python=$(command -v "$3") || { echo "there is no $3" >&2 && exit 1; }
fi
# The Python of another user must not be the one that finds out whose it is.
judge=/usr/bin/python3
"$judge" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || judge=$python
# Create a directory with a marker in that of the laboratory. Refuse a program that another user may change.
own() {
    "$judge" -I -c "$owners" "${directory%/*}" "${directory##*/}/$1" "$2" </dev/null
}
own "runs/$run" "$python"
cd "$directory"
# Hosts in a trial share one directory.
exec 9>lock
flock 9
if [ -n "$environment" ]; then
    tar -x --no-same-owner -C "runs/$run" files
else
    name=python-$wheels-$("$python" -I -c 'import sys; print(sys.implementation.cache_tag)')
    environment=$directory/$name
    own "$name" "$python"
    if [ -e "$name/ready" ]; then
        tar -x --no-same-owner -C "runs/$run" files
    else
        tar -x --no-same-owner -C "runs/$run"
        "$python" -I -m venv "$environment"
        "$environment/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-index --force-reinstall \
            --find-links "runs/$run/wheels" "runs/$run/wheels"/*.whl
        : >"$name/ready"
    fi
    touch "$name"
fi
here=$("$environment/bin/python" -I -c 'from pytest_fsstack import __version__; print(__version__)')
if [ "$here" != "$version" ]; then
    echo "$environment has pytest-fsstack $here, and the laboratory $version" >&2
    exit 1
fi
ln -sfn "$environment" "runs/$run/python"
# For Slurm's epilog.
ln -sfn "$environment" current
"$environment/bin/python" -I -m pytest_fsstack.fleet.laboratory.expire "$directory"
