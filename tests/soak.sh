#!/bin/sh
# `make soak`: rounds of fuzzing and of all random tests at full length, each with other cases, for SECONDS, into
# bench/soak.txt; the first round that fails ends it. Then streams and synchronisations, into bench/streams.txt: the
# program, or Spark's driver, executors and workers, killed 50 times for each sink, and the memory over 3,600
# micro-batches (SECONDS=0 does only these).
set -eu
cd "$(dirname "$0")/.."
until=$(($(date +%s) + $1))
round=$(mktemp)
trap 'rm -f "$round"' EXIT

where() {
    echo "$(git log -1 --format='%h, %cs'), $(uname -sm), $(nproc) cores"
}

rounds() {
    echo "$(where), $1 seconds"
    number=0
    while [ "$(date +%s)" -lt "$until" ]; do
        number=$((number + 1))
        seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
        left=$((until - $(date +%s)))
        make --no-print-directory fuzz SECONDS=$((left < 600 ? left : 600)) JOBS=2 >"$round" 2>&1 || { cat "$round"; return 1; }
        echo "round $number: fuzzing, $(grep executions "$round" | tail -n 1), $(tail -n 1 "$round")"
        # shellcheck disable=SC2086
        KTS_SEED=$seed KTS_LENGTH=full "$BIN/python" -m pytest -q $PYTEST_ARGS -m scaled >"$round" 2>&1 ||
            { cat "$round"; return 1; }
        echo "round $number: KTS_SEED=$seed, $(tail -n 1 "$round")"
    done
    echo "no round failed"
}

streams() {
    where
    # Some of these tests are slower than a round's limit for one test.
    for test in tables/test_kills spark/test_table_kills spark/test_stream_kills spark/test_stream_memory; do
        KTS_LENGTH=full KTS_KILLS="${KTS_KILLS:-50}" KTS_TRIGGERS="${KTS_TRIGGERS:-3600}" "$BIN/python" -m pytest -q -rP -n 0 \
            --timeout 0 "tests/$test.py" >"$round" 2>&1 || { cat "$round"; return 1; }
        grep -E "KTS_SEED| kills|Sample|passed" "$round"
    done
    echo "no stream failed"
}

if [ "$1" -gt 0 ]; then
    rounds "$1" 2>&1 | tee bench/soak.txt
    tail -n 1 bench/soak.txt | grep -q '^no round failed$'
fi
streams 2>&1 | tee bench/streams.txt
tail -n 1 bench/streams.txt | grep -q '^no stream failed$'
