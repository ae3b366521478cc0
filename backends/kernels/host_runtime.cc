// Runs kernels that were compiled for the processor: every work-item is a fiber with a stack of its own, all those of a block on
// one thread, blocks dealt to as many threads as there are processors. A fiber runs until it meets its neighbours: what a wave does
// together happens when all lanes that can get there are there, in the order of their places in the code, which is what hardware
// makes of branches. A lane that is not there gives no value: reading it gives a pattern that is wrong on purpose.
// Exports what host_launch.h says. Made into one library with the kernels by strata-kernel-build.
#include "host_launch.h"
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_registry.h"

#define WAVE ((uint32_t)STRATA_HOST)
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
constexpr uint32_t MOST_ITEMS = 1024, MOST_WAVES = MOST_ITEMS / WAVE, MOST_WORKERS = 16, MAIN = ~0u;
constexpr size_t STACK = 64 << 10, PAGE = 4096;
// What a block may have of shared memory on the cards that the host build stands for.
constexpr uint32_t MOST_SHARED = 64 << 10, FENCE = 4096;
constexpr uint8_t FENCE_BYTE = 0xa5, UNSET_BYTE = 0xcd;
constexpr uint32_t NOT_THERE = 0x7fc0dead;

struct Worker;
// Gives the lanes of `group`, bits of a wave that begins at work-item `first`, what they wait for.
using Resolve = void (*)(Worker &, uint32_t first, uint64_t group);

struct Lane {
    void *stack_pointer;
    Resolve resolve;
    void *operand;
    const void *place;
};
struct Wave {
    uint64_t runnable, together, at_barrier;
};
struct Launch {
    const strata_host_entry *entry;
    uint32_t grid[3], block, shared;
    const void *params;
};

struct Worker {
    Lane lanes[MOST_ITEMS];
    Wave waves[MOST_WAVES];
    void *main_stack_pointer;
    uint8_t *stacks, *dynamic;
    const Launch *launch;
    uint32_t current, at[3];
    bool failed;
};

// Not of the initial-exec model: one such variable would put the shared memory of all kernels, which is local to a thread
// too, into what a program has set aside for libraries that it opens later, and the loader refuses.
thread_local Worker *worker;

struct Failure {
    int code;
    char text[512];
};
Failure failure;
pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;
uint32_t order;

void fail(int code, const char *format, ...) {
    pthread_mutex_lock(&failure_lock);
    if (failure.code == STRATA_HOST_DONE) {
        failure.code = code;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(failure.text, sizeof failure.text, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&failure_lock);
}
}  // namespace

// Saves what a called function must keep, on the old stack; takes it back from the new one.
extern "C" void strata_host_switch(void **save, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.hidden strata_host_switch
.globl strata_host_switch
.type strata_host_switch, @function
strata_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
.size strata_host_switch, . - strata_host_switch
.section .note.GNU-stack, "", @progbits
.text
)");
#elif defined(__aarch64__)
asm(R"(
.text
.hidden strata_host_switch
.globl strata_host_switch
.type strata_host_switch, @function
strata_host_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size strata_host_switch, . - strata_host_switch
)");
#else
#error "no switch between stacks is written for this processor"
#endif

namespace {
uint32_t pick(uint64_t lanes) {
    if (order == 0) return (uint32_t)__builtin_ctzll(lanes);
    if (order == 1) return 63 - (uint32_t)__builtin_clzll(lanes);
    // Somewhere, the same in every run.
    uint32_t turn = (uint32_t)(lanes * 0x9e3779b97f4a7c15ull * order >> 58);
    uint64_t turned = lanes >> turn | (turn ? lanes << (64 - turn) : 0);
    return ((uint32_t)__builtin_ctzll(turned) + turn) % 64;
}

// The lanes that wait at the first place of the code in which any does; false when none waits.
bool resolve(Worker &w, uint32_t wave_index) {
    Wave &wave = w.waves[wave_index];
    const uint32_t first = wave_index * WAVE;
    if (!wave.together) return false;
    const void *place = nullptr;
    uint64_t group = 0;
    for (uint64_t left = wave.together; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctzll(left);
        const void *here = w.lanes[first + lane].place;
        if (!group || here < place) place = here, group = 0;
        if (here == place) group |= 1ull << lane;
    }
    Resolve what = w.lanes[first + (uint32_t)__builtin_ctzll(group)].resolve;
    if (what) what(w, first, group);
    wave.together &= ~group;
    wave.runnable |= group;
    return true;
}

// Goes on with whoever can go on; comes back when this fiber can.
void leave(Worker &w, uint32_t me) {
    const uint32_t wave_index = me / WAVE;
    Wave &wave = w.waves[wave_index];
    if (!wave.runnable) resolve(w, wave_index);
    uint32_t next = wave.runnable ? wave_index * WAVE + pick(wave.runnable) : MAIN;
    if (next == me) return;
    w.current = next;
    strata_host_switch(&w.lanes[me].stack_pointer, next == MAIN ? w.main_stack_pointer : w.lanes[next].stack_pointer);
}

void meet(Resolve what, void *operand, const void *place) {
    Worker &w = *worker;
    const uint32_t me = w.current;
    Lane &lane = w.lanes[me];
    lane.resolve = what, lane.operand = operand, lane.place = place;
    Wave &wave = w.waves[me / WAVE];
    const uint64_t bit = 1ull << me % WAVE;
    wave.runnable &= ~bit, wave.together |= bit;
    leave(w, me);
}

void begin_fiber() {
    Worker &w = *worker;
    w.launch->entry->call(w.launch->params);
    const uint32_t me = w.current;
    w.waves[me / WAVE].runnable &= ~(1ull << me % WAVE);
    leave(w, me);
    abort();
}

// A stack that begins with begin_fiber.
void *fresh(uint8_t *stack) {
    void **top = (void **)(stack + STACK);
#if defined(__x86_64__)
    // What looks like a return address to begin_fiber, which never returns; it sets the alignment that a call has.
    *--top = nullptr;
    *--top = (void *)begin_fiber;
    for (int i = 0; i < 6; i++) *--top = nullptr;
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (void *)begin_fiber;
#endif
    return top;
}

bool fenced(const Worker &w) {
    const uint8_t *end = w.dynamic + w.launch->shared;
    for (uint32_t i = 0; i < FENCE; i++)
        if (end[i] != FENCE_BYTE) return false;
    return true;
}

// Lanes of one wave that are at different barriers would hang a card, or count twice.
bool same_place(Worker &w, uint32_t wave) {
    const void *place = nullptr;
    for (uint64_t left = w.waves[wave].at_barrier; left; left &= left - 1) {
        const void *here = w.lanes[wave * WAVE + (uint32_t)__builtin_ctzll(left)].place;
        if (place && here != place) return false;
        place = here;
    }
    return true;
}

void run_block(Worker &w) {
    const Launch &launch = *w.launch;
    const uint32_t n = launch.block, n_waves = (n + WAVE - 1) / WAVE;
    memset(w.dynamic, UNSET_BYTE, launch.shared);
    memset(w.dynamic + launch.shared, FENCE_BYTE, FENCE);
    for (uint32_t i = 0; i < n; i++) w.lanes[i].stack_pointer = fresh(w.stacks + i * (STACK + PAGE) + PAGE);
    for (uint32_t v = 0; v < n_waves; v++) {
        uint32_t lanes = n - v * WAVE < WAVE ? n - v * WAVE : WAVE;
        w.waves[v] = {lanes == 64 ? ~0ull : (1ull << lanes) - 1, 0, 0};
    }
    for (bool left = true; left;) {
        for (uint32_t i = 0; i < n_waves; i++) {
            uint32_t v = order == 1 ? n_waves - 1 - i : order == 0 ? i : (i + order) % n_waves;
            if (!w.waves[v].runnable) continue;
            w.current = v * WAVE + pick(w.waves[v].runnable);
            strata_host_switch(&w.main_stack_pointer, w.lanes[w.current].stack_pointer);
        }
        left = false;
        for (uint32_t v = 0; v < n_waves; v++) {
            if (!same_place(w, v)) {
                fail(STRATA_HOST_DEADLOCK, "%s, block %u %u %u: lanes of wave %u wait at different barriers", launch.entry->name, w.at[0],
                     w.at[1], w.at[2], v);
                w.failed = true;
                return;
            }
            left |= w.waves[v].at_barrier != 0;
            w.waves[v].runnable = w.waves[v].at_barrier;
            w.waves[v].at_barrier = 0;
        }
    }
    if (!fenced(w)) {
        fail(STRATA_HOST_WRONG_SHAPE, "%s, block %u %u %u: wrote beyond its %u bytes of dynamic shared memory", launch.entry->name, w.at[0],
             w.at[1], w.at[2], launch.shared);
        w.failed = true;
    }
}

Worker *new_worker() {
    Worker *w = (Worker *)calloc(1, sizeof(Worker));
    // A page that nobody may touch below each stack.
    const size_t bytes = MOST_ITEMS * (STACK + PAGE);
    uint8_t *stacks = (uint8_t *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *dynamic = nullptr;
    if (!w || stacks == MAP_FAILED || posix_memalign(&dynamic, 256, MOST_SHARED + FENCE)) return nullptr;
    for (uint32_t i = 0; i < MOST_ITEMS; i++) mprotect(stacks + i * (STACK + PAGE), PAGE, PROT_NONE);
    w->stacks = stacks, w->dynamic = (uint8_t *)dynamic;
    return w;
}

// ---- the threads --------------------------------------------------------------------------------------------------------

struct Pool {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
    pthread_t threads[MOST_WORKERS];
    uint32_t n_threads = 0, generation = 0, busy = 0;
    bool ended = false;
    const Launch *launch = nullptr;
    uint64_t next = 0, n_blocks = 0;
} pool;
pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;

void run_blocks(Worker &w, const Launch &launch) {
    w.launch = &launch, w.failed = false;
    for (;;) {
        uint64_t at = __atomic_fetch_add(&pool.next, 1, __ATOMIC_RELAXED);
        if (at >= pool.n_blocks || w.failed) return;
        w.at[0] = (uint32_t)(at % launch.grid[0]);
        w.at[1] = (uint32_t)(at / launch.grid[0] % launch.grid[1]);
        w.at[2] = (uint32_t)(at / launch.grid[0] / launch.grid[1]);
        run_block(w);
    }
}

void *thread_main(void *) {
    worker = new_worker();
    uint32_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.generation == seen && !pool.ended) pthread_cond_wait(&pool.work, &pool.lock);
        if (pool.ended) break;
        seen = pool.generation;
        const Launch *launch = pool.launch;
        pthread_mutex_unlock(&pool.lock);
        if (worker && launch) run_blocks(*worker, *launch);
        pthread_mutex_lock(&pool.lock);
        if (--pool.busy == 0) pthread_cond_signal(&pool.done);
    }
    pthread_mutex_unlock(&pool.lock);
    return nullptr;
}

void start_threads() {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    pthread_mutex_lock(&pool.lock);
    while (pool.n_threads + 1 < (uint32_t)n && pool.n_threads + 1 < MOST_WORKERS) {
        if (pthread_create(&pool.threads[pool.n_threads], nullptr, thread_main, nullptr) != 0) break;
        pool.n_threads++;
    }
    pthread_mutex_unlock(&pool.lock);
}

__attribute__((destructor)) void stop_threads() {
    pthread_mutex_lock(&pool.lock);
    pool.ended = true;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (uint32_t i = 0; i < pool.n_threads; i++) pthread_join(pool.threads[i], nullptr);
}

const strata_host_entry *const entries = __start_strata_entries;
size_t n_entries() { return (size_t)(__stop_strata_entries - __start_strata_entries); }

const strata_host_entry *find(const char *kernel) {
    for (size_t i = 0; i < n_entries(); i++)
        if (strcmp(entries[i].name, kernel) == 0) return entries + i;
    return nullptr;
}

int run(const Launch &launch) {
    failure.code = STRATA_HOST_DONE;
    if (!worker) worker = new_worker();
    if (!worker) {
        fail(STRATA_HOST_WRONG_SHAPE, "no memory for the stacks of a block");
        return failure.code;
    }
    pool.next = 0;
    pool.n_blocks = (uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2];
    const bool shared_out = pool.n_blocks > 1;
    if (shared_out) {
        if (pool.n_threads == 0) start_threads();
        pthread_mutex_lock(&pool.lock);
        pool.launch = &launch, pool.busy = pool.n_threads, pool.generation++;
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.lock);
    }
    run_blocks(*worker, launch);
    if (shared_out) {
        pthread_mutex_lock(&pool.lock);
        while (pool.busy) pthread_cond_wait(&pool.done, &pool.lock);
        pool.launch = nullptr;
        pthread_mutex_unlock(&pool.lock);
    }
    return failure.code;
}
}  // namespace

// ---- for the kernels ------------------------------------------------------------------------------------------------------

extern "C" {
uint32_t strata_host_tid() { return worker->current; }
uint32_t strata_host_lane() { return worker->current % WAVE; }
uint32_t strata_host_block(uint32_t dimension) { return worker->at[dimension]; }
uint8_t *strata_host_dynamic() { return worker->dynamic; }

__attribute__((noinline)) void strata_host_barrier() {
    Worker &w = *worker;
    const uint32_t me = w.current;
    w.lanes[me].place = __builtin_return_address(0);
    Wave &wave = w.waves[me / WAVE];
    const uint64_t bit = 1ull << me % WAVE;
    wave.runnable &= ~bit, wave.at_barrier |= bit;
    leave(w, me);
}
__attribute__((noinline)) void strata_host_wave_barrier() { meet(nullptr, nullptr, __builtin_return_address(0)); }
}

namespace {
struct Permute {
    uint32_t source;
    int32_t value, result;
};
void permute(Worker &w, uint32_t first, uint64_t group) {
    for (uint64_t left = group; left; left &= left - 1) {
        Permute &mine = *(Permute *)w.lanes[first + (uint32_t)__builtin_ctzll(left)].operand;
        const bool there = group >> mine.source & 1;
        mine.result = there ? ((Permute *)w.lanes[first + mine.source].operand)->value : (int32_t)NOT_THERE;
    }
}

// gfx11's layout for a wave of 32: lane l holds row l % 16 of A and column l % 16 of B, all sixteen of k, in both halves of the wave
// alike; of the results, register r holds row 2 r + l / 16 of column l % 16.
struct Matrix {
    const void *a, *b;
    void *c;
    uint32_t signs;
};
const Matrix &matrix_of(const Worker &w, uint32_t lane) { return *(const Matrix *)w.lanes[lane].operand; }
bool whole(Worker &w, uint64_t group) {
    if (WAVE == 32 && group == 0xffffffffull) return true;
    fail(STRATA_HOST_DEADLOCK, "%s: a matrix product without all lanes of a wave of 32", w.launch->entry->name);
    return false;
}
void wmma_i8(Worker &w, uint32_t first, uint64_t group) {
    if (!whole(w, group)) return;
    int32_t results[32][8];
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t r = 0; r < 8; r++) {
            const uint32_t row = 2 * r + lane / 16;
            const uint8_t *a = (const uint8_t *)matrix_of(w, first + row).a, *b = (const uint8_t *)matrix_of(w, first + lane % 16).b;
            const uint32_t signs = matrix_of(w, first).signs;
            uint32_t sum = (uint32_t)((const int32_t *)matrix_of(w, first + lane).c)[r];
            for (uint32_t k = 0; k < 16; k++) {
                int32_t x = signs & 1 ? (int8_t)a[k] : a[k], y = signs & 2 ? (int8_t)b[k] : b[k];
                sum += (uint32_t)(x * y);
            }
            results[lane][r] = (int32_t)sum;
        }
    for (uint32_t lane = 0; lane < 32; lane++) memcpy(matrix_of(w, first + lane).c, results[lane], sizeof results[lane]);
}
void wmma_f16(Worker &w, uint32_t first, uint64_t group) {
    if (!whole(w, group)) return;
    float results[32][8];
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t r = 0; r < 8; r++) {
            const uint32_t row = 2 * r + lane / 16;
            const _Float16 *a = (const _Float16 *)matrix_of(w, first + row).a, *b = (const _Float16 *)matrix_of(w, first + lane % 16).b;
            float sum = ((const float *)matrix_of(w, first + lane).c)[r];
            for (uint32_t k = 0; k < 16; k++) sum += (float)a[k] * (float)b[k];
            results[lane][r] = sum;
        }
    for (uint32_t lane = 0; lane < 32; lane++) memcpy(matrix_of(w, first + lane).c, results[lane], sizeof results[lane]);
}
}  // namespace

extern "C" {
__attribute__((noinline)) int32_t strata_host_permute(uint32_t source, int32_t value) {
    Permute operand = {source, value, 0};
    meet(permute, &operand, __builtin_return_address(0));
    return operand.result;
}
__attribute__((noinline)) void strata_host_wmma_i8(const int32_t *a, const int32_t *b, int32_t *c, uint32_t signs) {
    Matrix operand = {a, b, c, signs};
    meet(wmma_i8, &operand, __builtin_return_address(0));
}
__attribute__((noinline)) void strata_host_wmma_f16(const uint16_t *a, const uint16_t *b, float *c) {
    Matrix operand = {a, b, c, 0};
    meet(wmma_f16, &operand, __builtin_return_address(0));
}
}

// ---- for those who launch ---------------------------------------------------------------------------------------------------

EXPORT uint32_t strata_host_wave(void) { return WAVE; }

EXPORT size_t strata_host_kernels(const struct strata_host_kernel **kernels) {
    static_assert(sizeof(strata_host_entry) == sizeof(strata_host_kernel) + sizeof(void (*)(const void *)), "an entry begins as a kernel");
    static strata_host_kernel *list;
    pthread_mutex_lock(&one_launch);
    if (!list) {
        list = (strata_host_kernel *)calloc(n_entries() + 1, sizeof(strata_host_kernel));
        for (size_t i = 0; list && i < n_entries(); i++)
            list[i] = {entries[i].name, entries[i].n_params, entries[i].most_items};
    }
    pthread_mutex_unlock(&one_launch);
    *kernels = list;
    return list ? n_entries() : 0;
}

EXPORT int strata_host_launch(const char *kernel, const uint32_t grid[3], uint32_t block, uint32_t shared, const void *params,
                              size_t n_params) {
    pthread_mutex_lock(&one_launch);
    failure.code = STRATA_HOST_DONE, failure.text[0] = 0;
    int result;
    const strata_host_entry *entry = find(kernel);
    if (!entry) {
        fail(STRATA_HOST_NO_KERNEL, "no kernel %s", kernel);
        result = failure.code;
    } else if (n_params != entry->n_params) {
        fail(STRATA_HOST_WRONG_PARAMS, "%s takes %zu bytes of arguments, not %zu", kernel, entry->n_params, n_params);
        result = failure.code;
    } else if (block == 0 || block > entry->most_items || !grid[0] || !grid[1] || !grid[2] || shared > MOST_SHARED) {
        fail(STRATA_HOST_WRONG_SHAPE, "%s: grid %u %u %u, block %u of at most %u, %u bytes of shared memory of at most %u", kernel, grid[0],
             grid[1], grid[2], block, entry->most_items, shared, MOST_SHARED);
        result = failure.code;
    } else {
        result = run(Launch{entry, {grid[0], grid[1], grid[2]}, block, shared, params});
    }
    pthread_mutex_unlock(&one_launch);
    return result;
}

EXPORT const char *strata_host_message(void) { return failure.text; }

EXPORT void strata_host_order(uint32_t wanted) {
    pthread_mutex_lock(&one_launch);
    order = wanted;
    pthread_mutex_unlock(&one_launch);
}
