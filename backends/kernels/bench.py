"""Speed of the matrix kernels alone on an NVIDIA card, and that all of them give the same bits.

Not a test of values: that is the conformance kit's, through the plugin. Needs python3 with torch (memory, events, graphs) and the
kernels as PTX or cubins in one folder, named FILE.ptx or FILE.cubin:

    for f in mmv_t1 mmv_t2 mmv_t4 mmv_t8 mmq moe quantise hmv hmm halves; do    # and hmw with sm_90a
      clang-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_90 --cuda-feature=+ptx80 -nocudainc -nocudalib \\
        -std=c++17 -O3 -ffp-contract=off -I backends/kernels -S -o out/$f.ptx backends/kernels/$f.cu
    done
    python3 backends/kernels/bench.py out [halves]
"""

import ctypes
import os
import struct
import sys

import torch

BLOCKS = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q2_k": (256, 84),
    "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74), "iq3_xxs": (256, 98), "iq1_s": (256, 50), "iq4_nl": (32, 18), "iq3_s": (256, 110),
    "iq2_s": (256, 82), "iq4_xs": (256, 136), "iq1_m": (256, 56), "mxfp4": (32, 17),
}
TILE_SHARED = 106_576
cuda = ctypes.CDLL("libcuda.so.1")
functions = {}


def checked(code, what):
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")


def load(folder):
    torch.zeros(1, device="cuda")
    modules = []
    for name in sorted(os.listdir(folder)):
        if name.endswith((".ptx", ".cubin")):
            with open(os.path.join(folder, name), "rb") as file:
                image = file.read() + b"\0"
            module = ctypes.c_void_p()
            checked(cuda.cuModuleLoadData(ctypes.byref(module), image), name)
            modules.append(module)
    return modules


def launch(modules, name, grid, block, shared, args):
    if name not in functions:
        function = ctypes.c_void_p()
        if not any(cuda.cuModuleGetFunction(ctypes.byref(function), m, name.encode()) == 0 for m in modules):
            raise KeyError(name)
        functions[name] = function
    if shared > 48 * 1024:
        checked(cuda.cuFuncSetAttribute(functions[name], 8, shared), name)
    params = ctypes.create_string_buffer(args, len(args))
    pointers = (ctypes.c_void_p * 1)(ctypes.cast(params, ctypes.c_void_p))
    x, y = grid
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    checked(cuda.cuLaunchKernel(functions[name], x, y, 1, block, 1, 1, shared, stream, pointers, None), name)


def up(a, b):
    return -(-a // b)


def mat_mul_args(w, out, xq, xs, stride, m, k, t, rows):
    """MatMulArgs of matmul.h with one part."""
    pointers = [w, 0, 0, out, 0, 0, 0, 0, 0, xq, xs, 0, 0]
    return struct.pack("<13Qq11i2fi", *pointers, stride, m, 0, 0, k, t, 0, m, 0, 0, 1, -1, 0.0, 0.0, rows)


def expert_args(w, out, xq, xs, ids, order, offsets, stride, m, k, top, t, per_slot, experts, rows):
    """ExpertArgs of matmul.h."""
    pointers = [w, 0, out, xq, xs, 0, ids, 0, order, offsets]
    return struct.pack("<10Q2q7i2f3i", *pointers, stride, stride * m, m, k, top, t, per_slot, experts, -1, 0.0, 0.0, rows, 0, m)


class Card:
    def __init__(self, folder):
        self.modules = load(folder)
        # Small bytes: every two of them are a small positive half, so no scale is infinite.
        self.pool = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_(0, 40)

    def rounded(self, t, k):
        x = torch.randn(t, k, device="cuda")
        q = torch.zeros(t * k, dtype=torch.int8, device="cuda")
        ds = torch.zeros(t * k // 16, device="cuda")
        args = struct.pack("<3Q4i", x.data_ptr(), q.data_ptr(), ds.data_ptr(), k, t, k, 0)
        launch(self.modules, "quantise_q8", (up(k, 1024), t), 256, 0, args)
        return q, ds

    def product(self, kernel, fmt, m, k, t, x, out, rows=8, at=0):
        block, size = BLOCKS[fmt]
        args = mat_mul_args(self.pool.data_ptr() + at, out.data_ptr(), x[0].data_ptr(), x[1].data_ptr(), k // block * size, m, k, t, rows)
        if kernel == "mmq":
            launch(self.modules, f"mmq_{fmt}", (up(m, 128), up(t, 64)), 256, TILE_SHARED, args)
        else:
            launch(self.modules, f"mmv_{fmt}_t{kernel}", (up(m, rows), up(t, kernel)), 128, 4 * rows * kernel * up(k, 256), args)


def microseconds(work):
    """Median of seven replays of a graph of `work`."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
        graph.replay()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        times = []
        for _ in range(7):
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)[3]


def decode(card, fmt, m, k, columns=1, rows=16):
    """Microseconds and GB/s of weights; the copies rotate through memory so that no cache holds them."""
    block, size = BLOCKS[fmt]
    n_bytes = m * (k // block) * size
    span = up(n_bytes, 256) * 256
    places = max(1, min(16, (card.pool.numel() - 4096) // span))
    repeats = max(4, min(24, int(3e8 / n_bytes)))
    x, out = card.rounded(columns, k), torch.empty(columns, m, device="cuda")

    def work():
        for i in range(repeats):
            card.product(columns, fmt, m, k, columns, x, out, rows, i % places * span)

    time = microseconds(work) / repeats
    return time, n_bytes / time / 1e3


def up64(n):
    pieces = up(n, 64)
    return 64 * (pieces + 1 - pieces % 2)


CHUNK = {"q4_k": (144, 0, 192), "q5_k": (176, 0, 192), "q6_k": (210, 16, 240), "q8_0": (272, 16, 288)}


def half_args(w, out, x, stride, m, k, t, shape, act=-1, up_w=0):
    """HalfArgs of hmv.h with one part, or gate and up."""
    pointers = [w, up_w, 0, out, 0, 0, 0, 0, 0, x, 0]
    return struct.pack("<11Qq9ii2f3i", *pointers, stride, m, m if up_w else 0, 0, k, t, m, m if up_w else 0, 0, 2 if up_w else 1, act, 0.0, 0.0, *shape)


def records(card, x, grouped=0):
    """Records of rows of floats, one by one or by groups of eight."""
    t, k = x.shape
    out = torch.zeros(k // 256 * up(t, 8) * 8 * 576, dtype=torch.uint8, device="cuda")
    args = struct.pack("<4Q6i2fi", x.data_ptr(), 0, 0, out.data_ptr(), k, t, k, k, k, -1, 0.0, 0.0, grouped)
    launch(card.modules, "halves_round", (up(k, 2048), t), 256, 0, args)
    return out


def half_decode(card, fmt, m, k, t, warps, group, stages, blocks=1 << 30):
    """Microseconds and GB/s of weights, copies rotating through memory; at most so many blocks."""
    size, odd, _ = CHUNK[fmt]
    chunks, row = k // 256, up64(group * size + odd)
    stride = chunks * size
    shared = warps * stages * 16 * row + 128 * chunks * t
    span = up(m * stride, 256) * 256
    places, repeats = max(1, min(16, (card.pool.numel() - 4096) // span)), max(4, min(24, int(3e8 / (m * stride))))
    x, out = records(card, torch.randn(t, k, device="cuda")), torch.empty(t, m, device="cuda")

    def work():
        for i in range(repeats):
            args = half_args(card.pool.data_ptr() + i % places * span, out.data_ptr(), x.data_ptr(), stride, m, k, t, (group, stages, row))
            launch(card.modules, f"hmv_{fmt}", (min(blocks, up(m, 16)), 1), 32 * warps, shared, args)

    time = microseconds(work) / repeats
    return time, m * stride / time / 1e3


def tiles(card, form, fmt, x, out, m, k, t):
    """One launch of a form: 128 or 64 columns, or "w" for warpgroups."""
    size, _, slot = CHUNK[fmt]
    args = half_args(card.pool.data_ptr(), out.data_ptr(), x.data_ptr(), k // 256 * size, m, k, t, (0, 0, 0))
    if form == "w":
        launch(card.modules, f"hmw_{fmt}", (up(m, 128), up(t, 128)), 384, 2 * (16 * 4480 + 128 * slot) + 1024, args)
    else:
        name = f"hmm_{fmt}" + ("" if form == 128 else f"_{form}")
        launch(card.modules, name, (up(m, 128), up(t, form)), 256, 2 * (form * 576 + 128 * slot) + 1024, args)


def half_tiles(card, fmt, m, k, t, form):
    """Microseconds and 10^12 products/s."""
    x, out = records(card, torch.randn(t, k, device="cuda"), int(form == "w")), torch.empty(t, m, device="cuda")
    time = microseconds(lambda: tiles(card, form, fmt, x, out, m, k, t))
    return time, m * k * t / time / 1e6


def halves(card):
    different = 0
    for fmt in CHUNK:
        m, k, t = 200, 1536, 70
        size, odd, slot = CHUNK[fmt]
        values = torch.randn(t, k, device="cuda") * torch.logspace(-3, 3, t, device="cuda")[:, None]
        x, grouped = records(card, values), records(card, values, 1)
        outs = [torch.full((t, m), float("nan"), device="cuda") for _ in range(4)]
        for out, form in zip(outs, (128, 64, "w")):
            tiles(card, form, fmt, grouped if form == "w" else x, out, m, k, t)
        row = up64(2 * size + odd)
        args = half_args(card.pool.data_ptr(), outs[3].data_ptr(), x.data_ptr(), 6 * size, m, k, t, (2, 1, row))
        launch(card.modules, f"hmv_{fmt}", (up(m, 16), up(t, 8)), 128, 4 * 16 * row + 128 * 6 * 8, args)
        wrong = [int((out != outs[3]).sum()) for out in outs[:3]]
        different += any(wrong)
        if any(wrong):
            print(f"  {fmt}: {wrong} of {t * m} differ, {[out.flatten()[:3].tolist() for out in outs]}")
    print(f"formats over halves whose kernels differ in any bit: {different} of {len(CHUNK)}")
    print("over halves, one column, us and GB/s, by warps, chunks at once, stages")
    for m, k, shapes in [
        (6144, 4096, [(4, 4, 1), (4, 2, 2), (8, 2, 1), (8, 1, 2)]), (4096, 4096, [(4, 4, 1), (8, 2, 1), (8, 1, 2)]),
        (24576, 4096, [(4, 4, 1), (4, 4, 2, 396), (4, 2, 4, 396), (4, 2, 3, 528), (4, 4, 1, 528), (8, 2, 2, 264), (8, 2, 4, 132), (4, 2, 2, 528)]), (4096, 12288, [(8, 3, 1), (8, 2, 2), (8, 4, 1)]),
        (49152, 2048, [(4, 2, 1), (4, 2, 4, 396), (4, 2, 2, 528)]),
        (4096, 1024, [(4, 1, 1), (2, 2, 1)]), (1024, 2048, [(8, 1, 1), (4, 2, 1)]), (6144, 1024, [(4, 1, 1), (2, 2, 1)]), (1024, 3072, [(8, 2, 1), (4, 3, 1), (8, 1, 2)]),
    ]:
        print(f"  q4_k {m} x {k}  " + "  ".join("%s: %.2f %.0f" % (shape, *half_decode(card, "q4_k", m, k, 1, *shape)) for shape in shapes))
    for fmt in CHUNK:
        print(f"  {fmt} 24576 x 4096 by columns  " + "  ".join("%d: %.2f %.0f" % (t, *half_decode(card, fmt, 24576, 4096, t, 4, 2, 2, 396)) for t in (1, 2, 4, 8)))
    print("over halves, tiles, us and 10^12 products/s")
    for fmt, m, k in [("q4_k", 4096, 4096), ("q4_k", 24576, 4096), ("q4_k", 4096, 12288), ("q4_k", 6144, 1024), ("q4_k", 1024, 3072)] + [(f, 4096, 4096) for f in CHUNK]:
        print(f"  {fmt} {m} x {k}  " + "  ".join("%s: %.0f %.1f" % (c, *half_tiles(card, fmt, m, k, 4096, c)) for c in (128, 64, "w")))


def main():
    card = Card(sys.argv[1])
    if sys.argv[2:] == ["halves"]:
        return halves(card)
    print(torch.cuda.get_device_name(0))
    a = torch.randn(1 << 29, device="cuda")
    b = torch.empty_like(a)
    print(f"reading and writing: {8 * a.numel() / microseconds(lambda: torch.mul(a, 2.0, out=b)) / 1e3:.0f} GB/s")
    del a, b
    different = 0
    for fmt in BLOCKS:
        x = card.rounded(70, 1280)
        outs = [torch.full((70, 300), float("nan"), device="cuda") for _ in range(5)]
        for kernel, out in zip([1, 2, 4, 8, "mmq"], outs):
            card.product(kernel, fmt, 300, 1280, 70, x, out, 5)
        different += not all(torch.equal(outs[0], out) for out in outs)
    print(f"formats whose kernels differ in any bit: {different} of {len(BLOCKS)}")
    print("one column, us and GB/s, by rows a block")
    for fmt in ["q4_k", "q6_k", "q8_0"]:
        for m, k in [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)]:
            cells = ["%d: %.2f %.0f" % (rows, *decode(card, fmt, m, k, 1, rows)) for rows in (4, 8, 16, 32)]
            print(f"  {fmt} {m} x {k}  " + "  ".join(cells))
    print("every format at 24576 x 4096, us and GB/s, by columns")
    for fmt in BLOCKS:
        print(f"  {fmt}  " + "  ".join("%d: %.1f %.0f" % (t, *decode(card, fmt, 24576, 4096, t, 16 if t == 1 else 8)) for t in (1, 2, 4, 8)))
    print("4096 columns on tensor cores, us and 10^12 products/s")
    for fmt, m, k in [("q4_k", 4096, 4096), ("q4_k", 24576, 4096), ("q4_k", 4096, 12288), ("q4_k", 6144, 1024)] + [(f, 4096, 4096) for f in BLOCKS]:
        x, out = card.rounded(4096, k), torch.empty(4096, m, device="cuda")
        time = microseconds(lambda: card.product("mmq", fmt, m, k, 4096, x, out))
        print(f"  {fmt} {m} x {k}: {time:.0f} {m * k * 4096 / time / 1e6:.1f}")


main()
