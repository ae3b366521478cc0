// A whole backend plugin in C: one device, a handful of ops on F32, the plainest way.
//
// It proves that include/strata_backend.h is enough to write one: a test compiles this file with
// -std=c11 -Wall -Wextra -Werror, loads it and runs programs. It is also the place to look when a
// plugin is written in another language. It is not fast and is in no package.
//
// What it leaves out it leaves null: device_report, buffer_import, program_info and the events.

#include "layout_asserts.h"
#include "strata_backend.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef C_DEMO_VERSION
#define C_DEMO_VERSION "0.0.0"
#endif

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }
#define ABI_LOWEST (STRATA_ABI_MAJOR << 16)

// All the memory that this device gives out, so that "out of memory" can be met.
#define DEVICE_BYTES (UINT64_C(1) << 30)

// The host's number for this plugin; every handle carries it.
static uint64_t instance;

// ---- Texts, structs and handles

static _Thread_local char error_text[256];

__attribute__((format(printf, 2, 3)))
static int32_t fail(int32_t status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return status;
}

// The caller gives the place; the whole length tells it when the text was cut.
static void put_text(struct StrataTextOut *out, const char *text) {
    if (out == NULL) {
        return;
    }
    size_t whole = strlen(text);
    if (out->data != NULL) {
        memcpy(out->data, text, whole < out->capacity ? whole : (size_t)out->capacity);
    }
    out->len = whole;
}

// Reads a struct of the host's: a longer one is cut, the missing tail of a shorter one is zero.
static void read_struct(void *target, uint32_t known, const void *source) {
    uint32_t size;
    memcpy(&size, source, sizeof size);
    memset(target, 0, known);
    memcpy(target, source, size < known ? size : known);
}

// Fills in a struct of the host's, no further than the host knows it, its size field left alone.
static void write_struct(void *target, const void *source, uint32_t known) {
    uint32_t size;
    memcpy(&size, target, sizeof size);
    if (size > known) {
        size = known;
    }
    if (size > sizeof size) {
        memcpy((char *)target + sizeof size, (const char *)source + sizeof size, size - sizeof size);
    }
}

// The host checks handles before it passes them, so an address will do as a number.
static struct StrataHandle handle_of(const void *object) {
    struct StrataHandle handle = { instance, (uint64_t)(uintptr_t)object };
    return handle;
}

static void *object_of(struct StrataHandle handle) {
    return (void *)(uintptr_t)handle.id;
}

struct device {
    uint64_t used;
    struct resource *first;
};

// A buffer or a program: closing a device frees what is still on it.
struct resource {
    struct device *device;
    struct resource *next;
    uint64_t bytes; // counted as used
    void *memory;
    struct program *program; // NULL for a buffer
};

struct program {
    struct StrataTensor *tensors;
    struct StrataOp *ops;
    unsigned char **bases; // start of each buffer
    uint32_t n_ops;
};

static void free_program(struct program *program) {
    free(program->tensors);
    free(program->ops);
    free(program->bases);
    free(program);
}

static struct resource *new_resource(struct device *device) {
    struct resource *resource = calloc(1, sizeof *resource);
    if (resource != NULL) {
        resource->device = device;
        resource->next = device->first;
        device->first = resource;
    }
    return resource;
}

static void free_resource(struct resource *resource) {
    struct resource **link = &resource->device->first;
    while (*link != resource) {
        link = &(*link)->next;
    }
    *link = resource->next;
    resource->device->used -= resource->bytes;
    free(resource->memory);
    if (resource->program != NULL) {
        free_program(resource->program);
    }
    free(resource);
}

// ---- Devices

static void last_error(struct StrataTextOut *out) {
    put_text(out, error_text);
}

static int32_t device_count(uint32_t *count) {
    *count = 1;
    return STRATA_STATUS_OK;
}

static int32_t device_info(uint32_t index, struct StrataDeviceInfo *out) {
    static const struct StrataDeviceInfo info = {
        .struct_size = sizeof info,
        .kind = STRATA_DEVICE_KIND_CPU,
        .flags = STRATA_DEVICE_HOST_MEMORY,
        .name = TEXT("the plainest loops"),
        .arch = TEXT("c11"),
        .uid = TEXT("c-demo"),
        .memory_total = DEVICE_BYTES,
        .memory_free = DEVICE_BYTES,
    };
    if (index != 0) {
        return fail(STRATA_STATUS_NO_DEVICE, "there is no device %u, only 0", (unsigned)index);
    }
    write_struct(out, &info, sizeof info);
    return STRATA_STATUS_OK;
}

static int32_t device_open(uint32_t index, const struct StrataDeviceOptions *options, struct StrataHandle *out) {
    (void)options;
    if (index != 0) {
        return fail(STRATA_STATUS_NO_DEVICE, "there is no device %u, only 0", (unsigned)index);
    }
    struct device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "no memory for a device");
    }
    *out = handle_of(device);
    return STRATA_STATUS_OK;
}

static int32_t device_close(struct StrataHandle handle) {
    struct device *device = object_of(handle);
    while (device->first != NULL) {
        free_resource(device->first);
    }
    free(device);
    return STRATA_STATUS_OK;
}

static int32_t device_memory(struct StrataHandle handle, struct StrataMemoryInfo *out) {
    const struct device *device = object_of(handle);
    struct StrataMemoryInfo info = {
        .struct_size = sizeof info,
        .total = DEVICE_BYTES,
        .free = DEVICE_BYTES - device->used,
        .used_here = device->used,
    };
    write_struct(out, &info, sizeof info);
    return STRATA_STATUS_OK;
}

static int32_t synchronize(struct StrataHandle device) {
    (void)device; // every run is done when it returns
    return STRATA_STATUS_OK;
}

// ---- Buffers

static int32_t buffer_alloc(struct StrataHandle handle, const struct StrataBufferDesc *source, struct StrataHandle *out) {
    struct device *device = object_of(handle);
    struct StrataBufferDesc desc;
    read_struct(&desc, sizeof desc, source);
    if (desc.bytes > DEVICE_BYTES - device->used) {
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "%.*s needs %llu bytes, %llu are left", (int)desc.label.len,
                    (const char *)desc.label.data, (unsigned long long)desc.bytes,
                    (unsigned long long)(DEVICE_BYTES - device->used));
    }
    // aligned_alloc wants a whole number of alignments, and a buffer of nothing still wants an address.
    size_t units = (size_t)(desc.bytes / STRATA_BUFFER_ALIGNMENT) + 1;
    struct resource *buffer = new_resource(device);
    if (buffer == NULL) {
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "no memory for a buffer");
    }
    buffer->memory = aligned_alloc(STRATA_BUFFER_ALIGNMENT, units * STRATA_BUFFER_ALIGNMENT);
    if (buffer->memory == NULL) {
        free_resource(buffer);
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "the system has no %llu bytes", (unsigned long long)desc.bytes);
    }
    buffer->bytes = desc.bytes;
    device->used += desc.bytes;
    *out = handle_of(buffer);
    return STRATA_STATUS_OK;
}

static int32_t buffer_free(struct StrataHandle buffer) {
    free_resource(object_of(buffer));
    return STRATA_STATUS_OK;
}

static int32_t buffer_write(struct StrataHandle handle, uint64_t offset, const void *data, uint64_t bytes) {
    const struct resource *buffer = object_of(handle);
    if (bytes > 0) {
        memcpy((char *)buffer->memory + offset, data, (size_t)bytes);
    }
    return STRATA_STATUS_OK;
}

static int32_t buffer_read(struct StrataHandle handle, uint64_t offset, void *data, uint64_t bytes) {
    const struct resource *buffer = object_of(handle);
    if (bytes > 0) {
        memcpy(data, (const char *)buffer->memory + offset, (size_t)bytes);
    }
    return STRATA_STATUS_OK;
}

static int32_t buffer_copy(struct StrataHandle target, uint64_t target_offset, struct StrataHandle source,
                           uint64_t source_offset, uint64_t bytes) {
    const struct resource *to = object_of(target), *from = object_of(source);
    memcpy((char *)to->memory + target_offset, (const char *)from->memory + source_offset, (size_t)bytes);
    return STRATA_STATUS_OK;
}

static int32_t buffer_map(struct StrataHandle buffer, void **out) {
    *out = ((const struct resource *)object_of(buffer))->memory;
    return STRATA_STATUS_OK;
}

// ---- Ops

// A view with its extents in this run.
struct view {
    unsigned char *data;
    uint64_t ne[STRATA_MAX_DIMS];
    uint64_t nb[STRATA_MAX_DIMS];
};

static struct view view_of(const struct program *program, uint32_t tensor_index, const int64_t *scalars) {
    const struct StrataTensor *tensor = &program->tensors[tensor_index];
    struct view view = { .data = program->bases[tensor->buffer] + tensor->offset };
    for (int dim = 0; dim < STRATA_MAX_DIMS; dim++) {
        uint32_t scalar = tensor->dynamic[dim];
        view.ne[dim] = scalar == 0 ? tensor->ne[dim] : (uint64_t)scalars[scalar - 1];
        view.nb[dim] = tensor->nb[dim];
    }
    return view;
}

// Row i of the three outer dimensions, counted through, or broadcast where the view has only one.
static float *row(const struct view *view, const uint64_t ne[STRATA_MAX_DIMS], uint64_t i) {
    uint64_t i1 = i % ne[1], i2 = i / ne[1] % ne[2], i3 = i / ne[1] / ne[2];
    uint64_t at = (view->ne[1] == 1 ? 0 : i1 * view->nb[1]) + (view->ne[2] == 1 ? 0 : i2 * view->nb[2]) +
                  (view->ne[3] == 1 ? 0 : i3 * view->nb[3]);
    return (float *)(void *)(view->data + at);
}

static uint64_t n_rows(const struct view *view) {
    return view->ne[1] * view->ne[2] * view->ne[3];
}

static void embedding_lookup(struct view out, struct view table, struct view ids, float factor) {
    for (uint64_t t = 0; t < out.ne[1]; t++) {
        int32_t id = ((const int32_t *)(const void *)ids.data)[t];
        const float *from = (const float *)(const void *)(table.data + (uint64_t)id * table.nb[1]);
        float *to = row(&out, out.ne, t);
        for (uint64_t i = 0; i < out.ne[0]; i++) {
            to[i] = from[i] * factor;
        }
    }
}

static void rms_norm(struct view out, struct view x, const float *weight, float epsilon) {
    for (uint64_t r = 0; r < n_rows(&out); r++) {
        const float *from = row(&x, out.ne, r);
        float *to = row(&out, out.ne, r);
        double sum = 0;
        for (uint64_t i = 0; i < out.ne[0]; i++) {
            sum += (double)from[i] * from[i];
        }
        double factor = 1 / sqrt(sum / (double)out.ne[0] + epsilon);
        for (uint64_t i = 0; i < out.ne[0]; i++) {
            double value = from[i] * factor;
            to[i] = (float)(weight == NULL ? value : value * weight[i]);
        }
    }
}

static void mat_mul(struct view out, struct view w, struct view x, const float *bias) {
    for (uint64_t t = 0; t < out.ne[1]; t++) {
        const float *from = row(&x, out.ne, t);
        float *to = row(&out, out.ne, t);
        for (uint64_t m = 0; m < out.ne[0]; m++) {
            const float *weights = (const float *)(const void *)(w.data + m * w.nb[1]);
            double sum = bias == NULL ? 0 : bias[m];
            for (uint64_t k = 0; k < w.ne[0]; k++) {
                sum += (double)weights[k] * from[k];
            }
            to[m] = (float)sum;
        }
    }
}

static void add(struct view out, struct view a, struct view b, float factor) {
    for (uint64_t r = 0; r < n_rows(&out); r++) {
        const float *from = row(&a, out.ne, r), *more = row(&b, out.ne, r);
        float *to = row(&out, out.ne, r);
        for (uint64_t i = 0; i < out.ne[0]; i++) {
            to[i] = from[i] + factor * more[b.ne[0] == 1 ? 0 : i];
        }
    }
}

static void copy(struct view out, struct view x) {
    for (uint64_t r = 0; r < n_rows(&out); r++) {
        memmove(row(&out, out.ne, r), row(&x, out.ne, r), (size_t)out.ne[0] * sizeof(float));
    }
}

static void run_op(const struct program *program, const struct StrataOp *op, const int64_t *scalars) {
    // Slots that the op does not use are never looked at.
    struct view operand[4] = { 0 };
    for (int slot = 0; slot < 4; slot++) {
        if (op->operand[slot] != STRATA_NO_OPERAND) {
            operand[slot] = view_of(program, op->operand[slot], scalars);
        }
    }
    switch (op->kind) {
    case STRATA_OP_KIND_EMBEDDING_LOOKUP:
        embedding_lookup(operand[0], operand[1], operand[2], op->f[0]);
        break;
    case STRATA_OP_KIND_RMS_NORM:
        rms_norm(operand[0], operand[1], (const float *)(void *)operand[2].data, op->f[0]);
        break;
    case STRATA_OP_KIND_MAT_MUL:
        mat_mul(operand[0], operand[1], operand[2], (const float *)(void *)operand[3].data);
        break;
    case STRATA_OP_KIND_ADD:
        add(operand[0], operand[1], operand[2], op->f[0]);
        break;
    case STRATA_OP_KIND_COPY:
        copy(operand[0], operand[1]);
        break;
    default: // program_compile let no other through
        abort();
    }
}

// ---- Programs

// Operands that each op has here, optional ones included; 0: the op is not here.
static int n_operands(uint32_t kind) {
    switch (kind) {
    case STRATA_OP_KIND_COPY:
        return 2;
    case STRATA_OP_KIND_EMBEDDING_LOOKUP:
    case STRATA_OP_KIND_RMS_NORM:
    case STRATA_OP_KIND_ADD:
        return 3;
    case STRATA_OP_KIND_MAT_MUL:
        return 4;
    default:
        return 0;
    }
}

// Writes why not into `reason`; empty means yes. An op kind, flag or operand slot of a later version
// is refused here, as is every format but F32.
static void why_not(const struct StrataTensor *tensors, const struct StrataOp *op, char *reason, size_t room) {
    int known = n_operands(op->kind);
    reason[0] = 0;
    if (known == 0) {
        snprintf(reason, room, "c-demo has no op of kind %u", (unsigned)op->kind);
        return;
    }
    if (op->flags != 0) {
        snprintf(reason, room, "c-demo knows no flags, not %#x", (unsigned)op->flags);
        return;
    }
    for (int slot = 0; slot < STRATA_MAX_OPERANDS; slot++) {
        if (op->operand[slot] == STRATA_NO_OPERAND) {
            continue;
        }
        uint32_t dtype = tensors[op->operand[slot]].dtype;
        int is_ids = op->kind == STRATA_OP_KIND_EMBEDDING_LOOKUP && slot == 2;
        if (slot >= known) {
            snprintf(reason, room, "c-demo knows no operand %d of op kind %u", slot, (unsigned)op->kind);
        } else if (dtype != (is_ids ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32)) {
            snprintf(reason, room, "c-demo computes in F32 only, operand %d has format %u", slot, (unsigned)dtype);
        }
    }
}

// Copies the description into our own memory: it is borrowed for the call. Elements lie at the
// writer's stride and may be longer than ours.
static struct program *read_program(const struct StrataProgramDesc *desc) {
    struct program *program = calloc(1, sizeof *program);
    if (program == NULL) {
        return NULL;
    }
    // One more than needed, so that a program without ops or buffers has addresses too.
    program->tensors = calloc((size_t)desc->n_tensors + 1, sizeof *program->tensors);
    program->ops = calloc((size_t)desc->n_ops + 1, sizeof *program->ops);
    program->bases = calloc((size_t)desc->n_buffers + 1, sizeof *program->bases);
    if (program->tensors == NULL || program->ops == NULL || program->bases == NULL) {
        free_program(program);
        return NULL;
    }
    for (uint32_t i = 0; i < desc->n_tensors; i++) {
        const char *source = (const char *)desc->tensors + (size_t)i * desc->tensor_stride;
        read_struct(&program->tensors[i], sizeof *program->tensors, source);
    }
    for (uint32_t i = 0; i < desc->n_ops; i++) {
        const char *source = (const char *)desc->ops + (size_t)i * desc->op_stride;
        read_struct(&program->ops[i], sizeof *program->ops, source);
    }
    program->n_ops = desc->n_ops;
    return program;
}

static int32_t op_supported(struct StrataHandle device, const struct StrataProgramDesc *source, uint32_t op_index,
                            struct StrataTextOut *reason) {
    (void)device;
    struct StrataProgramDesc desc;
    read_struct(&desc, sizeof desc, source);
    struct program *program = read_program(&desc);
    if (program == NULL) {
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "no memory for a program");
    }
    char text[128];
    why_not(program->tensors, &program->ops[op_index], text, sizeof text);
    free_program(program);
    put_text(reason, text);
    return text[0] == 0 ? STRATA_STATUS_OK : fail(STRATA_STATUS_UNSUPPORTED, "%s", text);
}

static int32_t program_compile(struct StrataHandle handle, const struct StrataProgramDesc *source,
                               struct StrataHandle *out) {
    struct StrataProgramDesc desc;
    read_struct(&desc, sizeof desc, source);
    struct program *program = read_program(&desc);
    if (program == NULL) {
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "no memory for a program");
    }
    for (uint32_t i = 0; i < desc.n_buffers; i++) {
        program->bases[i] = ((const struct resource *)object_of(desc.buffers[i]))->memory;
    }
    for (uint32_t i = 0; i < desc.n_ops; i++) {
        char text[128];
        why_not(program->tensors, &program->ops[i], text, sizeof text);
        if (text[0] != 0) {
            free_program(program);
            return fail(STRATA_STATUS_UNSUPPORTED, "op %u: %s", (unsigned)i, text);
        }
    }
    struct resource *resource = new_resource(object_of(handle));
    if (resource == NULL) {
        free_program(program);
        return fail(STRATA_STATUS_OUT_OF_MEMORY, "no memory for a program");
    }
    resource->program = program;
    *out = handle_of(resource);
    return STRATA_STATUS_OK;
}

static int32_t program_run(struct StrataHandle handle, const struct StrataRunArgs *source) {
    const struct program *program = ((const struct resource *)object_of(handle))->program;
    struct StrataRunArgs args;
    read_struct(&args, sizeof args, source);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        run_op(program, &program->ops[i], args.scalars);
    }
    return STRATA_STATUS_OK;
}

static int32_t program_free(struct StrataHandle program) {
    free_resource(object_of(program));
    return STRATA_STATUS_OK;
}

// ---- The table and the entry

static const struct StrataBackend table = {
    .struct_size = sizeof table,
    .abi = STRATA_ABI_VERSION,
    .name = TEXT("c-demo"),
    .version = TEXT(C_DEMO_VERSION),
    .last_error = last_error,
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .synchronize = synchronize,
    .op_supported = op_supported,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .buffer_copy = buffer_copy,
    .buffer_map = buffer_map,
    .program_compile = program_compile,
    .program_run = program_run,
    .program_free = program_free,
};

int32_t strata_backend_entry(const struct StrataEntryArgs *source, struct StrataEntryResult *result) {
    struct StrataEntryArgs args;
    read_struct(&args, sizeof args, source);
    struct StrataEntryResult answer = { .struct_size = sizeof answer, .abi = STRATA_ABI_VERSION };
    int32_t status = STRATA_STATUS_OK;
    // The lower of both highest versions is in force, if both still speak it. There is only one
    // minor so far; with more, `table.abi` and the calls would follow what is in force.
    uint32_t in_force = args.abi_highest < STRATA_ABI_VERSION ? args.abi_highest : STRATA_ABI_VERSION;
    if (in_force < args.abi_lowest || in_force < ABI_LOWEST) {
        static const struct StrataStr reason = TEXT("c-demo speaks ABI 1.0 only");
        answer.reason = reason;
        status = STRATA_STATUS_ABI_MISMATCH;
    } else {
        instance = args.instance;
        answer.abi = in_force;
        answer.table = &table;
    }
    write_struct(result, &answer, sizeof answer);
    return status;
}
