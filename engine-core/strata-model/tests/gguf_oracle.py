"""Dequantises with the PyPI package gguf, as the oracle of tests/quant.rs.

  gguf_oracle.py dequantise   stdin: for each row a line `TYPE BYTES` and that many bytes;
                              stdout: the float32 of all rows, little-endian
  gguf_oracle.py vectors      prints tests/fixtures/quant_vectors.txt
"""

import hashlib
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

# Byte positions of half-precision numbers in a block; IQ1_M scatters its own over four words.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
    "IQ4_NL": [0], "IQ4_XS": [0], "IQ1_M": [], "MXFP4": [],
}  # fmt: skip


def decode(name, data):
    kind = gguf.GGMLQuantizationType[name]
    # The package takes rows of bytes; plain types want their own item size to divide the row.
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(dequantize(np.frombuffer(data, np.uint8).reshape(1, -1), kind)).astype("<f4").tobytes()


def vectors():
    print("# TYPE, two blocks, SHA-256 of their float32 (little-endian). Made with the PyPI package gguf by")
    print("#   python3 tests/gguf_oracle.py vectors > tests/fixtures/quant_vectors.txt")
    rng = np.random.default_rng(20)
    for name, halves in HALVES.items():
        _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        blocks = rng.integers(0, 256, (2, size), dtype=np.uint8)
        for at in halves:
            scale = rng.normal(0, 0.02, 2).astype("<f2").view(np.uint8).reshape(2, 2)
            blocks[:, at : at + 2] = scale
        if name == "IQ1_M":
            # Exponent bits below all ones: the scale's top four bits lie in the last byte.
            blocks[:, 55] &= 0x3F
        data = blocks.tobytes()
        print(name, data.hex(), hashlib.sha256(decode(name, data)).hexdigest())


def serve():
    while header := sys.stdin.buffer.readline():
        name, size = header.split()
        sys.stdout.buffer.write(decode(name.decode(), sys.stdin.buffer.read(int(size))))


{"dequantise": serve, "vectors": vectors}[sys.argv[1]]()
