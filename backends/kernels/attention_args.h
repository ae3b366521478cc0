// The arguments of attention over pages: attention.cu and attention_dot.cu.
#pragma once
#include "prelude.h"

struct AttentionArgs {
    float *out;
    const float *q;
    const void *k;
    const void *v;
    const i32 *pages;
    const i32 *sequence;
    const i32 *position;
    const float *sinks;
    i64 out_nb[2];
    i64 q_nb[2];
    i64 k_nb[2];
    i64 v_nb[2];
    i64 pages_nb;
    // Query heads of one kv head.
    i32 share;
    i32 d;
    i32 dv;
    i32 page_bits;
    i32 window;
    i32 k_type;
    i32 v_type;
    float scale;
    float cap;
};
