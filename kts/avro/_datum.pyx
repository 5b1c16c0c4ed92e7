"""Avro values become the buffers of columns, by programs that were made of schemas; the C of it is native/avro.c."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import numpy as np

cdef extern from "avro.h" nogil:
    enum: KTS_AVRO_COLUMN_FLAGS
    enum: KTS_AVRO_COLUMN_FIXED
    enum: KTS_AVRO_COLUMN_TEXT
    enum: KTS_AVRO_COLUMN_LIST
    enum: KTS_AVRO_COLUMN_MAP
    enum: KTS_AVRO_COLUMN_STRUCT
    enum: KTS_AVRO_OP_COUNT
    enum: KTS_AVRO_WHY_NO_RESOLUTION
    enum: KTS_OK
    enum: KTS_FULL

    const char* kts_avro_op_names[]
    const char* kts_avro_words[]

    struct kts_buf:
        uint8_t* p
        int64_t cap

    struct kts_avro_column:
        int32_t kind
        int32_t width
        int32_t count
        const int32_t* children
        int64_t rows
        int64_t nulls
        int64_t size
        int64_t keys_twice
        kts_buf data
        kts_buf offsets
        kts_buf valid
        kts_buf twice

    struct kts_avro_node:
        int32_t op
        int32_t column
        int32_t count
        const int32_t* children
        int64_t size
        int64_t factor
        int64_t low
        int64_t high
        uint64_t limit[2]
        const uint8_t* bytes
        const int32_t* ends

    struct kts_avro_refused:
        int64_t row
        int64_t position
        int32_t reason
        int32_t program
        int32_t node

    struct kts_avro_program:
        const kts_avro_node* nodes
        int32_t root

    struct kts_avro_job:
        kts_avro_column* columns
        int32_t column_count
        const kts_avro_program* programs
        int64_t rows
        const int32_t* edges
        const uint8_t* data
        int64_t data_size
        const uint8_t* valid
        int64_t valid_first
        const int32_t* codes
        const uint8_t* heads
        int stop
        kts_buf refused
        int64_t refused_count

    int kts_avro_read(kts_avro_job* job)
    void kts_avro_free(kts_avro_job* job)
    void kts_avro_ids(const int32_t* edges, const uint8_t* data, int64_t rows, int64_t* ids)

COLUMN_KINDS = {
    "flags": KTS_AVRO_COLUMN_FLAGS, "fixed": KTS_AVRO_COLUMN_FIXED, "text": KTS_AVRO_COLUMN_TEXT,
    "list": KTS_AVRO_COLUMN_LIST, "map": KTS_AVRO_COLUMN_MAP, "struct": KTS_AVRO_COLUMN_STRUCT,
}  # fmt: skip
OPS = {(<bytes> kts_avro_op_names[number]).decode(): number for number in range(KTS_AVRO_OP_COUNT)}
NO_ID = -1  # of a value that does not begin with the id of a schema


@cython.final
@cython.auto_pickle(False)
cdef class AvroMemory:
    """A buffer that was filled in C; it ends with the last array that shows it."""

    cdef uint8_t* p
    cdef int64_t size

    def __dealloc__(self):
        free(self.p)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*> self.p, self.size, 1, flags)


cdef object taken(kts_buf* b, int64_t size):
    if b.p == NULL:
        return None
    cdef AvroMemory made = AvroMemory.__new__(AvroMemory)
    made.p, made.size = b.p, size
    b.p, b.cap = NULL, 0
    return made


cdef int32_t* numbers(object given) except NULL:
    cdef int32_t* made = <int32_t*> calloc(len(given) + 1, 4)
    cdef int i
    if made == NULL:
        raise MemoryError
    for i, number in enumerate(given):
        made[i] = number
    return made


@cython.final
cdef class Program:
    """How values of a writer's schema fill the columns of a reader's.

    Parameters
    ----------
    root : int
        The node of the value.
    nodes : list of tuple
        Of each: its op, of ``OPS``; its column; its children; size; factor; low; high; the limit of a decimal; bytes;
        and where the parts of the bytes end.
    """

    cdef kts_avro_node* nodes
    cdef int32_t root
    cdef int count
    cdef list kept

    def __cinit__(self, root, nodes):
        cdef kts_avro_node* n
        cdef int i
        self.kept = []
        self.root = root
        self.count = len(nodes)
        self.nodes = <kts_avro_node*> calloc(<size_t> self.count + 1, sizeof(kts_avro_node))
        if self.nodes == NULL:
            raise MemoryError
        for i, (op, column, children, size, factor, low, high, limit, data, ends) in enumerate(nodes):
            n = &self.nodes[i]
            n.op, n.column, n.count = op, column, len(children)
            n.size, n.factor, n.low, n.high = size, factor, low, high
            n.limit[0], n.limit[1] = limit & 0xFFFF_FFFF_FFFF_FFFF, limit >> 64
            self.kept.append(data)
            n.bytes = <const uint8_t*> <char*> (<bytes> data)
            n.children = numbers(children)
            n.ends = numbers(ends)

    def __dealloc__(self):
        cdef int i
        if self.nodes != NULL:
            for i in range(self.count):
                free(<void*> self.nodes[i].children)
                free(<void*> self.nodes[i].ends)
            free(self.nodes)


@cython.final
cdef class Shape:
    """The columns that a reader's schema has.

    Parameters
    ----------
    columns : list of tuple
        Of each its kind, of ``COLUMN_KINDS``; the bytes of a row; and its children. The first is that of the value.
    """

    cdef kts_avro_column* columns
    cdef int count

    def __cinit__(self, columns):
        cdef int i
        self.count = len(columns)
        self.columns = <kts_avro_column*> calloc(<size_t> self.count, sizeof(kts_avro_column))
        if self.columns == NULL:
            raise MemoryError
        for i, (kind, width, children) in enumerate(columns):
            self.columns[i].kind, self.columns[i].width, self.columns[i].count = kind, width, len(children)
            self.columns[i].children = numbers(children)

    def __dealloc__(self):
        cdef int i
        if self.columns != NULL:
            for i in range(self.count):
                free(<void*> self.columns[i].children)
            free(self.columns)

    def read(self, programs, const int32_t[::1] edges, const uint8_t[::1] data, const uint8_t[::1] valid,
             int64_t valid_first, const int32_t[::1] codes, const uint8_t[::1] heads, bint stop):
        """Fill columns with values, each between two edges.

        Parameters
        ----------
        programs : list of Program
        valid, valid_first
            A bitmap and the bit of the first value, or None.
        codes
            Of each value its program, -1 for null; None is the first program for all.
        heads
            How many bytes each value has in front of what is decoded; None is 0 for all.
        stop : bool
            End at the first value that is refused.

        Returns
        -------
        list of tuple
            Of each column its rows and nulls; its bitmap, data and offsets, or None; and the rows of a map in which
            a key is there twice.
        list of tuple
            Of each value that is refused: its row; why, None if the node's schemas do not resolve; the position in
            the value; its program and node.

        Raises
        ------
        OverflowError
            A column would pass 2 GiB.
        """
        cdef kts_avro_job job
        cdef kts_avro_column* c
        cdef kts_avro_refused* one
        cdef Program program
        cdef int64_t i, rows = edges.shape[0] - 1
        cdef int status, count = len(programs)
        cdef kts_avro_program* held = NULL
        for name, array in (("codes", codes), ("heads", heads)):
            if array is not None and array.shape[0] < rows:
                raise ValueError(f"{name}: expected {rows}, found {array.shape[0]}")
        memset(&job, 0, sizeof(job))
        try:
            job.columns = <kts_avro_column*> calloc(<size_t> self.count, sizeof(kts_avro_column))
            held = <kts_avro_program*> calloc(<size_t> count + 1, sizeof(kts_avro_program))
            if job.columns == NULL or held == NULL:
                raise MemoryError
            job.column_count = self.count
            for i in range(self.count):
                job.columns[i] = self.columns[i]
            for i in range(count):
                program = programs[i]
                held[i].nodes, held[i].root = program.nodes, program.root
            job.programs = held
            job.rows = rows
            job.edges = &edges[0]
            job.data = &data[0] if data.shape[0] else <const uint8_t*> b""
            job.data_size = data.shape[0]
            if valid is not None and valid.shape[0]:
                job.valid, job.valid_first = &valid[0], valid_first
            if codes is not None and rows:
                job.codes = &codes[0]
            if heads is not None and rows:
                job.heads = &heads[0]
            job.stop = stop
            with nogil:
                status = kts_avro_read(&job)
            if status == KTS_FULL:
                raise OverflowError
            if status != KTS_OK:
                raise MemoryError
            refused = []
            for i in range(job.refused_count):
                one = &(<kts_avro_refused*> job.refused.p)[i]
                why = None
                if one.reason != KTS_AVRO_WHY_NO_RESOLUTION:
                    why = (<bytes> kts_avro_words[one.reason]).decode()
                refused.append((one.row, why, one.position, one.program, one.node))
            columns = []
            for i in range(self.count):
                c = &job.columns[i]
                twice = [(<int64_t*> c.twice.p)[row] for row in range(c.keys_twice)]
                columns.append(
                    (c.rows, c.nulls, taken(&c.valid, c.rows + 7 >> 3) if c.nulls else None,
                     taken(&c.data, self.bytes_of(c)), taken(&c.offsets, 4 * (c.rows + 1)), twice)
                )
            return columns, refused
        finally:
            if job.columns != NULL:
                kts_avro_free(&job)
                free(job.columns)
            free(held)

    cdef int64_t bytes_of(self, kts_avro_column* c):
        if c.kind == KTS_AVRO_COLUMN_TEXT:
            return c.size
        return c.rows + 7 >> 3 if c.kind == KTS_AVRO_COLUMN_FLAGS else c.rows * c.width


def ids_of(const int32_t[::1] edges, const uint8_t[::1] data):
    """The id of the schema in front of each value between two edges, or ``NO_ID``."""
    cdef int64_t rows = edges.shape[0] - 1
    found = np.empty(rows, np.int64)
    cdef int64_t[::1] ids = found
    if rows:
        with nogil:
            kts_avro_ids(&edges[0], &data[0] if data.shape[0] else <const uint8_t*> b"", rows, &ids[0])
    return found
