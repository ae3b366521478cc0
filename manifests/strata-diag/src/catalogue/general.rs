//! S00xx: command line, files, environment.

super::codes! {
    USAGE = "S0001", "usage", "the command line is wrong", Usage;
    BAD_OPTION = "S0002", "bad-option", "options that do not fit together or a value out of range", Usage;
    FILE_UNREADABLE = "S0003", "file-unreadable", "a file cannot be read", Failed;
    FILE_UNWRITABLE = "S0004", "file-unwritable", "a file cannot be written", Failed;
    BAD_INPUT = "S0005", "bad-input", "the input data is not what the command reads", Failed;
    MODEL_NOT_FOUND = "S0006", "model-not-found", "no such model file or installed model", Failed;
    INTERRUPTED = "S0007", "interrupted", "stopped by the user", Interrupted;
}
