/* What the fuzzed build reports: which basic blocks of our extensions ran, and in what order.
 *
 * The compiler puts a call of __sanitizer_cov_trace_pc into every basic block (-fsanitize-coverage=trace-pc). A pair of
 * blocks that ran one after the other is an edge, counted in a map of 64 Ki places. Addresses are taken relative to the
 * watched modules, so that runs agree wherever the modules were loaded. This file itself is not instrumented.
 */
#include <stdint.h>
#include <string.h>

enum { EDGES = 1 << 16, MODULES = 4, BLOCKS = 1 << 24 };

typedef struct {
    uintptr_t first, last;
    uint32_t before; /* bytes of the modules watched earlier */
} module;

static module modules[MODULES];
static int n_modules;
static int running;
static uint32_t previous;
static uint8_t counts[EDGES] __attribute__((aligned(64)));
static uint8_t blocks[BLOCKS]; /* 1 at the address behind each call that ran */

/* Bit of a count: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, 128 and more. */
static uint8_t bucket(uint8_t n) {
    static const uint8_t small[4] = {0, 1, 2, 4};
    return n < 4 ? small[n] : n < 8 ? 8 : n < 16 ? 16 : n < 32 ? 32 : n < 128 ? 64 : 128;
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    if (!running)
        return;
    for (int i = 0; i < n_modules; i++) {
        if (pc >= modules[i].first && pc < modules[i].last) {
            uint32_t at = (uint32_t)(pc - modules[i].first) + modules[i].before;
            uint32_t here = (at * 2654435761u) >> 16, edge = here ^ previous;
            blocks[at] = 1;
            if (counts[edge] != 255)
                counts[edge]++;
            previous = here >> 1;
            return;
        }
    }
}

/* Where the blocks of the module at [first, last) begin in `blocks`; -1 if there is no room. */
int64_t kts_trace_watch(uintptr_t first, uintptr_t last) {
    uint32_t before = n_modules ? modules[n_modules - 1].before +
                                      (uint32_t)(modules[n_modules - 1].last - modules[n_modules - 1].first) : 0;
    if (n_modules == MODULES || before + (last - first) > BLOCKS)
        return -1;
    modules[n_modules] = (module){first, last, before};
    n_modules++;
    return before;
}

void kts_trace_start(void) {
    memset(counts, 0, sizeof(counts));
    previous = 0;
    running = 1;
}

void kts_trace_stop(void) { running = 0; }

/* Take the buckets seen since the start out of `unseen` (EDGES bytes, all bits set at first) where `take` says so.
 * 2: an edge ran for the first time, 1: an edge ran more or less often than ever, 0: nothing new. */
int kts_trace_news(uint8_t *unseen, int take) {
    int news = 0;
    for (int i = 0; i < EDGES; i += 8) {
        uint64_t eight;
        memcpy(&eight, counts + i, 8);
        if (!eight)
            continue;
        for (int j = i; j < i + 8; j++) {
            uint8_t bit = bucket(counts[j]);
            if (!(bit & unseen[j]))
                continue;
            news = unseen[j] == 255 || news == 2 ? 2 : 1;
            if (take)
                unseen[j] &= (uint8_t)~bit;
        }
    }
    return news;
}

/* (place << 8 | bucket) of every edge that ran; how many. `out` has room for EDGES of them. */
int kts_trace_edges(uint32_t *out) {
    int n = 0;
    for (int i = 0; i < EDGES; i++)
        if (counts[i])
            out[n++] = (uint32_t)i << 8 | bucket(counts[i]);
    return n;
}

uint8_t *kts_trace_blocks(void) { return blocks; }
