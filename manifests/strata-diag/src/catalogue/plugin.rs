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
    PLUGIN_FILE = "S0321", "plugin-file", "the plugin's file is no complete library", Failed;
    PLUGIN_LIBC = "S0322", "plugin-libc", "the plugin needs a newer C library than this machine has", Failed;
    PLUGIN_TABLE_SHORT = "S0323", "plugin-table-short", "the plugin's table is too short to hold every call", Failed;
    PLUGIN_TABLE_HOLE = "S0324", "plugin-table-hole", "the plugin's table lacks a call that is not optional", Failed;
    PLUGIN_PROBE = "S0325", "plugin-probe", "the process that tries a plugin could not be run", Failed;
    PLUGIN_WRONG_NUMBERS = "S0326", "plugin-wrong-numbers", "the plugin computes wrong numbers on a device", Failed;
    PLUGIN_MISBEHAVED = "S0327", "plugin-misbehaved", "the plugin broke a rule of the ABI", Failed;
    DRIVER_UNUSABLE = "S0328", "driver-unusable", "a device's driver is absent, failed or too old", Failed;
    DEVICE_PERMISSION = "S0329", "device-permission", "this user may not open the device", Failed;
    KERNELS_NOT_BUILT = "S0330", "kernels-not-built", "the plugin was built without kernels", Failed;
    NO_DEVICE = "S0331", "no-device", "the plugin finds no device on this machine", Failed;
}
