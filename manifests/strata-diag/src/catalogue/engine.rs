//! S04xx: engine and requests.

super::codes! {
    CONTEXT_EXCEEDED = "S0401", "exceed-context-size", "prompt and answer do not fit the context", Failed;
    DOES_NOT_FIT = "S0402", "does-not-fit", "the model, its cache and work buffers do not fit the memory", Failed;
    BAD_SAMPLING = "S0403", "bad-sampling", "a sampling setting out of its range", Usage;
    EMPTY_PROMPT = "S0404", "empty-prompt", "the prompt has no tokens", Failed;
    BAD_REFERENCE = "S0405", "bad-reference", "a reference file that `eval` cannot use", Failed;
    NOT_A_NUMBER = "S0406", "not-a-number", "the model produced a logit that is no number", Failed;
    NO_FREE_SEQUENCE = "S0407", "no-free-sequence", "every sequence that the engine has room for is in use", Failed;
    CONSTRAINT = "S0408", "constraint", "an answer cannot keep to the schema or grammar that was asked for", Failed;
    QUEUE_FULL = "S0409", "queue-full", "too many requests wait already", Failed;
    NOT_RUNNING = "S0410", "not-running", "no running server is the one that was meant", Failed;
    STILL_RUNNING = "S0411", "still-running", "a server did not end", Failed;
    FOREIGN_UNIT = "S0412", "foreign-unit", "a service of that name is not one that Strata wrote", Failed;
}
