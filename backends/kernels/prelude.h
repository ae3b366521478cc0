// The dialect that all kernels are written in: one set of names over clang's NVPTX target, nvcc and
// clang's AMDGPU target. It holds no arithmetic of a model. Included first by every file here.
//
// Rules that keep a kernel portable: a wave is WAVE work-items (32, or 64 on gfx906) and blocks are
// whole waves; lanes are exchanged in groups of at most 32 through lane_xor and lane_get; shared memory is
// declared with SHARED or taken from dynamic_shared(); no libc, no vendor header.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;

#if defined(__AMDGCN__)
#define STRATA_AMD 1
#elif defined(__NVPTX__) || defined(__CUDA_ARCH__) || defined(__CUDACC__)
#define STRATA_NVIDIA 1
#endif

// ---- markers ------------------------------------------------------------------------------------
#if defined(__CUDACC__) && !defined(__clang__)
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define KERNEL_MIN(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define SHARED __shared__
#define CONSTANT __device__ const
#else
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define DEVICE static __device__ inline __attribute__((always_inline))
#if defined(STRATA_AMD)
#define KERNEL(threads) extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#define KERNEL_MIN(threads, blocks) KERNEL(threads)
#else
#define KERNEL(threads) extern "C" __global__ __attribute__((launch_bounds(threads))) void
#define KERNEL_MIN(threads, blocks) extern "C" __global__ __attribute__((launch_bounds(threads, blocks))) void
#endif
#define SHARED __shared__
#define CONSTANT static __constant__ const
#endif
#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// ---- vectors and half precision -----------------------------------------------------------------
struct alignas(8) f32x2 { f32 x, y; };
struct alignas(16) f32x4 { f32 x, y, z, w; };
struct alignas(8) u32x2 { u32 x, y; };
struct alignas(16) u32x4 { u32 x, y, z, w; };
struct alignas(8) i16x4 { i16 x, y, z, w; };

DEVICE u32 bits_of(f32 v) { u32 r; __builtin_memcpy(&r, &v, 4); return r; }
DEVICE f32 float_of(u32 v) { f32 r; __builtin_memcpy(&r, &v, 4); return r; }

/// f16 bits to f32 and back (to nearest even).
DEVICE f32 f16_to_f32(u16 h) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
#else
    _Float16 v;
    __builtin_memcpy(&v, &h, 2);
    return (f32)v;
#endif
}
DEVICE u16 f32_to_f16(f32 v) {
#if defined(STRATA_NVIDIA)
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
#else
    _Float16 h = (_Float16)v;
    u16 r;
    __builtin_memcpy(&r, &h, 2);
    return r;
#endif
}
DEVICE f32 bf16_to_f32(u16 h) { return float_of((u32)h << 16); }
DEVICE u16 f32_to_bf16(f32 v) {
    u32 b = bits_of(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)((b >> 16) | 0x40);
    return (u16)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

// ---- where am I -----------------------------------------------------------------------------------
#if defined(STRATA_AMD)
#if defined(__GFX9__)
#define WAVE 64
#else
#define WAVE 32
#endif
DEVICE u32 tid() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 bid_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 bid_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 bid_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE u32 bdim() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE u32 gdim_x() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
DEVICE u32 gdim_y() { return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(); }
#else
#define WAVE 32
#if defined(__clang__)
DEVICE u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 bid_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 bid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 bid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE u32 bdim() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 gdim_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE u32 gdim_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
#else
DEVICE u32 tid() { return threadIdx.x; }
DEVICE u32 bid_x() { return blockIdx.x; }
DEVICE u32 bid_y() { return blockIdx.y; }
DEVICE u32 bid_z() { return blockIdx.z; }
DEVICE u32 bdim() { return blockDim.x; }
DEVICE u32 gdim_x() { return gridDim.x; }
DEVICE u32 gdim_y() { return gridDim.y; }
#endif
#endif
DEVICE u32 lane() { return tid() % WAVE; }
DEVICE u32 wave() { return tid() / WAVE; }

// ---- barriers ---------------------------------------------------------------------------------------
/// All work-items of the block; orders shared and global memory among them.
DEVICE void barrier() {
#if defined(STRATA_AMD)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#elif defined(__clang__)
    __nvvm_bar_sync(0);
#else
    __syncthreads();
#endif
}
/// The lanes of a wave; orders shared memory among them.
DEVICE void wave_barrier() {
#if defined(STRATA_AMD)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#elif defined(STRATA_NVIDIA)
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#endif
}
/// With programmatic launches: waits for the kernels before this one. Nothing that another kernel
/// writes may be read, and nothing may be written, before it. Weights may be read earlier.
DEVICE void grid_wait() {
#if defined(STRATA_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// With programmatic launches: the next kernel's blocks may be placed as soon as there is room.
DEVICE void grid_release() {
#if defined(STRATA_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- lane exchange: all lanes of the wave take part -----------------------------------------------------
DEVICE u32 lane_get_u32(u32 v, u32 from) {
#if defined(STRATA_AMD)
    return (u32)__builtin_amdgcn_ds_bpermute((i32)((from & (WAVE - 1)) * 4), (i32)v);
#else
    u32 r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(from));
    return r;
#endif
}
DEVICE u32 lane_xor_u32(u32 v, u32 mask) {
#if defined(STRATA_AMD)
    return lane_get_u32(v, lane() ^ mask);
#else
    u32 r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
#endif
}
DEVICE f32 lane_get(f32 v, u32 from) { return float_of(lane_get_u32(bits_of(v), from)); }
DEVICE f32 lane_xor(f32 v, u32 mask) { return float_of(lane_xor_u32(bits_of(v), mask)); }
DEVICE i32 lane_xor(i32 v, u32 mask) { return (i32)lane_xor_u32((u32)v, mask); }
DEVICE u32 lane_xor(u32 v, u32 mask) { return lane_xor_u32(v, mask); }
DEVICE i32 lane_get(i32 v, u32 from) { return (i32)lane_get_u32((u32)v, from); }

// ---- arithmetic -------------------------------------------------------------------------------------------
/// Four products of signed bytes and their sum.
DEVICE i32 dot4(u32 a, u32 b, i32 sum) {
#if defined(STRATA_AMD)
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__)
    return __builtin_amdgcn_sdot4((i32)a, (i32)b, sum, false);
#else
    return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, sum, false);
#endif
#else
    i32 r;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
    return r;
#endif
}
/// Bits `shift..shift+32` of the pair high:low; shift 0 to 31.
DEVICE u32 funnel(u32 low, u32 high, u32 shift) {
#if defined(STRATA_AMD)
    return __builtin_amdgcn_alignbit(high, low, shift);
#else
    u32 r;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(shift));
    return r;
#endif
}
/// Byte selection as PTX prmt: nibble i of `selector` picks one of the bytes a0..a3, b0..b3.
DEVICE u32 permute(u32 a, u32 b, u32 selector) {
#if defined(STRATA_AMD)
    return __builtin_amdgcn_perm(b, a, (selector & 0xf) | ((selector & 0xf0) << 4) | ((selector & 0xf00) << 8) | ((selector & 0xf000) << 12));
#else
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
#endif
}
/// Bytewise a - b, no borrow between bytes.
DEVICE u32 sub4(u32 a, u32 b) { return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u); }

DEVICE f32 fma32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
/// Product and sum that no compiler may contract into one rounding, or split from it.
DEVICE f32 mul32(f32 a, f32 b) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    _Pragma("clang fp contract(off)") return a * b;
#endif
}
DEVICE f32 add32(f32 a, f32 b) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    _Pragma("clang fp contract(off)") return a + b;
#endif
}
DEVICE f32 sub32(f32 a, f32 b) { return add32(a, -b); }
DEVICE f32 div32(f32 a, f32 b) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a / b;
#endif
}
DEVICE f32 sqrt32(f32 a) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
#else
    return __builtin_sqrtf(a);
#endif
}
DEVICE f32 max32(f32 a, f32 b) { return __builtin_fmaxf(a, b); }
DEVICE f32 min32(f32 a, f32 b) { return __builtin_fminf(a, b); }
DEVICE f32 abs32(f32 a) { return float_of(bits_of(a) & 0x7fffffffu); }
/// To the nearest whole number, ties to even, as an integer.
DEVICE i32 round32(f32 a) {
#if defined(STRATA_NVIDIA)
    i32 r;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(r) : "f"(a));
    return r;
#else
    return (i32)__builtin_rintf(a);
#endif
}
DEVICE f32 floor32(f32 a) { return __builtin_floorf(a); }
/// 2^x by the special function unit: about 2 units in the last place for |x| < 126.
DEVICE f32 exp2_fast(f32 x) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return __builtin_amdgcn_exp2f(x);
#endif
}
DEVICE f32 log2_fast(f32 x) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return __builtin_amdgcn_logf(x);
#endif
}
/// e^x within about 2 units: x·log2(e) is split so that the exponent's rounding is not magnified.
DEVICE f32 exp32(f32 x) {
    f32 n = floor32(fma32(x, 1.44269504088896341f, 0.5f));
    f32 r = fma32(n, -0.693145751953125f, x);
    r = fma32(n, -1.42860682030941723e-6f, r);
    f32 p = exp2_fast(mul32(r, 1.44269504088896341f));
    // Two factors: n may lie beyond the exponents of normal numbers.
    f32 c = min32(max32(n, -252.0f), 252.0f);
    i32 h = (i32)c / 2, l = (i32)c - h;
    if (x != x) return x;
    return mul32(mul32(p, float_of((u32)(h + 127) << 23)), float_of((u32)(l + 127) << 23));
}
DEVICE f32 rsqrt_fast(f32 x) {
#if defined(STRATA_NVIDIA)
    f32 r;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return __builtin_amdgcn_rsqf(x);
#endif
}
template <class T> DEVICE T least(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T greatest(T a, T b) { return a > b ? a : b; }

/// Sums over groups of `width` lanes (a power of two up to 32), the same bits in every lane.
DEVICE f32 group_sum(f32 v, u32 width) {
    for (u32 m = width / 2; m > 0; m /= 2) v = add32(v, lane_xor(v, m));
    return v;
}
DEVICE f32 group_max(f32 v, u32 width) {
    for (u32 m = width / 2; m > 0; m /= 2) v = max32(v, lane_xor(v, m));
    return v;
}

// ---- shared memory ------------------------------------------------------------------------------------------
/// The launch's dynamic shared memory.
DEVICE u8* dynamic_shared() {
#if defined(__CUDACC__) && !defined(__clang__)
    extern __shared__ __align__(16) u8 strata_dynamic[];
    return strata_dynamic;
#else
    extern __shared__ __attribute__((aligned(16))) u8 strata_dynamic[];
    return strata_dynamic;
#endif
}
#if defined(STRATA_NVIDIA)
DEVICE u32 shared_address(const void* p) {
    u32 r;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p));
    return r;
}
#endif
/// Starts a copy of 16 bytes (both addresses aligned to 16) from global to shared memory.
DEVICE void copy16_async(void* to, const void* from) {
#if defined(STRATA_NVIDIA)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
    *(u32x4*)to = *(const u32x4*)from;
#endif
}
DEVICE void copy_commit() {
#if defined(STRATA_NVIDIA)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most N of this work-item's committed groups are under way.
template <int N> DEVICE void copy_wait() {
#if defined(STRATA_NVIDIA)
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
