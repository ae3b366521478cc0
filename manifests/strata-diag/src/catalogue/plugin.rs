//! S03xx: plugins and devices.

super::codes! {
    PLUGIN_DESCRIPTOR = "S0301", "plugin-descriptor", "a plugin's descriptor is absent or wrong", Failed;
    PLUGIN_DIGEST = "S0302", "plugin-digest", "a plugin library is not the file its descriptor names", Failed;
    PLUGIN_ARCH = "S0303", "plugin-arch", "a plugin is for another machine", Failed;
    PLUGIN_LOAD = "S0304", "plugin-load", "the system's loader refuses the plugin", Failed;
    PLUGIN_ENTRY = "S0305", "plugin-entry", "the library has no plugin entry point", Failed;
    PLUGIN_ABI = "S0306", "plugin-abi", "plugin and host speak different ABI versions", Failed;
    PLUGIN_TABLE = "S0307", "plugin-table", "the plugin returned a table that cannot be used", Failed;
    PLUGIN_REFUSED = "S0308", "plugin-refused", "the plugin said that it cannot work here", Failed;
    PLUGIN_PANICKED = "S0309", "plugin-panicked", "the plugin reported an internal fault", Failed;
    PLUGIN_CRASHED = "S0310", "plugin-crashed", "the plugin ended its probe process", Failed;
    PLUGIN_HUNG = "S0311", "plugin-hung", "the plugin did not answer within the time limit", Failed;
    PLUGIN_QUARANTINED = "S0312", "plugin-quarantined", "this plugin crashed or hung before and was not opened", Failed;
    GPU_UNAVAILABLE = "S0313", "gpu-unavailable", "a GPU was asked for and none can be used", Failed;
    NO_BACKEND = "S0314", "no-backend", "no backend can be used on this machine", Failed;
    CPU_UNSUPPORTED = "S0315", "cpu-unsupported", "the CPU lacks instructions that the plugin needs", Failed;
    ARCH_MISSING = "S0316", "arch-missing", "the plugin holds no kernels for this device", Failed;
    OP_UNSUPPORTED = "S0317", "op-unsupported", "the backend cannot run an operation of this model", Failed;
    DEVICE_FAILED = "S0318", "device-failed", "an operation on the device failed", Failed;
    OUT_OF_MEMORY = "S0319", "out-of-memory", "memory on the device or host is used up", Failed;
    INVALID_CALL = "S0320", "invalid-call", "the host called a backend wrongly; a fault of ours", Failed;
}
