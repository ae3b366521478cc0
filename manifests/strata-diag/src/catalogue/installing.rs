//! S07xx: installing, then detecting (S0740 and up).

super::codes! {
    RELEASE_ABSENT = "S0701", "release-absent", "no release to install from was named or found", Failed;
    RELEASE_UNTRUSTED = "S0702", "release-untrusted", "the release is not signed by a key that is trusted here", Failed;
    RELEASE_DOWNGRADE = "S0703", "release-downgrade", "the release is older than what was installed before", Failed;
    RELEASE_EXPIRED = "S0704", "release-expired", "the release's index has expired", Failed;
    COMPONENT_MISSING = "S0705", "component-missing", "the release holds no component that is needed here", Failed;
    BACKEND_NO_DEVICE = "S0706", "backend-no-device", "a GPU backend was asked for and this machine has no such GPU", Failed;
    BACKEND_DEVICE_UNUSABLE = "S0707", "backend-device-unusable", "a GPU is here and cannot be used as things are", Failed;
    TARGET_UNKNOWN = "S0708", "target-unknown", "a GPU target is not written as targets are", Usage;
    DISK_SHORT = "S0709", "disk-short", "there is less free disk space than the plan needs", Failed;
    PREFIX_UNUSABLE = "S0710", "prefix-unusable", "a folder cannot be an installation's prefix", Failed;
    PREFIX_READ_ONLY = "S0711", "prefix-read-only", "the prefix cannot be written", Failed;
    INSTALL_BUSY = "S0712", "install-busy", "another setup is changing this prefix", Failed;
    ARCHIVE_ABSENT = "S0713", "archive-absent", "a file of the release is not in its folder", Failed;
    STAGE_DAMAGED = "S0714", "stage-damaged", "an unpacked file is not what the component lists", Failed;
    PROOF_FAILED = "S0715", "proof-failed", "a plugin did not pass its check on this machine", Failed;
    NOTHING_INSTALLED = "S0716", "nothing-installed", "nothing is installed in this prefix", Failed;
    GENERATION_ABSENT = "S0717", "generation-absent", "there is no such generation to go back to", Failed;
    MODEL_UNKNOWN = "S0718", "model-unknown", "no model of that name is in the catalog or the release", Failed;
    GENERATION_DAMAGED = "S0719", "generation-damaged", "installed files are not what the receipt lists", Failed;
    REPAIR_NO_SOURCE = "S0720", "repair-no-source", "there is nothing to repair an installation from", Failed;
    NO_ANSWER = "S0721", "no-answer", "a question needs an answer and nobody can give it", Usage;
    INSTALL_WRITE = "S0722", "install-write", "the disk failed or is full while installing", Failed;
    GPU_CHOICE = "S0723", "gpu-choice", "`--gpus` names a device that is not here", Failed;
    LIBC_TOO_OLD = "S0724", "libc-too-old", "the system's C library is older than a component needs", Failed;
    DOWNLOAD_FOLDER = "S0725", "download-folder", "the folder is not what `--download-only` leaves", Failed;
    MODEL_FILE = "S0726", "model-file", "a model's file is not the one that its source names", Failed;
    UNINSTALL_LEFT = "S0727", "uninstall-left", "an uninstallation could not remove all that the receipts list", Failed;
    SELF_UPDATE = "S0728", "self-update", "this program cannot replace itself", Failed;
    STAGE_UNSOUND = "S0729", "stage-unsound", "the unpacked release does not pass the verifier", Failed;
}
