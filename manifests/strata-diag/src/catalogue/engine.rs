//! S04xx: engine and requests.

super::codes! {
    CONTEXT_EXCEEDED = "S0401", "exceed-context-size", "prompt and answer do not fit the context", Failed;
    DOES_NOT_FIT = "S0402", "does-not-fit", "the model, its cache and work buffers do not fit the memory", Failed;
    BAD_SAMPLING = "S0403", "bad-sampling", "a sampling setting out of its range", Usage;
    EMPTY_PROMPT = "S0404", "empty-prompt", "the prompt has no tokens", Failed;
    BAD_REFERENCE = "S0405", "bad-reference", "a reference file that `eval` cannot use", Failed;
}
