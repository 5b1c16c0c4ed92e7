#!/bin/sh
# `make test-pythons`: `make check`, lint and the quick tests, under each other Python that is found. Each runs in a copy
# of this folder below build/pythons, with packages and extensions of its own.
#
# PYTHONS  interpreters, by name or path; without it python3.11 to python3.14 of PATH and of pyenv, less the one of .venv
# DEBIANS  suites of Debian whose own python3 is taken too; needs root and debootstrap: apt-get install debootstrap
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
place=$here/build/pythons
unset PYTEST_ADDOPTS KTS_KAFKA_DATA KTS_LENGTH KTS_REQUIRE_JAVA MAKEFLAGS MFLAGS MAKELEVEL PYTHON

version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

found() {
    ours=$(version "$here/.venv/bin/python" || true)
    for minor in 11 12 13 14; do
        [ "3.$minor" = "$ours" ] && continue
        for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"3.$minor".*/bin/python; do
            if [ "$(version "$python")" = "3.$minor" ]; then
                command -v "$python"
                break
            fi
        done
    done
}

files() {
    git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
        find . \( -path ./.venv -o -path ./build \) -prune -o -type f ! -name '*.so' -print0 # an unpacked sdist
}

# The files of git, and new ones, as they are now; what an earlier run built there stays.
copy() {
    mkdir -p "$1"
    (cd "$1" && find . \( -path ./.venv -o -path ./build \) -prune -o -type f ! -name '*.so' -exec rm -f {} +)
    (cd "$here" && files | tar --null -T - --ignore-failed-read -cf -) | tar -xf - -C "$1"
}

failed=
# What it is called, and the words before the goal of make. Without Java, whose tests are not quick.
quick() {
    name=$1
    shift
    echo "== $name: lint and quick tests"
    "$@" JDK= check || failed="$failed, $name"
}

chrooted() {
    # The mounts end with the process. pip's cache is shared, so that a package is fetched once.
    unshare --mount --fork sh -ec '
        root=$1 cache=$2
        mount -t proc proc "$root/proc"
        mkdir -p "$root/dev/shm" "$root/root/.cache/pip" "$cache"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount --bind "$cache" "$root/root/.cache/pip"
        for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
            [ ! -e "$file" ] || cp -L "$file" "$root$file"
        done
        shift 2
        exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
    ' sh "$@"
}

for python in ${PYTHONS-$(found)}; do
    name=$(version "$python") || { echo "expected a Python, found $python"; exit 1; }
    copy "$place/$name"
    quick "$("$python" --version)" make -s -C "$place/$name" PYTHON="$python"
done

if [ -n "${DEBIANS-trixie sid}" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null || ! unshare --mount true 2>/dev/null; then
        echo "== the Pythons of Debian are left out: they need root and debootstrap. Next: sudo apt-get install debootstrap"
    else
        for suite in ${DEBIANS-trixie sid}; do
            root=$place/$suite
            if [ ! -e "$root/.whole" ]; then
                echo "== Debian $suite, in $root"
                rm -rf "$root"
                mkdir -p "$place"
                packages=python3-venv,python3-dev,gcc,libc6-dev,make,git,ca-certificates
                debootstrap --variant=minbase --include="$packages" "$suite" "$root" >"$place/$suite.log" ||
                    { tail -5 "$place/$suite.log"; echo "== Debian $suite cannot be had"; exit 1; }
                touch "$root/.whole"
            fi
            copy "$root/kts"
            cache=${XDG_CACHE_HOME:-$HOME/.cache}/pip
            quick "Debian $suite, $(chrooted "$root" "$cache" python3 --version)" chrooted "$root" "$cache" make -s -C /kts
        done
    fi
fi

[ -z "$failed" ] || { echo "== failed: ${failed#, }"; exit 1; }
