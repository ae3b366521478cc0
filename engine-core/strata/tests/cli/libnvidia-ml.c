/* A stand-in for NVIDIA's management library. The variable STANDIN says how it behaves. Two cards, the first
   divided into slices. */
#include <stdlib.h>
#include <string.h>

typedef int result;
static int is(const char *what) {
    const char *how = getenv("STANDIN");
    return how && strcmp(how, what) == 0;
}

result nvmlInit_v2(void) {
    if (is("mismatch")) return 18;
    if (is("crash")) abort();
    if (is("hang")) for (;;) {}
    return 0;
}
result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(result code) { return code == 18 ? "Driver/library version mismatch" : "GPU is lost"; }
static result put(char *text, unsigned length, const char *value) {
    if (length < strlen(value) + 1) return 7;
    if (is("endless")) memset(text, 'x', length);
    else strcpy(text, value);
    return 0;
}
result nvmlSystemGetDriverVersion(char *text, unsigned length) { return put(text, length, "570.86.15"); }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = is("many") ? 4000000000u : 2; return 0; }

static int cards[2], slice;
result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (is("lost") && index == 1) return 15;
    *handle = &cards[index % 2];
    return 0;
}
result nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
    *handle = &cards[strstr(address, "02:00.0") ? 1 : 0];
    return 0;
}
result nvmlDeviceGetUUID(void *card, char *text, unsigned length) {
    return put(text, length, card == &slice ? "MIG-5" : card == &cards[0] ? "GPU-1" : "GPU-2");
}
result nvmlDeviceGetName(void *card, char *text, unsigned length) {
    return put(text, length, card == &slice ? "NVIDIA Example MIG 3g.20gb" : "NVIDIA Example");
}
struct memory { unsigned long long total, free, used; };
result nvmlDeviceGetMemoryInfo(void *card, struct memory *memory) {
    if (is("unified")) return 3;
    memory->total = card == &slice ? 20000000000ull : 40000000000ull;
    memory->free = 10000000000ull;
    memory->used = memory->total - memory->free;
    return 0;
}
result nvmlDeviceGetCudaComputeCapability(void *card, int *major, int *minor) {
    *major = card == &cards[0] ? 8 : 12;
    *minor = 0;
    return 0;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
result nvmlDeviceGetPciInfo_v3(void *card, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, card == &cards[0] ? "00000000:01:00.0" : "00000000:02:00.0");
    return 0;
}
#ifndef OLD_DRIVER
result nvmlDeviceGetDisplayActive(void *card, unsigned *active) { *active = card == &cards[1]; return 0; }
result nvmlDeviceGetMaxMigDeviceCount(void *card, unsigned *count) { *count = card == &cards[0] ? 7 : 0; return 0; }
result nvmlDeviceGetMigDeviceHandleByIndex(void *card, unsigned index, void **handle) {
    (void)card;
    if (index != 2) return 6;
    *handle = &slice;
    return 0;
}
#endif
