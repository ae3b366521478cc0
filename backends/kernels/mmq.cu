// Products of many columns on NVIDIA's tensor cores, for every quantised format: see mmq.h. NVIDIA (from sm_80); empty for AMD.
// GEOMETRY mmq_* rows=128 cols=64 block=256 shared=106576
// GEOMETRY moeq_* rows=128 cols=64 block=256 shared=106576
#include "mmq.h"

#if !defined(STRATA_AMD)
static_assert(sizeof(Tile) == 106576, "the launch's shared memory");
#define MMQ(name, F) \
    KERNEL LAUNCH_BOUNDS(256, 2) mmq_##name(MatMulArgs args) { mmq<F>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 2) moeq_##name(ExpertArgs args) { moeq<F>(args); }
EACH_FORMAT(MMQ)
#endif
