// Decode products over bytes for every quantised format, 8 column(s) a block: see mmv.h.
// GEOMETRY mmv_*_t8 cols=8 block=128 shared=4*rows*cols*ceil(k/256)*(act>=0?2:1)
#include "mmv.h"

#define MMV(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 3) mmv_##name##_t8(MatMulArgs args) { mmv<F, 8>(args); }
EACH_FORMAT(MMV)
