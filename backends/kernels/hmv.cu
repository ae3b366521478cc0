// Decode products over halves for the formats of halves.h: see hmv.h. NVIDIA (from sm_80); empty for AMD.
#include "hmv.h"

#if !defined(STRATA_AMD)
#define HMV(name, F) \
    KERNEL LAUNCH_BOUNDS(256, 2) hmv_##name(HalfArgs args) { hmv<F>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 2) hmoev_##name(HalfExpertArgs args) { hmoev<F>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 2) hmoec_##name(HalfExpertArgs args) { hmoec<F>(args); }
EACH_HALF_FORMAT(HMV)
#endif
