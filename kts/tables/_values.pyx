"""JSON values become the buffers of columns by a plan of their schema."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

# What a node of a plan becomes.
cdef enum Kind:
    STRING, INTEGER, NUMBER, BOOLEAN, TIMESTAMP, DATE, LIST, STRUCT, MAP, TEXT

# The kinds of JSON that a node of TEXT takes.
cdef enum Taken:
    TAKES_STRING = 1, TAKES_INTEGER = 2, TAKES_NUMBER = 4, TAKES_BOOLEAN = 8, TAKES_OBJECT = 16, TAKES_ARRAY = 32

# Why a value is refused.
cdef enum Why:
    SOUND, MALFORMED, OTHER_TYPE, OUT_OF_RANGE, NO_TIME, SURROGATE, TOO_DEEP, TWICE, MISSING, TOO_MANY, NO_MEMORY

KINDS = {
    "string": STRING, "integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN, "date-time": TIMESTAMP, "date": DATE,
    "array": LIST, "object": STRUCT, "map": MAP, "text": TEXT,
}  # fmt: skip
TAKES = {
    "string": TAKES_STRING, "integer": TAKES_INTEGER, "number": TAKES_NUMBER, "boolean": TAKES_BOOLEAN,
    "object": TAKES_OBJECT, "array": TAKES_ARRAY,
}  # fmt: skip
WHY = (
    "", "malformed", "type", "range", "time", "surrogate", "depth", "twice", "missing", "many", "memory"
)  # fmt: skip

cdef enum:
    DEEPEST = 500  # arrays and objects within one another
    MOST_CELLS = 1 << 24  # of one value: null items of an array of wide objects take bytes by the hundred each

cdef bytes ALMOST_INFINITE = b"17976931348623158079"  # digits of the first number that a double no longer holds, e+308
cdef const uint8_t *LIMIT = <const uint8_t *> <char *> ALMOST_INFINITE


cdef struct Bytes:
    uint8_t *at
    int64_t size
    int64_t room


cdef struct Node:
    int kind
    int taken
    int count  # of children
    int *children
    const uint8_t **names
    int64_t *sizes  # of the names
    uint8_t *required
    int32_t *table  # of one more than the number of a child, by the hash of its name
    uint32_t mask
    int64_t length
    Bytes valid
    Bytes data
    Bytes offsets


cdef struct Span:
    const uint8_t *at
    int64_t size


cdef struct Reading:
    Node *nodes
    const uint8_t *first
    const uint8_t *at
    const uint8_t *end
    Bytes scratch
    Bytes spans
    int64_t cells
    int depth
    int why
    int node


cdef inline int fail(Reading *r, int why, int node) noexcept nogil:
    r.why, r.node = why, node
    return -1


cdef inline int reserve(Reading *r, Bytes *b, int64_t more) noexcept nogil:
    cdef int64_t room
    cdef void *found
    if b.room - b.size < more:
        room = (b.size + more) * 2 if b.size + more > 64 else 128
        found = realloc(b.at, <size_t> room)
        if found == NULL:
            return fail(r, NO_MEMORY, 0)
        b.at, b.room = <uint8_t *> found, room
    return 0


cdef inline int put(Reading *r, Bytes *b, const void *data, int64_t size) noexcept nogil:
    if reserve(r, b, size) < 0:
        return -1
    if size:
        memcpy(b.at + b.size, data, <size_t> size)
    b.size += size
    return 0


cdef inline int put_offset(Reading *r, Node *node, int64_t offset) noexcept nogil:
    cdef int32_t narrow = <int32_t> offset
    if offset > 0x7FFFFFFF:
        return fail(r, TOO_MANY, 0)
    return put(r, &node.offsets, &narrow, 4)


cdef inline int64_t offset_at(Node *node, int64_t row) noexcept nogil:
    return (<int32_t *> node.offsets.at)[row]


cdef inline int count_cell(Reading *r, Node *node, uint8_t valid) noexcept nogil:
    r.cells += 1
    if r.cells > MOST_CELLS:
        return fail(r, TOO_MANY, 0)
    node.length += 1
    return put(r, &node.valid, &valid, 1)


cdef int put_null(Reading *r, int number) noexcept nogil:
    cdef Node *node = &r.nodes[number]
    cdef int64_t zero = 0
    cdef int child
    if count_cell(r, node, 0) < 0:
        return -1
    if node.kind in (STRING, NUMBER, TEXT, LIST, MAP):
        return put_offset(r, node, offset_at(node, node.length - 1))
    if node.kind == STRUCT:
        for child in range(node.count):
            if put_null(r, node.children[child]) < 0:
                return -1
        return 0
    return put(r, &node.data, &zero, 1 if node.kind == BOOLEAN else 4 if node.kind == DATE else 8)


cdef void cut(Node *nodes, int number, int64_t length) noexcept nogil:
    """Forget all that lies behind so many entries."""
    cdef Node *node = &nodes[number]
    cdef int child
    node.length = node.valid.size = length
    if node.kind in (STRING, NUMBER, TEXT, LIST, MAP):
        node.offsets.size = 4 * (length + 1)
    if node.kind in (STRING, NUMBER, TEXT):
        node.data.size = offset_at(node, length)
    elif node.kind in (LIST, MAP):
        for child in range(node.count):
            cut(nodes, node.children[child], offset_at(node, length))
    elif node.kind == STRUCT:
        for child in range(node.count):
            cut(nodes, node.children[child], length)
    else:
        node.data.size = length * (1 if node.kind == BOOLEAN else 4 if node.kind == DATE else 8)


# --- the grammar of RFC 8259 -------------------------------------------------------------------


cdef inline void skip_space(Reading *r) noexcept nogil:
    while r.at < r.end and (r.at[0] == 32 or r.at[0] == 10 or r.at[0] == 13 or r.at[0] == 9):
        r.at += 1


cdef inline int peek(Reading *r) noexcept nogil:
    return r.at[0] if r.at < r.end else -1


cdef inline bint is_digit(int c) noexcept nogil:
    return 48 <= c <= 57


cdef inline int expect(Reading *r, int c) noexcept nogil:
    if peek(r) != c:
        return fail(r, MALFORMED, 0)
    r.at += 1
    return 0


cdef int word(Reading *r, const char *letters, int size) noexcept nogil:
    if r.end - r.at < size or memcmp(r.at, letters, <size_t> size) != 0:
        return fail(r, MALFORMED, 0)
    r.at += size
    return 0


cdef int hex4(Reading *r) noexcept nogil:
    """The number of four hexadecimal digits."""
    cdef int found = 0, c, _
    if r.end - r.at < 4:
        r.at = r.end
        return fail(r, MALFORMED, 0)
    for _ in range(4):
        c = r.at[0]
        if is_digit(c):
            c -= 48
        elif 97 <= (c | 32) <= 102:
            c = (c | 32) - 87
        else:
            return fail(r, MALFORMED, 0)
        found = found * 16 + c
        r.at += 1
    return found


cdef int put_character(Reading *r, uint32_t c) noexcept nogil:
    cdef uint8_t out[4]
    cdef int size
    if c < 0x80:
        out[0], size = c, 1
    elif c < 0x800:
        out[0], out[1], size = 0xC0 | c >> 6, 0x80 | c & 63, 2
    elif c < 0x10000:
        out[0], out[1], out[2], size = 0xE0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63, 3
    else:
        out[0], out[1], out[2], out[3] = 0xF0 | c >> 18, 0x80 | c >> 12 & 63, 0x80 | c >> 6 & 63, 0x80 | c & 63
        size = 4
    return put(r, &r.scratch, out, size)


cdef int escape(Reading *r, bint kept) noexcept nogil:
    """One escape, behind its backslash; ``kept`` puts what it stands for into ``scratch``."""
    cdef int c = peek(r), low
    r.at += c >= 0
    if c == 117:  # u
        c = hex4(r)
        if c < 0:
            return -1
        if not kept:
            return 0
        if 0xD800 <= c < 0xDC00 and r.end - r.at >= 6 and r.at[0] == 92 and r.at[1] == 117:
            r.at += 2
            low = hex4(r)
            if low < 0:
                return -1
            if not 0xDC00 <= low < 0xE000:
                return fail(r, SURROGATE, 0)
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)
        elif 0xD800 <= c < 0xE000:
            return fail(r, SURROGATE, 0)
        return put_character(r, <uint32_t> c)
    if c == 110:
        c = 10
    elif c == 116:
        c = 9
    elif c == 114:
        c = 13
    elif c == 98:
        c = 8
    elif c == 102:
        c = 12
    elif c != 34 and c != 92 and c != 47:
        r.at -= c >= 0
        return fail(r, MALFORMED, 0)
    return put_character(r, <uint32_t> c) if kept else 0


cdef int string(Reading *r, Span *found) noexcept nogil:
    """A string's characters: where they stand, or in ``scratch`` if some are escaped. NULL skips it."""
    cdef const uint8_t *begin
    cdef bint escaped = False
    if expect(r, 34) < 0:
        return -1
    begin = r.at
    r.scratch.size = 0
    while True:
        while r.at < r.end and r.at[0] != 34 and r.at[0] != 92 and r.at[0] >= 32:
            r.at += 1
        if r.at == r.end or r.at[0] < 32:
            return fail(r, MALFORMED, 0)
        if found != NULL and (escaped or r.at[0] == 92) and put(r, &r.scratch, begin, r.at - begin) < 0:
            return -1
        r.at += 1
        if (r.at - 1)[0] == 34:
            break
        escaped = True
        if escape(r, found != NULL) < 0:
            return -1
        begin = r.at
    if found != NULL:
        found.at, found.size = begin, r.at - 1 - begin
        if escaped:
            found.at, found.size = r.scratch.at, r.scratch.size
    return 0


cdef int number(Reading *r) noexcept nogil:
    if peek(r) == 45:
        r.at += 1
    if peek(r) == 48:
        r.at += 1
    elif is_digit(peek(r)):
        while is_digit(peek(r)):
            r.at += 1
    else:
        return fail(r, MALFORMED, 0)
    if peek(r) == 46:
        r.at += 1
        if not is_digit(peek(r)):
            return fail(r, MALFORMED, 0)
        while is_digit(peek(r)):
            r.at += 1
    if peek(r) == 101 or peek(r) == 69:
        r.at += 1
        if peek(r) == 43 or peek(r) == 45:
            r.at += 1
        if not is_digit(peek(r)):
            return fail(r, MALFORMED, 0)
        while is_digit(peek(r)):
            r.at += 1
    return 0


cdef int skip(Reading *r) noexcept nogil:
    """Any one value."""
    cdef int c = peek(r), close
    if c == 34:
        return string(r, NULL)
    if c == 45 or is_digit(c):
        return number(r)
    if c == 116:
        return word(r, "true", 4)
    if c == 102:
        return word(r, "false", 5)
    if c == 110:
        return word(r, "null", 4)
    if c != 123 and c != 91:
        return fail(r, MALFORMED, 0)
    if enter(r) < 0:
        return -1
    close = c + 2
    r.at += 1
    skip_space(r)
    if peek(r) == close:
        r.at += 1
        r.depth -= 1
        return 0
    while True:
        if c == 123 and (string(r, NULL) < 0 or colon(r) < 0):
            return -1
        if skip(r) < 0:
            return -1
        skip_space(r)
        if peek(r) == close:
            r.at += 1
            r.depth -= 1
            return 0
        if expect(r, 44) < 0:
            return -1
        skip_space(r)


cdef inline int enter(Reading *r) noexcept nogil:
    r.depth += 1
    return fail(r, TOO_DEEP, 0) if r.depth > DEEPEST else 0


cdef inline int colon(Reading *r) noexcept nogil:
    skip_space(r)
    if expect(r, 58) < 0:
        return -1
    skip_space(r)
    return 0


# --- numbers -----------------------------------------------------------------------------------


cdef struct Decimal:
    bint negative
    int64_t digits  # without leading zeros and, for ``trailing``, without those at the end
    int64_t exponent  # of ten, of the last of these digits


cdef void decimal(Span text, Decimal *found, uint8_t *first, int most) noexcept nogil:
    """The digits of a number; ``first`` gets up to ``most`` of them."""
    cdef int64_t at = 0, exponent = 0, zeros = 0
    cdef bint fraction = False, minus
    found.negative = text.at[0] == 45
    found.digits = found.exponent = 0
    at = found.negative
    while at < text.size and text.at[at] != 101 and text.at[at] != 69:
        if text.at[at] == 46:
            fraction = True
        else:
            found.exponent -= fraction
            if text.at[at] == 48:
                zeros += found.digits > 0  # written when another digit comes
            else:
                while zeros:
                    if found.digits < most:
                        first[found.digits] = 48
                    found.digits += 1
                    zeros -= 1
                if found.digits < most:
                    first[found.digits] = text.at[at]
                found.digits += 1
        at += 1
    found.exponent += zeros
    if at < text.size:
        at += 1
        minus = text.at[at] == 45
        at += minus or text.at[at] == 43
        while at < text.size:
            if exponent < 1_000_000_000:
                exponent = exponent * 10 + (text.at[at] - 48)
            at += 1
        found.exponent += -exponent if minus else exponent


cdef int integer_of(Span text, int64_t *value) noexcept nogil:
    """SOUND, OTHER_TYPE for a fraction, or OUT_OF_RANGE."""
    cdef uint8_t digits[20]
    cdef Decimal found
    cdef uint64_t made = 0
    cdef int64_t at
    decimal(text, &found, digits, 20)
    value[0] = 0
    if found.digits == 0:
        return SOUND
    if found.exponent < 0:
        return OTHER_TYPE
    if found.digits + found.exponent > 19:
        return OUT_OF_RANGE
    for at in range(found.digits + found.exponent):
        made = made * 10 + (digits[at] - 48 if at < found.digits else 0)
    if made > <uint64_t> 0x7FFFFFFFFFFFFFFF + found.negative:
        return OUT_OF_RANGE
    value[0] = <int64_t> (0 - made) if found.negative else <int64_t> made
    return SOUND


cdef bint is_infinite(Span text) noexcept nogil:
    cdef uint8_t digits[20]
    cdef Decimal found
    memset(digits, 48, 20)
    decimal(text, &found, digits, 20)
    cdef int64_t power = found.digits + found.exponent
    return found.digits > 0 and (power > 309 or (power == 309 and memcmp(digits, LIMIT, 20) >= 0))


# --- times -------------------------------------------------------------------------------------


cdef inline int64_t two(Span *text, int64_t most) noexcept nogil:
    """A number of two digits, or -1."""
    cdef int64_t found = -1
    if text.size >= 2 and is_digit(text.at[0]) and is_digit(text.at[1]):
        found = (text.at[0] - 48) * 10 + (text.at[1] - 48)
        text.at += 2
        text.size -= 2
    return found if found <= most else -1


cdef inline bint take(Span *text, int c) noexcept nogil:
    if text.size and text.at[0] == c:
        text.at += 1
        text.size -= 1
        return True
    return False


cdef int days_of(Span *text, int64_t *days) noexcept nogil:
    """Days since 1970 of YYYY-MM-DD; a year with a sign has four to six digits (ISO 8601, Java)."""
    cdef int64_t year = 0, month, day, count = 0, most, era, of_era
    cdef bint minus = take(text, 45), plus = not minus and take(text, 43)
    while text.size and is_digit(text.at[0]) and count < (6 if minus or plus else 4):
        year = year * 10 + (text.at[0] - 48)
        text.at += 1
        text.size -= 1
        count += 1
    if count < 4 or not take(text, 45):
        return -1
    year = -year if minus else year
    month = two(text, 12)
    if month < 1 or not take(text, 45):
        return -1
    day = two(text, 31)
    most = 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)) if month == 2 else 31
    if month in (4, 6, 9, 11):
        most = 30
    if day < 1 or day > most:
        return -1
    # Years begin in March here, and eras of 400 of them repeat.
    year -= month <= 2
    era = (year if year >= 0 else year - 399) // 400
    of_era = year - era * 400
    days[0] = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100
    days[0] += (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1 - 719468
    return 0


cdef int time_of(Span text, int64_t *micros) noexcept nogil:
    """Microseconds since 1970 of RFC 3339, whose fraction may have any number of digits: cut to microseconds.

    Also what ISO 8601 leaves out: seconds, minutes, the time, the zone (UTC then).
    """
    cdef int64_t days, hour = 0, minute = 0, second = 0, fraction = 0, digits = 0, offset = 0, more = 0
    cdef bint minus = False, zoned = False
    if days_of(&text, &days) < 0:
        return -1
    if text.size and (take(&text, 84) or take(&text, 116) or take(&text, 32)):
        hour = two(&text, 23)
        if hour < 0:
            return -1
        if take(&text, 58):
            minute = two(&text, 59)
            if minute < 0:
                return -1
            if take(&text, 58):
                second = two(&text, 60)
                if second < 0:
                    return -1
                if take(&text, 46):
                    if not (text.size and is_digit(text.at[0])):
                        return -1
                    while text.size and is_digit(text.at[0]):
                        if digits < 6:
                            fraction = fraction * 10 + (text.at[0] - 48)
                            digits += 1
                        text.at += 1
                        text.size -= 1
                    while digits < 6:
                        fraction *= 10
                        digits += 1
        if not (take(&text, 90) or take(&text, 122)) and text.size:
            minus = take(&text, 45)
            if not minus and not take(&text, 43):
                return -1
            offset = two(&text, 23) * 60
            if offset < 0:
                return -1
            zoned = take(&text, 58)
            if text.size or zoned:
                more = two(&text, 59)
                if more < 0:
                    return -1
            offset = -(offset + more) if minus else offset + more
    if text.size:
        return -1
    minute = hour * 60 + minute - offset
    if second == 60 and minute % 1440 != 1439 and minute % 1440 != -1:  # a leap second ends a day of UTC
        return -1
    if not -106_000_000 < days < 106_000_000:
        return -1
    micros[0] = ((days * 1440 + minute) * 60 + second) * 1_000_000 + fraction
    return 0


# --- values by a plan --------------------------------------------------------------------------


cdef inline uint32_t hash_of(const uint8_t *at, int64_t size) noexcept nogil:
    cdef uint32_t found = 2166136261
    cdef int64_t i
    for i in range(size):
        found = (found ^ at[i]) * 16777619
    return found ^ found >> 15


cdef inline int child_of(Node *node, Span name, int hint) noexcept nogil:
    """The number of the child of a name, or -1. Objects mostly have their fields in one order."""
    cdef uint32_t slot
    cdef int child
    if hint < node.count and node.sizes[hint] == name.size and memcmp(node.names[hint], name.at, <size_t> name.size) == 0:
        return hint
    slot = hash_of(name.at, name.size) & node.mask
    while node.table[slot]:
        child = node.table[slot] - 1
        if node.sizes[child] == name.size and memcmp(node.names[child], name.at, <size_t> name.size) == 0:
            return child
        slot = (slot + 1) & node.mask
    return -1


cdef int compare(const void *a, const void *b) noexcept nogil:
    cdef const Span *one = <const Span *> a
    cdef const Span *other = <const Span *> b
    cdef int found
    if one.size != other.size:
        return -1 if one.size < other.size else 1
    found = memcmp(one.at, other.at, <size_t> one.size)
    return found


cdef int check_keys(Reading *r, int number, int64_t first) noexcept nogil:
    """Refuse keys of a map that come twice: sorted, because an attacker chooses them."""
    cdef Node *keys = &r.nodes[r.nodes[number].children[0]]
    cdef int64_t count = keys.length - first, i
    cdef Span *spans
    if count < 2:
        return 0
    r.spans.size = 0
    if reserve(r, &r.spans, count * <int64_t> sizeof(Span)) < 0:
        return -1
    spans = <Span *> r.spans.at
    for i in range(count):
        spans[i].at = keys.data.at + offset_at(keys, first + i)
        spans[i].size = offset_at(keys, first + i + 1) - offset_at(keys, first + i)
    qsort(spans, <size_t> count, sizeof(Span), compare)
    for i in range(1, count):
        if compare(&spans[i - 1], &spans[i]) == 0:
            return fail(r, TWICE, number)
    return 0


cdef int struct_of(Reading *r, int number) noexcept nogil:
    cdef Node *node = &r.nodes[number]
    cdef int64_t row = node.length
    cdef Span name
    cdef const uint8_t *begin
    cdef int child = -1, i
    r.at += 1
    skip_space(r)
    if peek(r) == 125:
        r.at += 1
    else:
        while True:
            begin = r.at
            if string(r, &name) == 0:
                i = child_of(node, name, child + 1)
            elif r.why == SURROGATE:  # no field has such a name
                r.at, r.why, i = begin, SOUND, -1
                if string(r, NULL) < 0:
                    return -1
            else:
                return -1
            if colon(r) < 0:
                return -1
            if i < 0:
                if skip(r) < 0:
                    return -1
            else:
                child = i
                if r.nodes[node.children[i]].length > row:
                    return fail(r, TWICE, node.children[i])
                if value(r, node.children[i]) < 0:
                    return -1
            skip_space(r)
            if peek(r) == 125:
                r.at += 1
                break
            if expect(r, 44) < 0:
                return -1
            skip_space(r)
    for i in range(node.count):
        child = node.children[i]
        if r.nodes[child].length == row and put_null(r, child) < 0:
            return -1
        if node.required[i] and not r.nodes[child].valid.at[row]:
            return fail(r, MISSING, child)
    return count_cell(r, node, 1)


cdef int list_of(Reading *r, int number) noexcept nogil:
    """The items of an array, or the keys and values of a map."""
    cdef Node *node = &r.nodes[number]
    cdef Node *items = &r.nodes[node.children[0]]
    cdef int64_t first = items.length
    cdef int close = 125 if node.kind == MAP else 93
    cdef Span name
    r.at += 1
    skip_space(r)
    if peek(r) == close:
        r.at += 1
    else:
        while True:
            if node.kind == MAP:
                if string(r, &name) < 0 or put(r, &items.data, name.at, name.size) < 0:
                    return -1
                if count_cell(r, items, 1) < 0 or put_offset(r, items, items.data.size) < 0 or colon(r) < 0:
                    return -1
            if value(r, node.children[node.count - 1]) < 0:
                return -1
            skip_space(r)
            if peek(r) == close:
                r.at += 1
                break
            if expect(r, 44) < 0:
                return -1
            skip_space(r)
    if node.kind == MAP and check_keys(r, number, first) < 0:
        return -1
    return -1 if count_cell(r, node, 1) < 0 else put_offset(r, node, items.length)


cdef int value(Reading *r, int number_of_node) noexcept nogil:
    """One value, which becomes one entry of a node."""
    cdef Node *node = &r.nodes[number_of_node]
    cdef int c = peek(r), found
    cdef Span text
    cdef int64_t wide
    cdef int32_t narrow
    cdef uint8_t flag
    if c == 110:
        return -1 if word(r, "null", 4) < 0 else put_null(r, number_of_node)
    if c == 34:
        if node.kind == TEXT and not node.taken & TAKES_STRING:
            return fail(r, OTHER_TYPE, number_of_node)
        if node.kind not in (STRING, TEXT, TIMESTAMP, DATE):
            return fail(r, OTHER_TYPE, number_of_node)
        if string(r, &text) < 0:
            return -1
        if node.kind == TIMESTAMP:
            if time_of(text, &wide) < 0:
                return fail(r, NO_TIME, number_of_node)
            return -1 if count_cell(r, node, 1) < 0 else put(r, &node.data, &wide, 8)
        if node.kind == DATE:
            if days_of(&text, &wide) < 0 or text.size:
                return fail(r, NO_TIME, number_of_node)
            narrow = <int32_t> wide
            return -1 if count_cell(r, node, 1) < 0 else put(r, &node.data, &narrow, 4)
    elif c == 123 or c == 91:
        if node.kind == STRUCT or node.kind == MAP or node.kind == LIST:
            if (c == 91) != (node.kind == LIST):
                return fail(r, OTHER_TYPE, number_of_node)
            if enter(r) < 0:
                return -1
            found = struct_of(r, number_of_node) if node.kind == STRUCT else list_of(r, number_of_node)
            r.depth -= 1
            return found
        if node.kind != TEXT or not node.taken & (TAKES_OBJECT if c == 123 else TAKES_ARRAY):
            return fail(r, OTHER_TYPE, number_of_node)
        text.at = r.at
        if skip(r) < 0:
            return -1
        text.size = r.at - text.at
    elif c == 116 or c == 102:
        if node.kind != BOOLEAN and (node.kind != TEXT or not node.taken & TAKES_BOOLEAN):
            return fail(r, OTHER_TYPE, number_of_node)
        text.at = r.at
        if skip(r) < 0:
            return -1
        text.size = r.at - text.at
        if node.kind == BOOLEAN:
            flag = c == 116
            return -1 if count_cell(r, node, 1) < 0 else put(r, &node.data, &flag, 1)
    elif c == 45 or is_digit(c):
        text.at = r.at
        if number(r) < 0:
            return -1
        text.size = r.at - text.at
        if node.kind == INTEGER:
            found = integer_of(text, &wide)
            if found != SOUND:
                return fail(r, found, number_of_node)
            return -1 if count_cell(r, node, 1) < 0 else put(r, &node.data, &wide, 8)
        if node.kind == NUMBER:
            if is_infinite(text):
                return fail(r, OUT_OF_RANGE, number_of_node)
        elif node.kind == TEXT and node.taken & (TAKES_NUMBER | TAKES_INTEGER):
            if not node.taken & TAKES_NUMBER and integer_of(text, &wide) == OTHER_TYPE:
                return fail(r, OTHER_TYPE, number_of_node)
        else:
            return fail(r, OTHER_TYPE, number_of_node)
    else:
        return fail(r, MALFORMED, number_of_node)
    if put(r, &node.data, text.at, text.size) < 0 or count_cell(r, node, 1) < 0:
        return -1
    return put_offset(r, node, node.data.size)


cdef int whole(Reading *r) noexcept nogil:
    skip_space(r)
    if value(r, 0) < 0:
        return -1
    skip_space(r)
    return 0 if r.at == r.end else fail(r, MALFORMED, 0)


@cython.final
cdef class JsonPlan:
    """How JSON values become columns: made once of a schema, for any number of arrays.

    Parameters
    ----------
    nodes : list of tuple
        Of each its kind, of ``KINDS``; what a text takes, of ``TAKES``; and its children: number, name, required.
    """

    cdef Node *nodes
    cdef int count
    cdef list names

    def __cinit__(self, nodes):
        cdef Node *node
        cdef int i, child
        cdef uint32_t size, slot
        self.names = []
        self.count = len(nodes)
        self.nodes = <Node *> calloc(<size_t> self.count, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        for i, (kind, taken, children) in enumerate(nodes):
            node = &self.nodes[i]
            node.kind, node.taken = kind, taken
            size = 2
            while size < 2 * len(children):
                size *= 2
            node.mask = size - 1
            node.children = <int *> calloc(len(children) + 1, sizeof(int))
            node.names = <const uint8_t **> calloc(len(children) + 1, sizeof(uint8_t *))
            node.sizes = <int64_t *> calloc(len(children) + 1, 8)
            node.required = <uint8_t *> calloc(len(children) + 1, 1)
            node.table = <int32_t *> calloc(size, 4)
            if not (node.children and node.names and node.sizes and node.required and node.table):
                raise MemoryError
            for child, (at, name, required) in enumerate(children):
                self.names.append(name)
                node.children[child], node.required[child] = at, required
                node.names[child], node.sizes[child] = <const uint8_t *> <char *> (<bytes> name), len(name)
                slot = hash_of(node.names[child], node.sizes[child]) & node.mask
                while node.table[slot]:
                    slot = (slot + 1) & node.mask
                node.table[slot] = child + 1
            node.count = len(children)

    def __dealloc__(self):
        cdef int i
        if self.nodes == NULL:
            return
        for i in range(self.count):
            free(self.nodes[i].children)
            free(self.nodes[i].names)
            free(self.nodes[i].sizes)
            free(self.nodes[i].required)
            free(self.nodes[i].table)
        free(self.nodes)

    def read(self, const int32_t[::1] edges, const uint8_t[::1] data):
        """Columns of values in UTF-8, each between two edges.

        Returns
        -------
        list of tuple
            Of each node its length, a byte for each entry that is valid, its data and its offsets, as bytes.
        list of tuple
            Of each value that is refused: its row, why (of ``WHY``), the position in it, and the node.

        Raises
        ------
        MemoryError
        """
        cdef Reading r
        cdef int64_t rows = edges.shape[0] - 1, row = 0
        cdef int i, done = 0
        cdef Node *nodes = <Node *> malloc(<size_t> self.count * sizeof(Node))
        cdef const uint8_t *first = &data[0] if data.shape[0] else <const uint8_t *> b""
        cdef Bytes refused
        cdef int64_t told[4]
        if nodes == NULL:
            raise MemoryError
        memcpy(nodes, self.nodes, <size_t> self.count * sizeof(Node))
        memset(&r, 0, sizeof(Reading))
        memset(&refused, 0, sizeof(Bytes))
        r.nodes = nodes
        try:
            with nogil:
                for i in range(self.count):
                    if nodes[i].kind in (STRING, NUMBER, TEXT, LIST, MAP) and put_offset(&r, &nodes[i], 0) < 0:
                        done = -1
                while done == 0 and row < rows:
                    r.first, r.at, r.end = first + edges[row], first + edges[row], first + edges[row + 1]
                    r.cells = r.depth = 0
                    if whole(&r) < 0:
                        if r.why == NO_MEMORY:
                            break
                        told[0], told[1], told[2], told[3] = row, r.why, r.at - r.first, r.node
                        cut(nodes, 0, row)
                        r.cells = r.why = 0
                        if put_null(&r, 0) < 0 or put(&r, &refused, told, sizeof(told)) < 0:
                            break
                    row += 1
            if row < rows:
                raise MemoryError
            columns = []
            for i in range(self.count):
                columns.append(
                    (nodes[i].length, taken_out(&nodes[i].valid), taken_out(&nodes[i].data), taken_out(&nodes[i].offsets))
                )
            wrong = [
                ((<int64_t *> refused.at)[4 * i], WHY[(<int64_t *> refused.at)[4 * i + 1]],
                 (<int64_t *> refused.at)[4 * i + 2], (<int64_t *> refused.at)[4 * i + 3])
                for i in range(refused.size // <int64_t> sizeof(told))
            ]
            return columns, wrong
        finally:
            for i in range(self.count):
                free(nodes[i].valid.at)
                free(nodes[i].data.at)
                free(nodes[i].offsets.at)
            free(nodes)
            free(r.scratch.at)
            free(r.spans.at)
            free(refused.at)


cdef bytes taken_out(Bytes *b):
    """What was written, whose memory ends here: a column is never there twice."""
    found = PyBytes_FromStringAndSize(<char *> b.at, b.size)
    free(b.at)
    b.at, b.size, b.room = NULL, 0, 0
    return found
