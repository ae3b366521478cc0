// Elementwise ops: Add, Mul, Glu, Scale, Unary, Copy. Views of up to four dimensions, rows contiguous, anything else strided.
//
// Launch: grid (ceil(ne0 / 256), min(rows, 65535)), 256 threads; rows beyond the grid are walked in a loop. No alignment beyond the
// element's. Matches the scalar ops of the ABI to the last roundings (docs/CONFORMANCE.md, 3 to 16 units). Plain on purpose:
// decoding fuses these into its products, so this file is for what is left over.
#include "functions.h"

struct ElementArgs {
    void *out;
    const void *a;
    const void *b;
    i64 out_nb[3];
    i64 a_nb[3];
    i64 b_nb[3];
    i32 ne[4];
    // Elements from one element of b to the next: 0 where it is one for the whole row.
    i32 b_step;
    // What to compute: see the kernels.
    i32 which;
    // StrataDType of a and of the result, for Copy.
    i32 a_type;
    i32 out_type;
    float f0;
    float f1;
};

// Of the launch's second dimension when there are so many.
constexpr u32 ROWS_AT_ONCE = 65535;

DEVICE i64 row_offset(const i64 *nb, const i32 *ne, u32 row) {
    u32 i1 = row % (u32)ne[1], rest = row / (u32)ne[1];
    return nb[0] * i1 + nb[1] * (rest % (u32)ne[2]) + nb[2] * (rest / (u32)ne[2]);
}

// which: 0 a + f0·b, 1 a·b, 2 + n: activation n of a, times b.
KERNEL LAUNCH_BOUNDS(256, 1) binary(ElementArgs args) {
    grid_release();
    grid_wait();
    u32 i = bid_x() * 256 + tid();
    if (i >= (u32)args.ne[0]) return;
    u32 rows = (u32)(args.ne[1] * args.ne[2] * args.ne[3]);
    for (u32 row = bid_y(); row < rows; row += ROWS_AT_ONCE) {
        float a = ((const float *)((const char *)args.a + row_offset(args.a_nb, args.ne, row)))[i];
        float b = ((const float *)((const char *)args.b + row_offset(args.b_nb, args.ne, row)))[i * args.b_step];
        float y = args.which == 0 ? a + args.f0 * b : args.which == 1 ? a * b : gated(args.which - 2, a, b, args.f0, args.f1);
        ((float *)((char *)args.out + row_offset(args.out_nb, args.ne, row)))[i] = y;
    }
}

// which: 0 f0·x + f1, 1 + n: function n.
KERNEL LAUNCH_BOUNDS(256, 1) unary(ElementArgs args) {
    grid_release();
    grid_wait();
    u32 i = bid_x() * 256 + tid();
    if (i >= (u32)args.ne[0]) return;
    u32 rows = (u32)(args.ne[1] * args.ne[2] * args.ne[3]);
    for (u32 row = bid_y(); row < rows; row += ROWS_AT_ONCE) {
        float x = ((const float *)((const char *)args.a + row_offset(args.a_nb, args.ne, row)))[i];
        float y = args.which == 0 ? x * args.f0 + args.f1 : unary_of(args.which - 1, x, args.f0);
        ((float *)((char *)args.out + row_offset(args.out_nb, args.ne, row)))[i] = y;
    }
}

// Types 0 F32, 1 F16, 30 BF16. Equal types move bits, so that no NaN changes.
KERNEL LAUNCH_BOUNDS(256, 1) copy(ElementArgs args) {
    grid_release();
    grid_wait();
    u32 i = bid_x() * 256 + tid();
    if (i >= (u32)args.ne[0]) return;
    u32 rows = (u32)(args.ne[1] * args.ne[2] * args.ne[3]);
    for (u32 row = bid_y(); row < rows; row += ROWS_AT_ONCE) {
        const char *from = (const char *)args.a + row_offset(args.a_nb, args.ne, row);
        char *to = (char *)args.out + row_offset(args.out_nb, args.ne, row);
        if (args.a_type == args.out_type) {
            if (args.a_type == 0) ((u32 *)to)[i] = ((const u32 *)from)[i];
            else ((u16 *)to)[i] = ((const u16 *)from)[i];
            continue;
        }
        float x = args.a_type == 0   ? ((const float *)from)[i]
                  : args.a_type == 1 ? half_to_float(((const u16 *)from)[i])
                                     : bf16_to_float(((const u16 *)from)[i]);
        if (args.out_type == 0) ((float *)to)[i] = x;
        else ((u16 *)to)[i] = args.out_type == 1 ? float_to_half(x) : float_to_bf16(x);
    }
}
