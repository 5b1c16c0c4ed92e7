"""Sets that are appended in another format or codec than they came in."""

from __future__ import annotations

from support.sets import generate
from support.sets.appending import (
    LAT,
    NOW,
    START,
    append,
    batch,
    column,
    plain,
    refusal,
    times,
    topic,
    wrapper,
)
from support.sets.generate import Rec, message

import kts


def test_messages_grow_and_shrink_by_eight_bytes() -> None:
    up = append(plain(NOW, magic=0), topic(1))
    assert (len(up.records), times(up), up.max_timestamp_ms) == (36, [-1], -1)
    down = append(plain(NOW), topic(0))
    assert (len(down.records), times(down)) == (28, [-1])
    assert up.size_maybe_changed
    assert down.size_maybe_changed


def test_gaps_inside_a_wrapper_are_closed() -> None:
    inner = b"".join(message(offset, 1, 0, NOW, b"k", b"v") for offset in (0, 2, 3))
    done = append(wrapper(inner, offset=3), topic())
    assert column(done, "offset") == [START, START + 1, START + 2]
    assert done.size_maybe_changed


def test_a_message_that_grows_beyond_the_limit_is_refused_with_10() -> None:
    data = plain(NOW, magic=0)
    append(data, topic(0, max_message_bytes=28))
    error = refusal(data, topic(1, max_message_bytes=28))
    assert isinstance(error, kts.RecordTooLargeError)
    assert error.code == 10
    append(data, topic(1, max_message_bytes=36))


def test_headers_do_not_fit_older_formats() -> None:
    data = batch(generate.record(0, 0, Rec(0, NOW, b"k", b"v", [(b"h", b"x")])))
    append(data, topic(2))
    assert refusal(data, topic(1, generation="3.9")).code == -1


def test_messages_that_are_decompressed_under_log_append_time_get_it() -> None:
    data = wrapper(plain(NOW - 5, NOW - 6), offset=1)
    config = topic(1, compression_type="uncompressed", **LAT)
    fixed = append(data, config)
    assert (times(fixed), column(fixed, "timestampType")) == ([NOW, NOW], [1, 1])
    shipped = append(data, config, shipped=True)
    assert (times(shipped), column(shipped, "timestampType")) == ([NOW - 5, NOW - 6], [0, 0])


def test_inner_messages_keep_their_times_under_log_append_time_which_3_9_rewrites() -> None:
    config = topic(1, generation="3.9", compression_type="lz4", **LAT)
    data = wrapper(plain(NOW - 5), offset=0)
    for shipped, own in ((False, NOW - 5), (True, NOW)):
        done = append(data, config, shipped=shipped)
        assert times(done) == [NOW]
        inner = kts.decode(done.records, ["createTimestamp"]).column(0).cast("int64").to_pylist()
        assert inner == [own]


def test_several_wrappers_become_one_where_0_10_2_forgets_the_second() -> None:
    data = wrapper(message(0, 1, 0, NOW, b"k", b"v")) * 2
    config = topic()
    assert refusal(data, topic(1, generation="3.9")).code == 87
    done = append(data, config)
    assert column(done, "offset") == [START, START + 1]
    assert done.entries == 1
