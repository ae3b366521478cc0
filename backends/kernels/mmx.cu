// Exact products for every weight format, four columns a block: see mmx.h.
// GEOMETRY mmx_* cols=4 block=128 shared=4*rows*cols*ceil(k/256)*(act>=0?2:1)
#include "mmx.h"

#define MMX(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 1) mmx_##name(MatMulArgs args) { mmx<F, 4>(args); }
EACH_FORMAT(MMX) MMX(f32, F32) MMX(f16, F16) MMX(bf16, BF16)
