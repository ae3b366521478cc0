// The kernel dialect: what differs between NVIDIA by clang (PTX), AMD by clang (gfx906, gfx1100), nvcc, and a processor that plays AMD.
//
// Not a library of algorithms: one name a hardware notion, so that a kernel is the same text for all of them. Included by
// every .cu file here, nothing else calls it. A kernel takes one struct by value, whose twin in Rust lies in `strata-gpu`.
#pragma once

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

#if defined(__CUDACC__) && !defined(__clang__)
#define STRATA_NVCC 1
#include <cuda_fp16.h>
#elif defined(__AMDGCN__) || defined(STRATA_HOST)
#define STRATA_AMD 1
#else
#define STRATA_PTX 1
#endif

#if defined(STRATA_NVCC)
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define CONSTANT __device__ const
#define LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#elif defined(STRATA_HOST)
// Blocks run one at a time on a thread of the processor, so what is a block's is the thread's.
#define DEVICE inline __attribute__((always_inline))
#define KERNEL extern "C" void
#define SHARED static thread_local
#define CONSTANT const
// Read by strata-kernel-build out of the preprocessed text.
#define LAUNCH_BOUNDS(threads, blocks) __attribute__((annotate("strata kernel", threads)))
#include "prelude_host.h"
#else
#define DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define CONSTANT __attribute__((device)) const
#if defined(STRATA_AMD)
// How many blocks share a unit is left to the registers that a kernel needs.
#define LAUNCH_BOUNDS(threads, blocks) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#else
#define LAUNCH_BOUNDS(threads, blocks) __attribute__((launch_bounds(threads, blocks)))
#endif
#endif

struct alignas(8) float2_t { float x, y; };
struct alignas(16) float4_t { float x, y, z, w; };
struct alignas(8) int2_t { i32 x, y; };
struct alignas(16) int4_t { i32 x, y, z, w; };

// Position in the launch.
#if defined(STRATA_NVCC)
DEVICE u32 tid() { return threadIdx.x; }
DEVICE u32 bid_x() { return blockIdx.x; }
DEVICE u32 bid_y() { return blockIdx.y; }
DEVICE u32 bid_z() { return blockIdx.z; }
DEVICE u32 block_size() { return blockDim.x; }
DEVICE u32 grid_x() { return gridDim.x; }
DEVICE u32 grid_y() { return gridDim.y; }
DEVICE void barrier() { __syncthreads(); }
#elif defined(STRATA_PTX)
DEVICE u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 bid_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 bid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 bid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE u32 block_size() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 grid_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE u32 grid_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
DEVICE void barrier() { __nvvm_bar_sync(0); }
#else
// Registers hold the position; the launch's own sizes lie in memory that differs between code object versions. So nothing here reads
// them: a file whose kernels want the block's size says it, STRATA_BLOCK, before the first header.
DEVICE u32 tid() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 bid_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 bid_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 bid_z() { return __builtin_amdgcn_workgroup_id_z(); }
#if defined(STRATA_BLOCK)
DEVICE u32 block_size() { return STRATA_BLOCK; }
#elif defined(STRATA_HOST)
u32 block_size();
#else
__attribute__((device)) u32 block_size();
#endif
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

// Kernels think in groups of 32 lanes, also where a wave has 64.
constexpr u32 LANES = 32;
DEVICE u32 lane() { return tid() % LANES; }
DEVICE u32 group() { return tid() / LANES; }

DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float float_of(u32 x) { return __builtin_bit_cast(float, x); }

// The value of the lane whose number differs in the bits of `mask`, within 32 lanes.
DEVICE i32 shfl_xor_i(i32 value, u32 mask) {
#if defined(STRATA_NVCC)
    return __shfl_xor_sync(0xffffffffu, value, mask);
#elif defined(STRATA_PTX)
    return __nvvm_shfl_sync_bfly_i32(0xffffffffu, value, mask, 0x1f);
#else
    u32 me = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    return __builtin_amdgcn_ds_bpermute((i32)((me ^ mask) << 2), value);
#endif
}
DEVICE float shfl_xor(float value, u32 mask) { return float_of((u32)shfl_xor_i((i32)bits_of(value), mask)); }
// The value of lane `source` of the 32.
DEVICE i32 shfl_i(i32 value, u32 source) {
#if defined(STRATA_NVCC)
    return __shfl_sync(0xffffffffu, value, source);
#elif defined(STRATA_PTX)
    return __nvvm_shfl_sync_idx_i32(0xffffffffu, value, source, 0x1f);
#else
    u32 me = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    return __builtin_amdgcn_ds_bpermute((i32)(((me & ~31u) | source) << 2), value);
#endif
}
DEVICE float shfl(float value, u32 source) { return float_of((u32)shfl_i((i32)bits_of(value), source)); }

DEVICE float maximum(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float minimum(float a, float b) { return __builtin_fminf(a, b); }
DEVICE i32 min_i(i32 a, i32 b) { return a < b ? a : b; }
DEVICE i32 max_i(i32 a, i32 b) { return a > b ? a : b; }
DEVICE float absolute(float x) { return __builtin_fabsf(x); }
DEVICE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// Sum and greatest over 32 lanes, the same in all of them; the order is fixed.
DEVICE float group_sum(float x) {
    for (u32 mask = 16; mask > 0; mask /= 2) x += shfl_xor(x, mask);
    return x;
}
DEVICE i32 group_sum_i(i32 x) {
    for (u32 mask = 16; mask > 0; mask /= 2) x += shfl_xor_i(x, mask);
    return x;
}
DEVICE float group_max(float x) {
    for (u32 mask = 16; mask > 0; mask /= 2) x = maximum(x, shfl_xor(x, mask));
    return x;
}

// Sum over the block's threads, at most 1024; `room` has 33 floats and may be used again after the call.
DEVICE float block_sum(float x, float* room, u32 threads) {
    x = group_sum(x);
    if (lane() == 0) room[group()] = x;
    barrier();
    u32 n = (threads + LANES - 1) / LANES;
    float all = 0;
    for (u32 i = 0; i < n; i++) all += room[i];
    barrier();
    return all;
}
DEVICE float block_max(float x, float* room, u32 threads) {
    x = group_max(x);
    if (lane() == 0) room[group()] = x;
    barrier();
    u32 n = (threads + LANES - 1) / LANES;
    float all = room[0];
    for (u32 i = 1; i < n; i++) all = maximum(all, room[i]);
    barrier();
    return all;
}

// Four products of signed bytes added to `sum`.
DEVICE i32 dot4(i32 a, i32 b, i32 sum) {
#if defined(STRATA_NVCC)
    return __dp4a(a, b, sum);
#elif defined(STRATA_PTX)
    i32 out;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
#elif defined(__gfx906__)
    return __builtin_amdgcn_sdot4(a, b, sum, false);
#else
    return __builtin_amdgcn_sudot4(true, a, true, b, sum, false);
#endif
}

// Half and bfloat16 as bits; conversions round to nearest, ties to even.
DEVICE float half_to_float(u16 bits) {
#if defined(STRATA_NVCC)
    return __half2float(__ushort_as_half(bits));
#else
    return (float)__builtin_bit_cast(_Float16, bits);
#endif
}
DEVICE u16 float_to_half(float x) {
#if defined(STRATA_NVCC)
    return __half_as_ushort(__float2half_rn(x));
#else
    return __builtin_bit_cast(u16, (_Float16)x);
#endif
}
DEVICE float bf16_to_float(u16 bits) { return float_of((u32)bits << 16); }
DEVICE u16 float_to_bf16(float x) {
    u32 bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// 2^x, a few units in the last place; no range reduction needed.
DEVICE float exp2_fast(float x) {
#if defined(STRATA_PTX)
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#else
    return __builtin_exp2f(x);
#endif
}
DEVICE float divide(float a, float b) { return a / b; }
DEVICE float square_root(float x) {
#if defined(STRATA_PTX)
    float out;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#else
    return __builtin_sqrtf(x);
#endif
}

DEVICE u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }

// ---- what the matrix kernels add -----------------------------------------------------------------------------------

struct alignas(16) u32x4 { u32 x, y, z, w; };

// Lanes of a wave; orders shared memory among them. Groups of lanes that exchange data lie within 32.
DEVICE void wave_barrier() {
#if defined(STRATA_AMD)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#endif
}

// With programmatic launches: waits for the kernels before this one. Nothing that another kernel writes may be read, and
// nothing may be written, before it. Weights may be read earlier.
DEVICE void grid_wait() {
#if !defined(STRATA_AMD) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// With programmatic launches: the next kernel's blocks may be placed as soon as there is room.
DEVICE void grid_release() {
#if !defined(STRATA_AMD) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Bits `shift` to `shift + 31` of the pair high:low; shift 0 to 31.
DEVICE u32 funnel(u32 low, u32 high, u32 shift) {
#if defined(STRATA_AMD)
    return __builtin_amdgcn_alignbit(high, low, shift);
#else
    u32 out;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(shift));
    return out;
#endif
}
// Nibble i of `selector` (0 to 7) picks byte i of the result out of a's four bytes and b's four.
DEVICE u32 permute(u32 a, u32 b, u32 selector) {
#if defined(STRATA_AMD)
    u32 wide = (selector & 0xf) | (selector & 0xf0) << 4 | (selector & 0xf00) << 8 | (selector & 0xf000) << 12;
    return __builtin_amdgcn_perm(b, a, wide);
#else
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
    return out;
#endif
}
// a - b byte by byte, nothing borrowed between bytes.
DEVICE u32 subtract4(u32 a, u32 b) { return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u); }

// A product and a sum that no compiler joins into one rounding.
DEVICE float times(float a, float b) {
#if defined(STRATA_AMD)
    _Pragma("clang fp contract(off)") return a * b;
#else
    float out;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
#endif
}
DEVICE float plus(float a, float b) {
#if defined(STRATA_AMD)
    _Pragma("clang fp contract(off)") return a + b;
#else
    float out;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
#endif
}
// To the nearest whole number, ties to even.
DEVICE i32 nearest(float x) {
#if defined(STRATA_AMD)
    return (i32)__builtin_rintf(x);
#else
    i32 out;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(out) : "f"(x));
    return out;
#endif
}

// The launch's dynamic shared memory, aligned to 16 bytes.
#if defined(STRATA_HOST)
DEVICE u8* dynamic_shared() { return strata_host_dynamic(); }
#elif !defined(STRATA_NVCC)
extern __attribute__((shared)) __attribute__((aligned(16))) u8 strata_dynamic[];
DEVICE u8* dynamic_shared() { return strata_dynamic; }
#else
extern __shared__ __align__(16) u8 strata_dynamic[];
DEVICE u8* dynamic_shared() { return strata_dynamic; }
#endif

#if !defined(STRATA_AMD)
DEVICE u32 shared_address(const void* p) {
    u32 out;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(out) : "l"(p));
    return out;
}
#endif
// Copies that go on by themselves: NVIDIA's from compute capability 8.0 on. Elsewhere a copy is done when it is asked for.
#if !defined(STRATA_AMD) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define STRATA_ASYNC_COPY 1
#endif
// Starts a copy of 16 bytes, both addresses aligned to 16, from global to shared memory.
DEVICE void copy16_async(void* to, const void* from) {
#if !defined(STRATA_ASYNC_COPY)
    *(u32x4*)to = *(const u32x4*)from;
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#endif
}
DEVICE void copy_commit() {
#if defined(STRATA_ASYNC_COPY)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most N of this work-item's committed groups are still under way.
template <int N> DEVICE void copy_wait() {
#if defined(STRATA_ASYNC_COPY)
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// A copy of up to a few kilobytes that one lane starts and a whole wave waits for (compute capability 9.0: one instruction for all of it).
#if !defined(STRATA_AMD) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define STRATA_BULK_COPY 1
DEVICE void bulk_init(u64 *done) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(done)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void bulk_end(u64 *done) { asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(done)) : "memory"); }
// Announces the bytes that copies will bring; once a phase, before or after they are started, by one lane.
DEVICE void bulk_expect(u64 *done, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(done)), "r"(bytes) : "memory");
}
// Addresses and size are multiples of 16.
DEVICE void bulk_copy(void *to, const void *from, u32 bytes, u64 *done) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(done))
                 : "memory");
}
DEVICE void bulk_wait(u64 *done, u32 phase) {
    asm volatile(
        "{\n.reg .pred ready;\nagain:\nmbarrier.try_wait.parity.shared.b64 ready, [%0], %1;\n@!ready bra again;\n}" ::"r"(
            shared_address(done)),
        "r"(phase)
        : "memory");
}
#endif
