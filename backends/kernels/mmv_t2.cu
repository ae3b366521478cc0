// Decode products over bytes for every quantised format, 2 column(s) a block: see mmv.h.
// GEOMETRY mmv_*_t2 cols=2 block=128 shared=4*rows*cols*ceil(k/256)*(act>=0?2:1)
#include "mmv.h"

#define MMV(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 4) mmv_##name##_t2(MatMulArgs args) { mmv<F, 2>(args); }
EACH_FORMAT(MMV)
