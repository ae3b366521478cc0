// What a library of these kernels compiled for the host exports: the software HIP device calls it, and the tests that compare
// kernels with the scalar oracle may. One library a wave width, `libstrata_kernels_wave32.so` and `libstrata_kernels_wave64.so`,
// made by strata-kernel-build out of the same .cu files that the cards' code objects are made of.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strata_host_result {
    STRATA_HOST_DONE = 0,
    // No kernel of this name.
    STRATA_HOST_NO_KERNEL = 1,
    // `n_params` is not the size of the kernel's argument struct.
    STRATA_HOST_WRONG_PARAMS = 2,
    // More work-items than the kernel's launch bounds, or more shared memory than a block may have.
    STRATA_HOST_WRONG_SHAPE = 3,
    // Work-items of one block waited for each other in different places.
    STRATA_HOST_DEADLOCK = 4,
};

// Lanes of a wave, 32 or 64.
uint32_t strata_host_wave(void);

// A kernel of the library.
struct strata_host_kernel {
    const char *name;
    // Bytes of the argument struct.
    size_t n_params;
    // Work-items of a block, at most.
    uint32_t most_items;
};
// How many there are, and where: they stay there.
size_t strata_host_kernels(const struct strata_host_kernel **kernels);

// Runs a whole grid and returns when it is done. `params` is the one argument struct, `shared` the bytes of dynamic shared memory
// beside what the kernel declares. Addresses in the struct are addresses of the host. May be called from one thread at a time.
int strata_host_launch(const char *kernel, const uint32_t grid[3], uint32_t block, uint32_t shared, const void *params, size_t n_params);

// What was wrong with the last launch, a sentence; empty when nothing was. Until the next one.
const char *strata_host_message(void);

// In which order work-items run between the places where they meet: 0 rising (at first), 1 falling, others mixed. A kernel whose
// result depends on it lacks a barrier.
void strata_host_order(uint32_t order);

#ifdef __cplusplus
}
#endif
