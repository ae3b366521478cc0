//! S01xx: model files (GGUF).

super::codes! {
    NOT_A_MODEL = "S0101", "not-a-model", "the file is not a GGUF model", Failed;
    UNSUPPORTED_GGUF_VERSION = "S0102", "unsupported-gguf-version", "a GGUF version or byte order that this build does not read", Failed;
    BAD_MODEL = "S0103", "bad-model", "the model file contradicts itself", Failed;
    TRUNCATED_MODEL = "S0104", "truncated-model", "the model file is shorter than it says", Failed;
    MISSING_TENSOR = "S0105", "missing-tensor", "the model lacks a tensor that its architecture needs", Failed;
    UNSUPPORTED_ARCH = "S0106", "unsupported-arch", "an architecture that this build cannot run", Failed;
    UNSUPPORTED_TENSOR_TYPE = "S0107", "unsupported-tensor-type", "a tensor format that this build cannot read", Failed;
    BAD_TENSOR_SHAPE = "S0108", "bad-tensor-shape", "a tensor's shape does not fit the architecture", Failed;
    MISSING_KEY = "S0109", "missing-key", "the model lacks a metadata key that is needed", Failed;
    SPLIT_INCOMPLETE = "S0110", "split-incomplete", "a part of a split model is absent or out of order", Failed;
}
