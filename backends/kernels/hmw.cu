// Long runs over halves by warpgroups for the formats of halves.h: see hmw.h. Only for compute capability 9.0 (sm_90a), else empty.
#include "hmw.h"

#if defined(STRATA_WARPGROUP)
#define HMW(name, F) \
    KERNEL LAUNCH_BOUNDS(384, 1) hmw_##name(HalfArgs args) { hmw<F>(args); } \
    KERNEL LAUNCH_BOUNDS(384, 1) hmoew_##name(HalfExpertArgs args) { hmoew<F>(args); }
EACH_HALF_FORMAT(HMW)
#endif
