// Decode products over bytes for every quantised format, 1 column(s) a block: see mmv.h.
// GEOMETRY mmv_*_t1 cols=1 block=128 shared=4*rows*cols*ceil(k/256)*(act>=0?2:1)
#include "mmv.h"

#define MMV(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 4) mmv_##name##_t1(MatMulArgs args) { mmv<F, 1>(args); }
EACH_FORMAT(MMV)
