// A small plugin that does what the probe's check needs, and one fault that -DFAULT_… turns on.
// Without a fault it is sound, so that a test which passes because nothing works cannot pass.
// For the loader, not for authors: how a plugin should be written is shown beside the header.

#include "strata_backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }

static uint64_t instance;
static StrataLogFn log_line;
static void *log_context;
static _Thread_local const char *error_text = "";

#ifdef FAULT_TLS
// More than the loader keeps in reserve for libraries that come late.
static __thread char room[1 << 20] __attribute__((tls_model("initial-exec")));
char *strata_test_room(void) { return room; }
#endif

#ifdef FAULT_UNDEFINED
int32_t strata_test_is_defined_nowhere(void);
#define PULL_IN strata_test_is_defined_nowhere()
#else
#define PULL_IN 0
#endif

#ifdef FAULT_CONSTRUCTOR
__attribute__((constructor)) static void before_main(void) { abort(); }
#endif

#ifdef FAULT_EXIT_HANDLER
__attribute__((destructor)) static void after_main(void) { abort(); }
#endif

static StrataHandle handle_of(const void *object) {
    StrataHandle handle = { instance, (uint64_t)(uintptr_t)object };
    return handle;
}

static void *object_of(StrataHandle handle) { return (void *)(uintptr_t)handle.id; }

static void put_text(StrataTextOut *out, const char *text) {
    size_t len = strlen(text);
    memcpy(out->data, text, len < out->capacity ? len : (size_t)out->capacity);
    out->len = len;
#ifdef FAULT_TEXT_LENGTH
    out->len = UINT64_MAX;
#endif
}

static void last_error(StrataTextOut *out) { put_text(out, error_text); }

static int32_t device_count(uint32_t *count) {
    *count = 1;
#ifdef FAULT_COUNT
    *count = 3;
#endif
#ifdef FAULT_COUNT_HUGE
    *count = UINT32_MAX;
#endif
#ifdef FAULT_NO_DEVICES
    *count = 0;
#endif
#ifdef FAULT_STATUS
    return 77;
#endif
    return STRATA_STATUS_OK;
}

static int32_t device_info(uint32_t index, StrataDeviceInfo *out) {
    if (index != 0) {
        error_text = "there is only one";
        return STRATA_STATUS_NO_DEVICE;
    }
    StrataStr name = TEXT("test device"), arch = TEXT("x86-64 scalar"), uid = TEXT("test:0");
    out->kind = STRATA_DEVICE_KIND_CPU;
#ifdef FAULT_KIND
    out->kind = 9;
#endif
    out->flags = STRATA_DEVICE_HOST_MEMORY;
    out->name = name;
    out->arch = arch;
    out->uid = uid;
    out->memory_total = out->memory_free = 1 << 30;
    return STRATA_STATUS_OK;
}

static int open_devices;
// Work that nobody has waited for, and a device that is gone: what the host must not do then ends the process.
static int is_pending, is_lost;

static void must_be_idle(void) {
    if (is_pending || is_lost) {
        fputs("freed while at work, or on a lost device\n", stderr);
        abort();
    }
}

static int32_t device_open(uint32_t index, const StrataDeviceOptions *options, StrataHandle *out) {
    (void)index;
    (void)options;
#ifdef FAULT_ABORT
    fputs("assertion failed: the driver is not amused\n", stderr);
    abort();
#endif
#ifdef FAULT_SEGV
    *(volatile int *)8 = 1;
#endif
#ifdef FAULT_EXIT
    exit(0);
#endif
#ifdef FAULT_HANG
    for (;;) {
        sleep(1);
    }
#endif
#ifdef FAULT_PANIC
    error_text = "the plugin panicked: index out of bounds";
    return STRATA_STATUS_INTERNAL;
#endif
#ifdef FAULT_PERMISSION
    error_text = "/dev/kfd";
    return STRATA_STATUS_NO_PERMISSION;
#endif
    open_devices++;
    *out = handle_of(&open_devices);
#ifdef FAULT_FOREIGN_HANDLE
    out->instance += 1;
#endif
#ifdef FAULT_NO_HANDLE
    out->id = 0;
#endif
    return STRATA_STATUS_OK;
}

static int32_t device_close(StrataHandle device) {
    (void)device;
    open_devices--;
    return STRATA_STATUS_OK;
}

static int64_t bytes_used;

static int32_t device_memory(StrataHandle device, StrataMemoryInfo *out) {
    (void)device;
    out->total = 1 << 30;
    out->used_here = (uint64_t)bytes_used;
    out->free = out->total - out->used_here;
    return STRATA_STATUS_OK;
}

static int32_t device_report(StrataHandle device, StrataTextOut *out) {
    (void)device;
    put_text(out, "scalar, since it is a test");
    return STRATA_STATUS_OK;
}

static int32_t synchronize(StrataHandle device) {
    (void)device;
    is_pending = 0;
    return STRATA_STATUS_OK;
}

static const StrataOp *op_at(const StrataProgramDesc *desc, uint32_t index) {
    return (const StrataOp *)((const char *)desc->ops + (size_t)index * desc->op_stride);
}

static int is_known(uint32_t kind) {
    return kind == STRATA_OP_KIND_RMS_NORM || kind == STRATA_OP_KIND_MAT_MUL || kind == STRATA_OP_KIND_ADD;
}

static int32_t op_supported(StrataHandle device, const StrataProgramDesc *desc, uint32_t index, StrataTextOut *out) {
    (void)device;
    if (is_known(op_at(desc, index)->kind)) {
        return STRATA_STATUS_OK;
    }
    put_text(out, "not one of the three");
    return STRATA_STATUS_UNSUPPORTED;
}

struct buffer {
    char *data;
    uint64_t bytes;
    int is_owned;
};

static int32_t buffer_alloc(StrataHandle device, const StrataBufferDesc *desc, StrataHandle *out) {
    (void)device;
    if (desc->bytes > 1 << 30) {
        error_text = "more than there is";
        return STRATA_STATUS_OUT_OF_MEMORY;
    }
    struct buffer *buffer = malloc(sizeof *buffer);
    buffer->data = calloc(1, desc->bytes);
    buffer->bytes = desc->bytes;
    buffer->is_owned = 1;
    bytes_used += (int64_t)desc->bytes;
    *out = handle_of(buffer);
    return STRATA_STATUS_OK;
}

static int32_t buffer_import(StrataHandle device, const void *data, uint64_t bytes, StrataHandle *out) {
    (void)device;
    struct buffer *buffer = malloc(sizeof *buffer);
    buffer->data = (char *)(uintptr_t)data;
    buffer->bytes = bytes;
    buffer->is_owned = 0;
    *out = handle_of(buffer);
    return STRATA_STATUS_OK;
}

static int32_t buffer_free(StrataHandle handle) {
    struct buffer *buffer = object_of(handle);
    must_be_idle();
    if (buffer->is_owned) {
        bytes_used -= (int64_t)buffer->bytes;
        free(buffer->data);
    }
    free(buffer);
    return STRATA_STATUS_OK;
}

static int32_t buffer_write(StrataHandle handle, uint64_t offset, const void *data, uint64_t bytes) {
    memcpy(((struct buffer *)object_of(handle))->data + offset, data, bytes);
    return STRATA_STATUS_OK;
}

static int32_t buffer_read(StrataHandle handle, uint64_t offset, void *data, uint64_t bytes) {
    memcpy(data, ((struct buffer *)object_of(handle))->data + offset, bytes);
    return STRATA_STATUS_OK;
}

static int32_t buffer_copy(StrataHandle target, uint64_t to, StrataHandle source, uint64_t from, uint64_t bytes) {
    memcpy(((struct buffer *)object_of(target))->data + to, ((struct buffer *)object_of(source))->data + from, bytes);
    return STRATA_STATUS_OK;
}

static int32_t buffer_map(StrataHandle handle, void **out) {
    *out = ((struct buffer *)object_of(handle))->data;
#ifdef FAULT_MAP
    *out = NULL;
#endif
    return STRATA_STATUS_OK;
}

struct program {
    uint32_t n_ops;
    StrataOp ops[16];
    StrataTensor tensors[64];
    struct buffer *buffers[16];
};

static int32_t program_compile(StrataHandle device, const StrataProgramDesc *desc, StrataHandle *out) {
    (void)device;
    if (desc->n_ops > 16 || desc->n_tensors > 64 || desc->n_buffers > 16) {
        error_text = "too long for a test";
        return STRATA_STATUS_UNSUPPORTED;
    }
    struct program *program = malloc(sizeof *program);
    program->n_ops = desc->n_ops;
    for (uint32_t i = 0; i < desc->n_ops; i++) {
        program->ops[i] = *op_at(desc, i);
    }
    for (uint32_t i = 0; i < desc->n_tensors; i++) {
        program->tensors[i] = *(const StrataTensor *)((const char *)desc->tensors + (size_t)i * desc->tensor_stride);
    }
    for (uint32_t i = 0; i < desc->n_buffers; i++) {
        program->buffers[i] = object_of(desc->buffers[i]);
    }
    *out = handle_of(program);
    return STRATA_STATUS_OK;
}

static float *row(struct program *program, uint32_t tensor, uint64_t index) {
    const StrataTensor *t = &program->tensors[tensor];
    uint64_t wrapped = t->ne[1] == 1 ? 0 : index;
    return (float *)(program->buffers[t->buffer]->data + t->offset + wrapped * t->nb[1]);
}

static void run_op(struct program *program, const StrataOp *op, uint64_t rows) {
    uint64_t n = program->tensors[op->operand[0]].ne[0];
    for (uint64_t r = 0; r < rows; r++) {
        float *out = row(program, op->operand[0], r);
        if (op->kind == STRATA_OP_KIND_RMS_NORM) {
            const float *x = row(program, op->operand[1], r), *w = row(program, op->operand[2], 0);
            double sum = 0;
            for (uint64_t i = 0; i < n; i++) {
                sum += (double)x[i] * x[i];
            }
            double factor = 1 / sqrt(sum / (double)n + op->f[0]);
            for (uint64_t i = 0; i < n; i++) {
                out[i] = (float)(x[i] * factor * w[i]);
            }
        } else if (op->kind == STRATA_OP_KIND_MAT_MUL) {
            const float *x = row(program, op->operand[2], r);
            uint64_t k = program->tensors[op->operand[1]].ne[0];
            for (uint64_t m = 0; m < n; m++) {
                const float *w = row(program, op->operand[1], m);
                double sum = 0;
                for (uint64_t i = 0; i < k; i++) {
                    sum += (double)w[i] * x[i];
                }
                out[m] = (float)sum;
#ifdef FAULT_NUMBERS
                out[m] += m == 7 ? 0.01f : 0;
#endif
#ifdef FAULT_NAN
                out[m] = NAN;
#endif
            }
        } else {
            const float *a = row(program, op->operand[1], r), *b = row(program, op->operand[2], r);
            for (uint64_t i = 0; i < n; i++) {
                out[i] = a[i] + op->f[0] * b[i];
            }
        }
    }
}

static int32_t program_run(StrataHandle handle, const StrataRunArgs *args) {
    struct program *program = object_of(handle);
    is_pending = 1;
    for (uint32_t i = 0; i < args->n_wait; i++) {
        if (!*(int *)object_of(args->wait[i])) {
            error_text = "it would wait for ever";
            return STRATA_STATUS_INVALID_CALL;
        }
    }
#ifdef FAULT_LOST
    is_lost = 1;
    error_text = "fell off the bus";
    return STRATA_STATUS_DEVICE_LOST;
#endif
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const StrataTensor *out = &program->tensors[program->ops[i].operand[0]];
        uint64_t rows = out->dynamic[1] ? (uint64_t)args->scalars[out->dynamic[1] - 1] : out->ne[1];
        run_op(program, &program->ops[i], rows);
    }
    if (args->signal.id != 0) {
        *(int *)object_of(args->signal) = 1;
    }
    return STRATA_STATUS_OK;
}

static int32_t program_free(StrataHandle handle) {
    must_be_idle();
    free(object_of(handle));
    return STRATA_STATUS_OK;
}

static int32_t event_create(StrataHandle device, StrataHandle *out) {
    (void)device;
    *out = handle_of(calloc(1, sizeof(int)));
    return STRATA_STATUS_OK;
}

static int32_t event_query(StrataHandle event) {
    return *(int *)object_of(event) ? STRATA_STATUS_OK : STRATA_STATUS_NOT_READY;
}

static int32_t event_wait(StrataHandle event) {
    error_text = "it would wait for ever";
    return *(int *)object_of(event) ? STRATA_STATUS_OK : STRATA_STATUS_INVALID_CALL;
}

static int32_t event_free(StrataHandle event) {
    must_be_idle();
    free(object_of(event));
    return STRATA_STATUS_OK;
}

static StrataBackend table = {
    .struct_size = sizeof(StrataBackend),
    .abi = STRATA_ABI_VERSION,
    .name = TEXT("test"),
    .version = TEXT(TEST_VERSION),
    .last_error = last_error,
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .device_report = device_report,
    .synchronize = synchronize,
    .op_supported = op_supported,
    .buffer_alloc = buffer_alloc,
    .buffer_import = buffer_import,
    .buffer_free = buffer_free,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .buffer_copy = buffer_copy,
    .buffer_map = buffer_map,
    .program_compile = program_compile,
    .program_run = program_run,
    .program_free = program_free,
    .event_create = event_create,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_free = event_free,
};

#ifndef FAULT_NO_ENTRY
int32_t strata_backend_entry(const StrataEntryArgs *args, StrataEntryResult *result) {
    instance = args->instance;
    log_line = args->log;
    log_context = args->log_context;
    if (log_line != NULL) {
        StrataStr text = TEXT("entry called");
        log_line(log_context, STRATA_LOG_LEVEL_INFO, text);
    }
    result->abi = STRATA_ABI_VERSION;
    result->table = &table;
#ifdef FAULT_NULL_TABLE
    result->table = NULL;
#endif
#ifdef FAULT_CROOKED_TABLE
    result->table = (const StrataBackend *)((const char *)&table + 1);
#endif
#ifdef FAULT_MAJOR
    result->abi = table.abi = (STRATA_ABI_MAJOR + 1) << 16;
#endif
#ifdef FAULT_TABLE_ABI
    table.abi = STRATA_ABI_VERSION + 1;
#endif
#ifdef FAULT_MISMATCH
    result->table = NULL;
    result->abi = (STRATA_ABI_MAJOR + 3) << 16;
    return STRATA_STATUS_ABI_MISMATCH;
#endif
#ifdef FAULT_SHORT
    table.struct_size = offsetof(StrataBackend, program_run);
#endif
#ifdef FAULT_EMPTY
    table.struct_size = 0;
#endif
#ifdef FAULT_HOLE
    table.program_run = NULL;
#endif
#ifdef FAULT_SOME_EVENTS
    table.event_wait = NULL;
#endif
#ifdef FAULT_NAME
    StrataStr name = TEXT("somebody else");
    table.name = name;
#endif
#ifdef FAULT_REFUSE
    StrataStr reason = TEXT("libvendor.so.1 is not here");
    result->table = NULL;
    result->reason = reason;
    return STRATA_STATUS_DRIVER_MISSING;
#endif
#ifdef FAULT_NO_KERNELS
    StrataStr reason = TEXT("this build has no vendor compiler");
    result->table = NULL;
    result->reason = reason;
    return STRATA_STATUS_KERNELS_NOT_BUILT;
#endif
#ifdef FAULT_REFUSE_999
    result->table = NULL;
    return 999;
#endif
#ifdef FAULT_NOISE
    for (int i = 0; i < 20000; i++) {
        puts("a plugin that talks {\"stage\": \"too much\"} strata-probe-line {\"devices\": 7}");
    }
#endif
#ifdef FAULT_NO_NEWLINE
    fputs("a plugin that talks without an end of line", stdout);
    fflush(stdout);
#endif
    return STRATA_STATUS_OK + PULL_IN;
}
#endif
