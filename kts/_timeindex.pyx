# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, embedsignature.format=clinic, binding=False, always_allow_keywords=False
"""Search, scan and check index entries in place, in the file's big-endian format.

Layout::

    .timeindex entry, 12 bytes     timestamp i64 | relative offset i32
    .index entry, 8 bytes          relative offset i32 | position i32

Relative offsets count from the segment's base offset. There is no header. A broker that died leaves the file at its
preallocated length, with zeros after the last entry.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

import operator

import numpy as np

cdef extern from "format.h" nogil:
    int32_t kts_i32(const uint8_t *p)
    int64_t kts_i64(const uint8_t *p)
    int64_t kts_plus(int64_t a, int64_t b)
    void kts_prefetch(const uint8_t *p)

cdef extern from *:
    """
    static inline double kts_distance(int64_t a, int64_t b) { return (double)((uint64_t)b - (uint64_t)a); }
    static inline int64_t kts_pick(int yes, int64_t a, int64_t b) { return yes ? a : b; }
    static inline const uint8_t *kts_pick_entry(int yes, const uint8_t *a, const uint8_t *b) { return yes ? a : b; }

    /* (a, b) as a tuple that the garbage collector does not track: two integers cannot form a cycle. */
    static PyObject *kts_pair(int64_t a, int64_t b) {
        PyObject *pair = PyTuple_New(2), *first, *second;
        if (pair == NULL)
            return NULL;
        first = PyLong_FromLongLong(a);
        second = first == NULL ? NULL : PyLong_FromLongLong(b);
        if (second == NULL) {
            Py_XDECREF(first);
            Py_DECREF(pair);
            return NULL;
        }
        PyObject_GC_UnTrack(pair);
        PyTuple_SET_ITEM(pair, 0, first);
        PyTuple_SET_ITEM(pair, 1, second);
        return pair;
    }
    """
    double kts_distance(int64_t a, int64_t b) noexcept nogil
    int64_t kts_pick(bint yes, int64_t a, int64_t b) noexcept nogil
    const uint8_t *kts_pick_entry(bint yes, const uint8_t *a, const uint8_t *b) noexcept nogil
    object kts_pair(int64_t a, int64_t b)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

cdef enum:
    LANES = 16  # searches in flight at once: as many as the cache misses that a core can have open
    FAR = 16384  # entries above which an index no longer fits the nearest cache
    NEAR = 512  # entries within which keys are assumed to increase evenly
    WINDOW = 48  # entries to examine around the place where even spacing would put the target
    BLOCK_BYTES = 4096  # entries of a file that are read at once when a search has no more left
    WARM_BYTES = 8192  # the end of an index, where Kafka's search begins


cdef inline int64_t int64_argument(object value, str name) except? -1:
    cdef int overflow = 0
    cdef long long number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            return number
    return unusual_argument(value, name)


cdef int64_t unusual_argument(object value, str name) except? -1:
    cdef int overflow = 0
    cdef long long number
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, found {type(value).__name__}") from None
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        found = value if value.bit_length() <= 128 else f"an int of {value.bit_length()} bits"
        raise ValueError(f"{name}: {found} is outside the 64-bit range")
    return number


cdef object int64_queries(object values, str name):
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: expected one dimension ({error})") from None
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise TypeError(f"{name}: expected an int64 array, found {type(values).__name__} of {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, found {array.ndim}")
    return np.require(array, np.int64, ["C", "ALIGNED"])


# The two kinds differ only in entry size and key; `stride` is a constant at every call, so the compiler generates two
# copies of each function below.

cdef inline int64_t key_at(const uint8_t *data, int64_t slot, int stride) noexcept nogil:
    if stride == 12:
        return kts_i64(data + slot * 12)
    return kts_i32(data + slot * 8)


cdef inline int64_t value_at(const uint8_t *data, int64_t slot, int stride) noexcept nogil:
    return kts_i32(data + slot * stride + stride - 4)


cdef int64_t without_zero_tail(const uint8_t *data, int64_t slots, int stride) noexcept nogil:
    """Entries before the zeros of a preallocated file; a single zero slot is the entry (0, base)."""
    cdef int64_t n = slots
    while n > 0 and key_at(data, n - 1, stride) == 0 and value_at(data, n - 1, stride) == 0:
        n -= 1
    return 1 if n == 0 and slots == 1 else n


cdef inline const uint8_t *quarters(
    const uint8_t *low, int64_t *left, int64_t enough, int64_t target, int stride
) noexcept nogil:
    """Narrows `left` entries from `low` down to `enough`, which include the last one with a key <= target.

    No branch depends on the data, and the three loads of a step do not wait for each other. This takes half as many
    steps as halving, both in distant memory and in cache.
    """
    cdef const uint8_t *first
    cdef const uint8_t *second
    cdef const uint8_t *third
    cdef int64_t n = left[0], quarter, one, two, three
    while n > enough:
        quarter = n >> 2
        n -= 3 * quarter
        quarter *= stride
        first = low + quarter
        second = first + quarter
        third = second + quarter
        one, two, three = key_at(first, 0, stride), key_at(second, 0, stride), key_at(third, 0, stride)
        low = kts_pick_entry(one <= target, first, low)
        low = kts_pick_entry(two <= target, second, low)
        low = kts_pick_entry(three <= target, third, low)
    left[0] = n
    return low


cdef inline const uint8_t *last_below(const uint8_t *low, int64_t n, int64_t target, int stride) noexcept nogil:
    """The last of n > 0 entries from `low` with a key <= target, or the first if there is none."""
    cdef const uint8_t *first
    cdef const uint8_t *second
    cdef int64_t one, two
    low = quarters(low, &n, 3, target, stride)
    first, second = low + stride, low + 2 * stride
    if n == 3:
        one, two = key_at(first, 0, stride), key_at(second, 0, stride)
        low = kts_pick_entry(one <= target, first, low)
        low = kts_pick_entry(two <= target, second, low)
    elif n == 2:
        one = key_at(first, 0, stride)
        low = kts_pick_entry(one <= target, first, low)
    return low


cdef inline const uint8_t *window_for(const uint8_t *low, int64_t n, int64_t target, int stride) noexcept nogil:
    """The WINDOW entries that hold the target if the keys of n > WINDOW entries increase evenly; prefetches them."""
    cdef const uint8_t *window
    cdef int64_t lowest = key_at(low, 0, stride), highest = key_at(low, n - 1, stride), place = 0
    cdef int ahead
    if lowest <= target < highest:
        place = <int64_t>(kts_distance(lowest, target) / kts_distance(lowest, highest) * (n - 1)) - WINDOW // 2
    window = low + max(<int64_t>0, min(place, n - WINDOW - 1)) * stride
    for ahead in range(0, WINDOW * stride, 64):
        kts_prefetch(window + ahead)
    return window


cdef inline const uint8_t *narrow(
    const uint8_t *low, int64_t *left, const uint8_t *window, int64_t target, int stride
) noexcept nogil:
    """Narrows to the window, or to the entries before or after it."""
    cdef int64_t before = (window - low) // stride
    if key_at(window, 0, stride) > target:
        left[0] = before
        return low
    if key_at(window, WINDOW, stride) > target:
        left[0] = WINDOW
        return window
    left[0] -= before + WINDOW
    return window + WINDOW * stride


cdef inline const uint8_t *search(const uint8_t *data, int64_t n, int64_t target, int stride) noexcept nogil:
    """Last entry with a key <= target, or NULL.

    In a large index loads are slow, and reading a whole window at once saves most of the waits. A window that misses
    still narrows the range, and a second one follows. Whatever the keys are, `last_below` does the rest.
    """
    cdef const uint8_t *low = data
    cdef int turn
    if n == 0 or key_at(data, 0, stride) > target:
        return NULL
    if n > FAR:
        low = quarters(low, &n, NEAR, target, stride)
        for turn in range(2):
            if n > 2 * WINDOW:
                low = narrow(low, &n, window_for(low, n, target, stride), target, stride)
    return last_below(low, n, target, stride)


cdef inline void search_lanes(
    const uint8_t *data, int64_t first, int64_t n, const int64_t *targets, int64_t *slots, int stride
) noexcept nogil:
    """LANES searches in step among the n > 0 slots from `first`: while one waits for memory, the others continue."""
    cdef int64_t low[LANES]
    cdef int64_t half
    cdef int i
    for i in range(LANES):
        low[i] = first
    while n > 1:
        half = n >> 1
        for i in range(LANES):
            low[i] = kts_pick(key_at(data, low[i] + half, stride) <= targets[i], low[i] + half, low[i])
        n -= half
    for i in range(LANES):
        slots[i] = kts_pick(key_at(data, low[i], stride) <= targets[i], low[i], -1)


cdef inline int64_t gallop(const uint8_t *data, int64_t n, int64_t target, int64_t known, int stride) noexcept nogil:
    """As search, for a target not below the previous one, which had the answer `known`."""
    cdef int64_t step = 1, low = known, high
    while True:
        high = low + step
        if high >= n:
            high = n
            break
        if key_at(data, high, stride) > target:
            break
        low = high
        step <<= 1
    # The answer is in [low, high): key[low] <= target (or low is -1), key[high] > target.
    while high - low > 1:
        step = low + ((high - low) >> 1)
        if key_at(data, step, stride) <= target:
            low = step
        else:
            high = step
    return low


cdef inline void put(
    const uint8_t *data, int64_t slot, int64_t base, int64_t *key, int64_t *value, int stride
) noexcept nogil:
    """The answer for a slot, with absolute offsets; below the first entry, Kafka's answer."""
    if slot < 0:
        key[0] = -1 if stride == 12 else base
        value[0] = base if stride == 12 else 0
    elif stride == 12:
        key[0] = key_at(data, slot, 12)
        value[0] = kts_plus(base, value_at(data, slot, 12))
    else:
        key[0] = kts_plus(base, key_at(data, slot, 8))
        value[0] = value_at(data, slot, 8)


cdef inline void search_many(
    const uint8_t *data, int64_t n, int64_t base, const int64_t *targets, int64_t count,
    int64_t *keys, int64_t *values, int stride
) noexcept nogil:
    """Answers for all targets, LANES at a time: a sorted block searches only between the answers of its ends."""
    cdef int64_t slots[LANES]
    cdef int64_t block[LANES]
    cdef int64_t done = 0, todo, known = -1, first, last, target, before = INT64_MAX
    cdef bint rises
    cdef int i
    while done < count:
        todo = min(<int64_t>LANES, count - done)
        rises = True
        for i in range(LANES):  # the last target again where fewer than LANES are left
            target = targets[done + min(<int64_t>i, todo - 1)]
            if stride == 8:
                # Offsets become relative; below the base nothing matches, and the subtraction must not wrap.
                target = target - base if target >= base else INT64_MIN
            rises &= before <= target
            block[i] = before = target
            slots[i] = -1
        if n:
            first, last = 0, n - 1
            if rises:
                first, last = max(known, 0), gallop(data, n, target, known, stride)
            if rises and last == known:  # one answer for all
                put(data, known, base, &keys[done], &values[done], stride)
                for i in range(1, todo):
                    keys[done + i], values[done + i] = keys[done], values[done]
                done += todo
                continue
            search_lanes(data, first, last - first + 1, block, slots, stride)
            known = slots[LANES - 1]
        for i in range(todo):
            put(data, slots[i], base, &keys[done + i], &values[done + i], stride)
        done += todo


@cython.final
cdef class _FileEntries:
    """Entries of an index file, read when a search comes to them."""

    cdef object read
    cdef bytes block
    cdef int64_t base, start, stop  # the slots of the block
    cdef int stride
    cdef bint by_offset

    cdef int load(self, int64_t first, int64_t stop) except -1:
        self.block = self.read(first * self.stride, (stop - first) * self.stride)
        self.start, self.stop = first, first + len(self.block) // self.stride
        return 0

    cdef int put_slot(self, int64_t slot, int64_t *key, int64_t *value) except -1:
        if not self.start <= slot < self.stop:
            self.load(slot, slot + 1)
            if self.stop == slot:
                raise EOFError
        put(<const uint8_t *>self.block, slot - self.start, self.base, key, value, self.stride)
        return 0

    cdef int64_t key(self, int64_t slot) except? -1:
        cdef int64_t key, value
        self.put_slot(slot, &key, &value)
        return value if self.by_offset else key


def search_file(open_file, count, base_offset, target, int stride, bint by_offset, bint warm, /):
    """Slot and both fields of the greatest entry at or below a target; slot -1 below the first entry.

    ``open_file`` gives a file that may be written, whose ``read`` takes position and count; `count` entries count. The
    target is an offset, or a time in a time index unless ``by_offset``. ``warm`` searches begin at the end. Follows
    Kafka's steps exactly: an index that is out of order gives Kafka's result. EOFError: the file ends before an entry.

    Source: AbstractIndex.indexSlotRangeFor.
    """
    cdef int64_t entries = count, wanted = int64_argument(target, "target"), low = 0, high = entries - 1, slot, found
    cdef int64_t key, value
    cdef _FileEntries file = _FileEntries.__new__(_FileEntries)
    put(NULL, -1, base_offset, &key, &value, stride)
    if entries == 0:
        return -1, key, value
    file.read, file.block, file.base, file.stride = open_file().read, b"", base_offset, stride
    file.by_offset = by_offset and stride == 12
    if entries * stride <= BLOCK_BYTES:
        file.load(0, entries)
    slot = max(<int64_t>0, high - WARM_BYTES // stride) if warm else 0
    if warm and file.key(slot) < wanted:
        low = slot
    elif file.key(0) > wanted:
        return -1, key, value
    elif warm:
        high = slot
    while low < high:
        if (high - low) * stride < BLOCK_BYTES and not (file.start <= low and high < file.stop):
            file.load(low, high + 1)
        slot = (low + high + 1) // 2
        found = file.key(slot)
        if found > wanted:
            high = slot - 1
        elif found < wanted:
            low = slot
        else:
            low = high = slot
    file.put_slot(low, &key, &value)
    return low, key, value


cdef class _Index:
    """A held buffer and its whole entries."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *data
    cdef int64_t entries_count, slots, base
    cdef int stride

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __len__(self):
        return self.entries_count

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__} holds a buffer and cannot be pickled; send the bytes")

    @property
    def base_offset(self):
        """Base offset of the segment."""
        return self.base

    cdef int hold(self, object buf, object base_offset, int stride) except -1:
        self.base = int64_argument(base_offset, "base_offset")
        if self.base < 0:
            raise ValueError(f"base_offset: expected 0 or more, found {self.base}")
        try:
            PyObject_GetBuffer(buf, &self.view, PyBUF_SIMPLE)
        except TypeError:
            raise TypeError(f"buf: expected a bytes-like object, found {type(buf).__name__}") from None
        except BufferError as error:
            raise ValueError(f"buf: expected a contiguous buffer ({error})") from None
        self.held, self.stride = True, stride
        self.data = <const uint8_t *>self.view.buf
        self.slots = self.view.len // stride
        self.entries_count = without_zero_tail(self.data, self.slots, stride)
        return 0

    cdef str ends(self, str keys, str values, object show):
        """The first and the last entry, for people."""
        if not self.entries_count:
            return ""
        first, last = self.entry(0), self.entry(self.entries_count - 1)
        return f", {keys}={show(first[0])} to {show(last[0])}, {values}={first[1]} to {last[1]}"

    cdef object entry_at(self, object slot):
        cdef int64_t number = int64_argument(slot, "slot"), key, value
        if not 0 <= number < self.entries_count:
            raise IndexError(f"slot: expected one of {self.entries_count} entries, found {number}")
        put(self.data, number, self.base, &key, &value, self.stride)
        return kts_pair(key, value)

    cdef tuple all_entries(self):
        cdef int64_t[::1] keys = np.empty(self.entries_count, np.int64)
        cdef int64_t[::1] values = np.empty(self.entries_count, np.int64)
        cdef int64_t i
        with nogil:
            for i in range(self.entries_count):
                put(self.data, i, self.base, &keys[i], &values[i], self.stride)
        return keys.base, values.base

    cdef tuple answers(self, const int64_t[::1] targets):
        cdef int64_t count = targets.shape[0]
        both = np.empty((2, count), np.int64)  # one allocation, more likely to be reused
        cdef int64_t[:, ::1] found = both
        cdef const uint8_t* data = self.data
        if count:
            with nogil:
                if self.stride == 12:  # a stride known at compile time is faster
                    search_many(data, self.entries_count, self.base, &targets[0], count, &found[0, 0], &found[1, 0], 12)
                else:
                    search_many(data, self.entries_count, self.base, &targets[0], count, &found[0, 0], &found[1, 0], 8)
        return both[0], both[1]

    cdef list size_findings(self):
        cdef list found = []
        cdef int64_t stride = self.stride, zeros = self.slots - self.entries_count
        if self.view.len % stride:
            found.append(
                f"size {self.view.len} is not a multiple of {stride}: {self.view.len % stride} bytes after the last entry"
            )
        if zeros:
            found.append(
                f"preallocated: {zeros} zero entries after the {self.entries_count} in use"
                " (the broker did not close this file)"
            )
        return found


@cython.final
cdef class TimeIndex(_Index):
    """Time index entries of one segment, read in place from the bytes of a ``.timeindex`` file.

    Parameters
    ----------
    buf : bytes-like
        The file's bytes; kept, not copied. Bytes after the last whole entry and the zero tail of a preallocated file
        are not entries.
    base_offset : int
        The segment's base offset, 0 or more.

    Notes
    -----
    An entry (t, o) says: no record up to that place has a timestamp above t, and t was first reached at offset o.
    A lookup costs O(log n). If entries are out of order (see ``check``), answers are meaningless but safe.

    Source: org.apache.kafka.storage.internals.log.TimeIndex, KIP-33.
    """

    def __cinit__(self, buf, base_offset):
        self.hold(buf, base_offset, 12)

    def __repr__(self):
        from kts.times import show_time

        return f"TimeIndex({self.entries_count} entries, base_offset={self.base}{self.ends('times', 'offsets', show_time)})"

    def lookup(self, timestamp_ms, /):
        """Entry with the greatest timestamp <= timestamp_ms, as (timestamp_ms, offset); (-1, base_offset) below all."""
        cdef int64_t target = int64_argument(timestamp_ms, "timestamp_ms")
        cdef const uint8_t *entry = search(self.data, self.entries_count, target, 12)
        if entry == NULL:
            return (-1, self.base)
        return kts_pair(key_at(entry, 0, 12), kts_plus(self.base, value_at(entry, 0, 12)))

    def slot(self, timestamp_ms, /):
        """Number of the entry that ``lookup`` finds; -1 below all."""
        cdef int64_t target = int64_argument(timestamp_ms, "timestamp_ms")
        cdef const uint8_t *entry = search(self.data, self.entries_count, target, 12)
        return -1 if entry == NULL else (entry - self.data) // 12

    def entry(self, slot, /):
        """The entry of a number, as (timestamp_ms, offset)."""
        return self.entry_at(slot)

    def lookup_many(self, timestamps_ms, /):
        """As ``lookup`` for an int64 array, in two int64 arrays: timestamps and offsets. Sorted queries are faster."""
        return self.answers(int64_queries(timestamps_ms, "timestamps_ms"))

    def entries(self):
        """All entries as two int64 arrays: timestamps in ms, absolute offsets."""
        return self.all_entries()

    def check(self):
        """Faults of the file by itself, one sentence each; empty if it is sound.

        Timestamps must increase, offsets must not decrease or be below the base, the size must be whole used entries.
        """
        cdef list found = self.size_findings()
        cdef object base = self.base  # a Python int: base + offset may be more than 64 bits hold
        cdef int64_t i, now, then = 0, offset, last = 0
        for i in range(self.entries_count):
            now = key_at(self.data, i, 12)
            offset = value_at(self.data, i, 12)
            if now < 0:
                found.append(f"entry {i}: timestamp {now} is negative, and such are never indexed")
            if offset < 0:
                found.append(f"entry {i}: offset {base + offset} is below the base offset {base}")
            if i:
                if now <= then:
                    found.append(f"entry {i}: timestamp {now} is not above the previous entry's {then}")
                if offset < last:
                    found.append(
                        f"entry {i}: offset {base + offset} is below the previous entry's {base + last}"
                    )
            then, last = now, offset
            if len(found) >= 100:
                found.append(f"stopped at entry {i} of {self.entries_count} after 100 findings")
                break
        return found


@cython.final
cdef class OffsetIndex(_Index):
    """Offset index entries of one segment, read in place from the bytes of an ``.index`` file.

    Parameters
    ----------
    buf : bytes-like
        The file's bytes; kept, not copied. Bytes after the last whole entry and the zero tail of a preallocated file
        are not entries.
    base_offset : int
        The segment's base offset, 0 or more.

    Notes
    -----
    An entry (o, p) says: the shallow entry that starts at position p holds offset o (its first up to 1.1, its last
    from 2.0 on).

    Source: org.apache.kafka.storage.internals.log.OffsetIndex.
    """

    def __cinit__(self, buf, base_offset):
        self.hold(buf, base_offset, 8)

    def __repr__(self):
        return f"OffsetIndex({self.entries_count} entries, base_offset={self.base}{self.ends('offsets', 'positions', str)})"

    def lookup(self, offset, /):
        """Entry with the greatest offset <= offset, as (offset, position); (base_offset, 0) below all."""
        cdef int64_t target = int64_argument(offset, "offset")
        cdef const uint8_t *entry
        if target < self.base:
            return (self.base, 0)
        entry = search(self.data, self.entries_count, target - self.base, 8)
        if entry == NULL:
            return (self.base, 0)
        return kts_pair(kts_plus(self.base, key_at(entry, 0, 8)), value_at(entry, 0, 8))

    def slot(self, offset, /):
        """Number of the entry that ``lookup`` finds; -1 below all."""
        cdef int64_t target = int64_argument(offset, "offset")
        cdef const uint8_t *entry = NULL
        if target >= self.base:
            entry = search(self.data, self.entries_count, target - self.base, 8)
        return -1 if entry == NULL else (entry - self.data) // 8

    def entry(self, slot, /):
        """The entry of a number, as (offset, position)."""
        return self.entry_at(slot)

    def lookup_many(self, offsets, /):
        """As ``lookup`` for an int64 array, in two int64 arrays: offsets and positions. Sorted queries are faster."""
        return self.answers(int64_queries(offsets, "offsets"))

    def entries(self):
        """All entries as two int64 arrays: absolute offsets, positions."""
        return self.all_entries()

    def check(self):
        """Faults of the file by itself, one sentence each; empty if it is sound.

        Offsets must increase and not be below the base, positions must increase, the size must be whole used entries.
        """
        cdef list found = self.size_findings()
        cdef object base = self.base
        cdef int64_t i, offset, position, last = 0, before = 0
        for i in range(self.entries_count):
            offset = key_at(self.data, i, 8)
            position = value_at(self.data, i, 8)
            if offset < 0:
                found.append(f"entry {i}: offset {base + offset} is below the base offset {base}")
            if position < 0:
                found.append(f"entry {i}: position {position} is negative")
            if i:
                if offset <= last:
                    found.append(
                        f"entry {i}: offset {base + offset} is not above the previous entry's {base + last}"
                    )
                if position <= before:
                    found.append(f"entry {i}: position {position} is not above the previous entry's {before}")
            last, before = offset, position
            if len(found) >= 100:
                found.append(f"stopped at entry {i} of {self.entries_count} after 100 findings")
                break
        return found
