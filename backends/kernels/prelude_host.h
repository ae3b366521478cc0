// The kernels on an ordinary processor: AMD's builtins as functions, so that a host build runs the very text that the AMD build
// compiles, for wave 64 (as gfx906) or wave 32 (as gfx1100). Not fast, not for users: it is what kernels are checked with where
// there is no card. Included by prelude.h when STRATA_HOST is 32 or 64; host_runtime.cc has the other side.
#pragma once

#if !defined(__clang__)
#error "the host build of the kernels needs clang: it alone keeps calls that lanes make together together"
#endif
#if STRATA_HOST == 64
#define __gfx906__ 1
#elif STRATA_HOST == 32
#define __gfx1100__ 1
#else
#error "STRATA_HOST is the width of a wave: 32 or 64"
#endif

// What lanes do together. Convergent: no optimisation may give two lanes two copies of one call.
#define STRATA_TOGETHER __attribute__((convergent, noinline))

extern "C" {
// The same all through a work-item.
u32 strata_host_tid() __attribute__((const));
u32 strata_host_lane() __attribute__((const));
u32 strata_host_block(u32 dimension) __attribute__((const));
u8 *strata_host_dynamic() __attribute__((const));
STRATA_TOGETHER void strata_host_barrier();
STRATA_TOGETHER void strata_host_wave_barrier();
STRATA_TOGETHER i32 strata_host_permute(u32 source, i32 value);
// A matrix product of a whole wave, 16 x 16 x 16: operands and results in the registers of AMD's WMMA for 32 lanes.
STRATA_TOGETHER void strata_host_wmma_i8(const i32 *a, const i32 *b, i32 *c, u32 signs);
STRATA_TOGETHER void strata_host_wmma_f16(const u16 *a, const u16 *b, float *c);
}

DEVICE u32 __builtin_amdgcn_workitem_id_x() { return strata_host_tid(); }
DEVICE u32 __builtin_amdgcn_workgroup_id_x() { return strata_host_block(0); }
DEVICE u32 __builtin_amdgcn_workgroup_id_y() { return strata_host_block(1); }
DEVICE u32 __builtin_amdgcn_workgroup_id_z() { return strata_host_block(2); }

template <class... Rest> DEVICE void __builtin_amdgcn_fence(Rest...) { asm volatile("" ::: "memory"); }
#define __builtin_amdgcn_s_barrier strata_host_barrier
#define __builtin_amdgcn_wave_barrier strata_host_wave_barrier

// Bits of the mask below this lane, in its lower and its upper half.
DEVICE u32 __builtin_amdgcn_mbcnt_lo(u32 mask, u32 more) {
    u32 lane = strata_host_lane(), below = lane >= 32 ? ~0u : (1u << lane) - 1;
    return (u32)__builtin_popcount(mask & below) + more;
}
DEVICE u32 __builtin_amdgcn_mbcnt_hi(u32 mask, u32 more) {
    u32 lane = strata_host_lane(), below = lane >= 32 ? (1u << (lane - 32)) - 1 : 0;
    return (u32)__builtin_popcount(mask & below) + more;
}
// The address is in bytes and wraps at the end of the wave.
#define __builtin_amdgcn_ds_bpermute(address, value) strata_host_permute((u32)(address) / 4 % STRATA_HOST, value)

DEVICE i32 strata_host_dot4(u32 a, bool a_signed, u32 b, bool b_signed, i32 sum) {
    u32 total = (u32)sum;
    for (u32 i = 0; i < 4; i++) {
        i32 x = a_signed ? (i8)(a >> 8 * i) : (i32)(a >> 8 * i & 255), y = b_signed ? (i8)(b >> 8 * i) : (i32)(b >> 8 * i & 255);
        total += (u32)(x * y);
    }
    return (i32)total;
}
#if STRATA_HOST == 64
DEVICE i32 __builtin_amdgcn_sdot4(i32 a, i32 b, i32 sum, bool) { return strata_host_dot4((u32)a, true, (u32)b, true, sum); }
#else
DEVICE i32 __builtin_amdgcn_sudot4(bool a_signed, i32 a, bool b_signed, i32 b, i32 sum, bool) {
    return strata_host_dot4((u32)a, a_signed, (u32)b, b_signed, sum);
}
#endif

// Two products of halves, which are exact, and two sums.
typedef _Float16 strata_host_halves __attribute__((ext_vector_type(2)));
DEVICE float __builtin_amdgcn_fdot2(strata_host_halves a, strata_host_halves b, float sum, bool) {
    return sum + (float)a.x * (float)b.x + (float)a.y * (float)b.y;
}

DEVICE u32 __builtin_amdgcn_alignbit(u32 high, u32 low, u32 shift) { return (u32)(((u64)high << 32 | low) >> (shift & 31)); }
DEVICE u32 __builtin_amdgcn_perm(u32 high, u32 low, u32 selector) {
    u64 both = (u64)high << 32 | low;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) {
        u32 pick = selector >> 8 * i & 255, byte;
        if (pick < 8) byte = (u32)(both >> 8 * pick) & 255;
        else if (pick < 12) byte = both >> (16 * (pick - 8) + 15) & 1 ? 255 : 0;
        else byte = pick == 12 ? 0 : 255;
        out |= byte << 8 * i;
    }
    return out;
}
