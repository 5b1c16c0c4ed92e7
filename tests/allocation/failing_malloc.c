/* Makes the n-th allocation fail that watched code asks for, and counts what it holds. To be preloaded; glibc only.
 *
 * Watched are calls of malloc, calloc and realloc that return into one of a few address ranges: the machine code of an
 * extension. All other callers are served as ever.
 */
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

enum { RANGES = 16, BLOCKS = 65536 };
static uintptr_t from[RANGES], to[RANGES];
static int ranges;
static long seen, victim;
static void *blocks[BLOCKS]; /* what watched code took, whoever frees it: a call in tail position hides its caller */
static long held;
static char lock;

static int watched(void *caller) {
    for (int i = 0; i < ranges; i++)
        if ((uintptr_t)caller - from[i] < to[i] - from[i])
            return 1;
    return 0;
}

static int fails(void) { return __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) == victim; }

static void enter(void) {
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
        ;
}

static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }

static void *took(void *p) {
    enter();
    if (p != NULL && held < BLOCKS)
        blocks[held++] = p;
    leave();
    return p;
}

static int gave(void *p) {
    int found = 0;
    enter();
    for (long i = held; i-- > 0 && !found;)
        if (blocks[i] == p) {
            blocks[i] = blocks[--held];
            found = 1;
        }
    leave();
    return found;
}

void *malloc(size_t n) {
    if (!watched(__builtin_return_address(0)))
        return __libc_malloc(n);
    return fails() ? NULL : took(__libc_malloc(n));
}

void *calloc(size_t count, size_t n) {
    if (!watched(__builtin_return_address(0)))
        return __libc_calloc(count, n);
    return fails() ? NULL : took(__libc_calloc(count, n));
}

void *realloc(void *p, size_t n) {
    if (!watched(__builtin_return_address(0)))
        return __libc_realloc(p, n);
    if (fails())
        return NULL;
    void *moved = __libc_realloc(p, n);
    if (moved != NULL) {
        gave(p);
        took(moved);
    }
    return moved;
}

void free(void *p) {
    if (p != NULL && held)
        gave(p);
    __libc_free(p);
}

/* Add a range; 0, or -1 where no more fit. */
int failing_watch(uintptr_t first, uintptr_t behind) {
    if (ranges == RANGES)
        return -1;
    from[ranges] = first;
    to[ranges++] = behind;
    return 0;
}

/* From now on the n-th watched allocation fails, and no other; 0: none. */
void failing_arm(long n) {
    seen = 0;
    victim = n;
}

/* Watched allocations since failing_arm. */
long failing_seen(void) { return seen; }

/* Blocks that watched code took and has not given back. */
long failing_held(void) { return held; }
