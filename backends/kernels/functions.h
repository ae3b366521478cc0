// Functions of one float with a known error, without any vendor's device library: each is within four units in the last place
// over its whole range, since the conformance kit judges them relative to the result. Not fast forms: see `exp2_fast`.
// Included by elementwise.cu, norm.cu, attention.cu and the fma32 kernels.
#pragma once
#include "prelude.h"

// Groups of 32 lanes, also where a wave has 64.
constexpr u32 LANES = 32;
DEVICE u32 lane32() { return tid() % LANES; }
DEVICE u32 group() { return tid() / LANES; }
DEVICE float sum32(float x) { return group_sum(x, LANES); }
DEVICE float greatest32(float x) { return group_max(x, LANES); }

// Sum over a block of at most 1024 threads; `room` has 32 floats and may be used again after the call.
DEVICE float block_sum(float x, float *room) {
    x = sum32(x);
    if (bdim() <= LANES) return x;
    if (lane32() == 0) room[group()] = x;
    barrier();
    u32 n = bdim() / LANES;
    float all = room[0];
    for (u32 i = 1; i < n; i++) all = add32(all, room[i]);
    barrier();
    return all;
}
DEVICE float block_max(float x, float *room) {
    x = greatest32(x);
    if (bdim() <= LANES) return x;
    if (lane32() == 0) room[group()] = x;
    barrier();
    u32 n = bdim() / LANES;
    float all = room[0];
    for (u32 i = 1; i < n; i++) all = max32(all, room[i]);
    barrier();
    return all;
}

constexpr float LN_2 = 0.693147180559945309f;

// ln(1 + x) for x >= 0, by the series of atanh after taking the exponent apart.
DEVICE float log1p_of(float x) {
    if (x < 0.5f) {
        // ln(1+x) = 2 atanh(x / (2 + x))
        float s = div32(x, 2.0f + x), z = s * s;
        float p = fma32(z, fma32(z, fma32(z, fma32(z, 1.0f / 9, 1.0f / 7), 0.2f), 1.0f / 3), 0.0f);
        return 2.0f * fma32(s, p, s);
    }
    float y = 1.0f + x;
    u32 bits = bits_of(y);
    i32 e = (i32)(bits >> 23) - 127;
    float m = float_of((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        e += 1;
    }
    float s = div32(m - 1.0f, m + 1.0f), z = s * s;
    float p = fma32(z, fma32(z, fma32(z, fma32(z, 1.0f / 9, 1.0f / 7), 0.2f), 1.0f / 3), 0.0f);
    return fma32((float)e, LN_2, 2.0f * fma32(s, p, s));
}

DEVICE float sigmoid_of(float x) { return div32(1.0f, 1.0f + exp32(-x)); }
DEVICE float silu_of(float x) { return div32(x, 1.0f + exp32(-x)); }

DEVICE float tanh_of(float x) {
    float a = abs32(x);
    if (a < 0.5f) {
        // Continued fraction of tanh, cut where the next term is below a unit in the last place.
        float z = x * x;
        float t = 11.0f + div32(z, 13.0f);
        t = 9.0f + div32(z, t);
        t = 7.0f + div32(z, t);
        t = 5.0f + div32(z, t);
        t = 3.0f + div32(z, t);
        return div32(x, 1.0f + div32(z, t));
    }
    float t = 1.0f - div32(2.0f, 1.0f + exp32(2.0f * a));
    return x < 0 ? -t : t;
}

DEVICE float softplus_of(float x) { return max32(x, 0.0f) + log1p_of(exp32(-abs32(x))); }

// 0.5·(1 + tanh u) = sigmoid(2u), which does not cancel.
DEVICE float gelu_tanh_of(float x) {
    float u = 0.797884560802865f * fma32(0.044715f * x * x, x, x);
    return x * sigmoid_of(2.0f * u);
}

// erfc(x) for x >= 0: a series near 0, Lentz' continued fraction beyond.
DEVICE float erfc_positive(float x) {
    if (x < 2.0f) {
        // erf(x) = 2x/√π · e^(-x²) · Σ (2x²)^n / (2n+1)!!
        float z = 2.0f * x * x, term = 1.0f, sum = 1.0f;
        for (i32 n = 1; n < 40; n++) {
            term *= div32(z, (float)(2 * n + 1));
            sum += term;
        }
        return 1.0f - 1.12837916709551257f * x * exp32(-x * x) * sum;
    }
    float f = x;
    for (i32 n = 24; n >= 1; n--) f = x + div32(0.5f * (float)n, f);
    return div32(exp32(-x * x) * 0.564189583547756287f, f);
}
DEVICE float gelu_erf_of(float x) {
    float a = abs32(x) * 0.707106781186547524f;
    float tail = erfc_positive(a);
    return 0.5f * x * (x < 0 ? tail : 2.0f - tail);
}

// StrataActivation
DEVICE float gated(i32 activation, float gate, float up, float f0, float f1) {
    switch (activation) {
    case 0: return silu_of(gate) * up;
    case 1: return gelu_tanh_of(gate) * up;
    case 2: return gelu_erf_of(gate) * up;
    case 3: {
        float positive = gate < 0 ? 0.0f : gate;
        return positive * positive * up;
    }
    default: {
        float clamped = gate > f0 ? f0 : gate;
        float limited = up > f0 ? f0 : up;
        limited = limited < -f0 ? -f0 : limited;
        return div32(clamped, 1.0f + exp32(-f1 * clamped)) * (limited + 1.0f);
    }
    }
}

// StrataUnary
DEVICE float unary_of(i32 function, float x, float f0) {
    switch (function) {
    case 0: return silu_of(x);
    case 1: return gelu_tanh_of(x);
    case 2: return sigmoid_of(x);
    case 3: return tanh_of(x);
    case 4: return softplus_of(x);
    case 5: return exp32(x);
    default: return f0 * tanh_of(div32(x, f0));
    }
}
