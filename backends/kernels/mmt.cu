// AMD's products of many columns for every quantised format: see mmt.h. Empty for NVIDIA, whose twin is mmq.cu.
// GEOMETRY mmt_* rows=64 cols=64 block=256 shared=0
// GEOMETRY moet_* rows=64 cols=64 block=256 shared=0
#include "mmt.h"

#if defined(STRATA_AMD)
#define MMT(name, F) \
    KERNEL LAUNCH_BOUNDS(256, 1) mmt_##name(MatMulArgs args) { mmt<F>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 1) moet_##name(ExpertArgs args) { moet<F>(args); }
EACH_FORMAT(MMT)
#endif
