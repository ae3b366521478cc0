// Decode products over bytes for every quantised format, 4 column(s) a block: see mmv.h.
// GEOMETRY mmv_*_t4 cols=4 block=128 shared=4*rows*cols*ceil(k/256)*(act>=0?2:1)
#include "mmv.h"

#define MMV(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 3) mmv_##name##_t4(MatMulArgs args) { mmv<F, 4>(args); }
EACH_FORMAT(MMV)
