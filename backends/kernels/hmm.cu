// Long runs over halves for the formats of halves.h: see hmm.h. NVIDIA (from sm_80); empty for AMD.
#include "hmm.h"

#if !defined(STRATA_AMD)
#define HMM(name, F) \
    KERNEL LAUNCH_BOUNDS(256, 1) hmm_##name(HalfArgs args) { hmm<F, 128>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 1) hmm_##name##_64(HalfArgs args) { hmm<F, 64>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 1) hmoem_##name(HalfExpertArgs args) { hmoem<F, 128>(args); } \
    KERNEL LAUNCH_BOUNDS(256, 1) hmoem_##name##_64(HalfExpertArgs args) { hmoem<F, 64>(args); }
EACH_HALF_FORMAT(HMM)
#endif
