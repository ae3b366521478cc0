// Which kernels a library for the processor has: strata-kernel-build writes one table a source behind the source's own text, and the
// linker lays the tables one after another. For host_runtime.cc.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct strata_host_entry {
    const char *name;
    // Bytes of the argument struct.
    size_t n_params;
    // Work-items of a block, at most.
    uint32_t most_items;
    // Calls the kernel with a copy of the struct.
    void (*call)(const void *params);
};

template <class Params> struct strata_host_caller {
    template <void (*KERNEL_)(Params)> static void call(const void *params) {
        Params copy;
        memcpy(&copy, params, sizeof copy);
        KERNEL_(copy);
    }
};
template <class Params> constexpr size_t strata_host_size(void (*)(Params)) { return sizeof(Params); }
template <class Params> strata_host_caller<Params> strata_host_caller_of(void (*)(Params));
#define STRATA_HOST_ENTRY(kernel, items) \
    { #kernel, strata_host_size(kernel), items, decltype(strata_host_caller_of(kernel))::template call<kernel> }
#define STRATA_HOST_TABLE __attribute__((section("strata_entries"), used)) static const strata_host_entry

extern "C" const strata_host_entry __start_strata_entries[] __attribute__((visibility("hidden")));
extern "C" const strata_host_entry __stop_strata_entries[] __attribute__((visibility("hidden")));
