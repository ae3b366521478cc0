// A stand-in for NVIDIA's driver library, for tests on machines without a card: memory is the host's, copies are done at once,
// kernels are counted and not run, and any call can be told to fail. It has one card, or as many as it is told.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct { char call[64]; int code, after; } failures[8];
static int n_failures, n_devices = 1, version = 13000, major = 9, minor = 0, capturing, n_recorded, n_launches, n_replays, n_live;
static size_t total = 1u << 30, used, sizes[4096];
static void *blocks[4096];

// Told by the tests.
EXPORT void standin_fail(const char *call, int code, int after) {
    snprintf(failures[n_failures].call, sizeof failures[0].call, "%s", call);
    failures[n_failures].code = code;
    failures[n_failures++].after = after;
}
EXPORT void standin_set(const char *what, long value) {
    if (!strcmp(what, "devices")) n_devices = (int)value;
    if (!strcmp(what, "version")) version = (int)value;
    if (!strcmp(what, "major")) major = (int)value;
    if (!strcmp(what, "minor")) minor = (int)value;
    if (!strcmp(what, "total")) total = (size_t)value;
}
EXPORT long standin_get(const char *what) {
    if (!strcmp(what, "launches")) return n_launches;
    if (!strcmp(what, "recorded")) return n_recorded;
    if (!strcmp(what, "replays")) return n_replays;
    if (!strcmp(what, "live")) return n_live;
    return -1;
}

static int failed(const char *call) {
    for (int i = 0; i < n_failures; i++)
        if (!strcmp(failures[i].call, call) && failures[i].after-- <= 0) return failures[i].code;
    return 0;
}
#define CHECK() do { int code = failed(__func__); if (code) return code; } while (0)

EXPORT int cuInit(unsigned flags) { (void)flags; CHECK(); return 0; }
EXPORT int cuDriverGetVersion(int *out) { CHECK(); *out = version; return 0; }
EXPORT int cuDeviceGetCount(int *out) { CHECK(); *out = n_devices; return 0; }
EXPORT int cuDeviceGet(int *out, int ordinal) { CHECK(); *out = ordinal; return 0; }
EXPORT int cuDeviceGetName(char *out, int length, int device) { CHECK(); snprintf(out, (size_t)length, "Stand-in %d", device); return 0; }
EXPORT int cuDeviceGetUuid(uint8_t *out, int device) { CHECK(); memset(out, 0, 16); out[15] = (uint8_t)device; return 0; }
EXPORT int cuDeviceGetAttribute(int *out, int which, int device) {
    (void)device; CHECK();
    *out = which == 75 ? major : which == 76 ? minor : which == 16 ? 4 : 101376;
    return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *out, int device) { (void)device; CHECK(); *out = total; return 0; }
EXPORT int cuDevicePrimaryCtxRetain(void **out, int device) { CHECK(); *out = (void *)(intptr_t)(device + 1); return 0; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; CHECK(); return 0; }
EXPORT int cuCtxSetCurrent(void *context) { (void)context; CHECK(); return 0; }
EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) { CHECK(); *free_bytes = total - used; *total_bytes = total; return 0; }
EXPORT int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    CHECK();
    if (bytes > total - used) return 2;
    for (int i = 0; i < 4096; i++)
        if (!blocks[i]) {
            blocks[i] = aligned_alloc(256, (bytes + 255) / 256 * 256);
            memset(blocks[i], 0xAB, bytes);
            sizes[i] = bytes, used += bytes, n_live++;
            *out = (uint64_t)(uintptr_t)blocks[i];
            return 0;
        }
    return 2;
}
EXPORT int cuMemFree_v2(uint64_t address) {
    CHECK();
    for (int i = 0; i < 4096; i++)
        if (blocks[i] == (void *)(uintptr_t)address) {
            free(blocks[i]);
            blocks[i] = NULL, used -= sizes[i], n_live--;
            return 0;
        }
    return 1;
}
EXPORT int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) { (void)flags; CHECK(); *out = malloc(bytes); return 0; }
EXPORT int cuMemFreeHost(void *memory) { CHECK(); free(memory); return 0; }
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *out, void *memory, unsigned flags) { (void)flags; CHECK(); *out = (uint64_t)(uintptr_t)memory; return 0; }
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream) { (void)stream; CHECK(); memcpy((void *)(uintptr_t)to, from, n); return 0; }
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream) { (void)stream; CHECK(); memcpy(to, (void *)(uintptr_t)from, n); return 0; }
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream) { (void)stream; CHECK(); memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n); return 0; }
EXPORT int cuMemsetD8Async(uint64_t to, uint8_t value, size_t n, void *stream) { (void)stream; CHECK(); memset((void *)(uintptr_t)to, value, n); return 0; }
EXPORT int cuStreamCreate(void **out, unsigned flags) { (void)flags; CHECK(); *out = (void *)(intptr_t)7; return 0; }
EXPORT int cuStreamDestroy_v2(void *stream) { (void)stream; CHECK(); return 0; }
EXPORT int cuStreamSynchronize(void *stream) { (void)stream; CHECK(); return 0; }
EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream; (void)mode; CHECK(); capturing = 1, n_recorded = 0; return 0; }
EXPORT int cuStreamEndCapture(void *stream, void **graph) { (void)stream; CHECK(); capturing = 0; *graph = (void *)(intptr_t)9; return 0; }
EXPORT int cuGraphInstantiateWithFlags(void **out, void *graph, uint64_t flags) { (void)graph; (void)flags; CHECK(); *out = (void *)(intptr_t)10; return 0; }
EXPORT int cuGraphDestroy(void *graph) { (void)graph; CHECK(); return 0; }
EXPORT int cuGraphLaunch(void *graph, void *stream) { (void)graph; (void)stream; CHECK(); n_replays++; return 0; }
EXPORT int cuGraphExecDestroy(void *graph) { (void)graph; CHECK(); return 0; }
EXPORT int cuEventCreate(void **out, unsigned flags) { (void)flags; CHECK(); *out = (void *)(intptr_t)11; return 0; }
EXPORT int cuEventRecord(void *event, void *stream) { (void)event; (void)stream; CHECK(); return 0; }
EXPORT int cuEventSynchronize(void *event) { (void)event; CHECK(); return 0; }
EXPORT int cuEventQuery(void *event) { (void)event; CHECK(); return 0; }
EXPORT int cuEventDestroy_v2(void *event) { (void)event; CHECK(); return 0; }
EXPORT int cuModuleLoadData(void **out, const void *image) { (void)image; CHECK(); *out = (void *)(intptr_t)12; return 0; }
EXPORT int cuModuleGetFunction(void **out, void *module, const char *name) { (void)module; (void)name; CHECK(); *out = (void *)(intptr_t)13; return 0; }
EXPORT int cuFuncSetAttribute(void *function, int which, int value) { (void)function; (void)which; (void)value; CHECK(); return 0; }
EXPORT int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)params, (void)extra;
    CHECK();
    if (capturing) n_recorded++; else n_launches++;
    return 0;
}
EXPORT int cuGetErrorName(int code, const char **out) { *out = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR"; return 0; }
#ifndef WITHOUT_ERROR_STRING
EXPORT int cuGetErrorString(int code, const char **out) { (void)code; *out = "as the test asked"; return 0; }
#endif
