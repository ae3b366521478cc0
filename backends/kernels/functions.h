// Functions of one float with a known error, without any vendor's device library: each is within four units in the last place
// over its whole range, since the conformance kit judges them relative to the result. Not fast forms: see `exp2_fast`.
// Included by elementwise.cu, norm.cu, attention.cu and the fused kernels.
#pragma once
#include "prelude.h"

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.693147180559945309f;

// e^x: the exponent apart, the rest by 2^f with a small argument.
DEVICE float exp_of(float x) {
    if (x > 88.8f) return float_of(0x7f800000u);
    if (x < -104.0f) return 0.0f;
    float n = __builtin_rintf(x * LOG2_E);
    float r = fused(n, -0.693145751953125f, x);
    r = fused(n, -1.42860682030941723e-6f, r);
    float y = exp2_fast(r * LOG2_E);
    // In two steps, so that neither factor leaves the range of a float.
    i32 whole = (i32)n, first = whole / 2;
    return y * float_of((u32)(first + 127) << 23) * float_of((u32)(whole - first + 127) << 23);
}

// ln(1 + x) for x >= 0, by the series of atanh after taking the exponent apart.
DEVICE float log1p_of(float x) {
    if (x < 0.5f) {
        // ln(1+x) = 2 atanh(x / (2 + x))
        float s = divide(x, 2.0f + x), z = s * s;
        float p = fused(z, fused(z, fused(z, fused(z, 1.0f / 9, 1.0f / 7), 0.2f), 1.0f / 3), 0.0f);
        return 2.0f * fused(s, p, s);
    }
    float y = 1.0f + x;
    u32 bits = bits_of(y);
    i32 e = (i32)(bits >> 23) - 127;
    float m = float_of((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        e += 1;
    }
    float s = divide(m - 1.0f, m + 1.0f), z = s * s;
    float p = fused(z, fused(z, fused(z, fused(z, 1.0f / 9, 1.0f / 7), 0.2f), 1.0f / 3), 0.0f);
    return fused((float)e, LN_2, 2.0f * fused(s, p, s));
}

DEVICE float sigmoid_of(float x) { return divide(1.0f, 1.0f + exp_of(-x)); }
DEVICE float silu_of(float x) { return divide(x, 1.0f + exp_of(-x)); }

DEVICE float tanh_of(float x) {
    float a = absolute(x);
    if (a < 0.5f) {
        // Continued fraction of tanh, cut where the next term is below a unit in the last place.
        float z = x * x;
        float t = 11.0f + divide(z, 13.0f);
        t = 9.0f + divide(z, t);
        t = 7.0f + divide(z, t);
        t = 5.0f + divide(z, t);
        t = 3.0f + divide(z, t);
        return divide(x, 1.0f + divide(z, t));
    }
    float t = 1.0f - divide(2.0f, 1.0f + exp_of(2.0f * a));
    return x < 0 ? -t : t;
}

DEVICE float softplus_of(float x) { return maximum(x, 0.0f) + log1p_of(exp_of(-absolute(x))); }

// 0.5·(1 + tanh u) = sigmoid(2u), which does not cancel.
DEVICE float gelu_tanh_of(float x) {
    float u = 0.797884560802865f * fused(0.044715f * x * x, x, x);
    return x * sigmoid_of(2.0f * u);
}

// erfc(x) for x >= 0: a series near 0, where 1 - erf cancels little, a continued fraction beyond.
DEVICE float erfc_positive(float x) {
    if (x < 1.0f) {
        // erf(x) = 2x/√π · e^(-x²) · Σ (2x²)^n / (2n+1)!!
        float z = 2.0f * x * x, term = 1.0f, sum = 1.0f;
        for (i32 n = 1; n < 20; n++) {
            term *= divide(z, (float)(2 * n + 1));
            sum += term;
        }
        return 1.0f - 1.12837916709551257f * x * exp_of(-x * x) * sum;
    }
    float f = x;
    for (i32 n = 60; n >= 1; n--) f = x + divide(0.5f * (float)n, f);
    return divide(exp_of(-x * x) * 0.564189583547756287f, f);
}
DEVICE float gelu_erf_of(float x) {
    float a = absolute(x) * 0.707106781186547524f;
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
        return divide(clamped, 1.0f + exp_of(-f1 * clamped)) * (limited + 1.0f);
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
    case 5: return exp_of(x);
    default: return f0 * tanh_of(divide(x, f0));
    }
}
