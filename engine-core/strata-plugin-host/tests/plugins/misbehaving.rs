//! Each way in which a plugin can be wrong has its own error, and none harms the host.

use crate::support::{Folder, expect};
use strata_plugin_host::DeviceOptions;

#[test]
fn null_table() {
    expect(Folder::compiled(&["FAULT_NULL_TABLE"]).open_probed(), "plugin-table", "returned no table");
}

#[test]
fn crooked_table() {
    expect(Folder::compiled(&["FAULT_CROOKED_TABLE"]).open_probed(), "plugin-misbehaved", "is not aligned");
}

#[test]
fn wrong_major() {
    expect(Folder::compiled(&["FAULT_MAJOR"]).open_probed(), "plugin-abi", "speaks ABI 2.0, this program speaks 1.0");
    expect(
        Folder::compiled(&["FAULT_MISMATCH"]).open_probed(),
        "plugin-abi",
        "speaks ABI 4.0, this program speaks 1.0",
    );
    expect(Folder::compiled(&["FAULT_TABLE_ABI"]).open_probed(), "plugin-abi", "speaks ABI 1.1");
    let folder = Folder::compiled(&[]);
    for (low, high) in [("2.0", "2.4"), ("0.1", "0.9"), ("1.1", "1.2")] {
        folder.describe(|descriptor| {
            descriptor.abi_lowest = low.to_owned();
            descriptor.abi_highest = high.to_owned();
        });
        expect(folder.open_probed(), "plugin-abi", &format!("speaks ABI {low} to {high}"));
    }
    folder.describe(|descriptor| descriptor.abi_highest = "one".to_owned());
    expect(folder.open_probed(), "plugin-descriptor", "`one` is no ABI version");
}

#[test]
fn other_layout() {
    let folder = Folder::compiled(&[]);
    folder.describe(|descriptor| descriptor.layout_hash = "0123456789abcdef".to_owned());
    expect(folder.open_probed(), "plugin-abi", "another layout of the ABI: 0123456789abcdef");
}

#[test]
fn short_struct() {
    expect(Folder::compiled(&["FAULT_SHORT"]).open_probed(), "plugin-table-short", "bytes, at least");
    expect(Folder::compiled(&["FAULT_EMPTY"]).open_probed(), "plugin-table-short", "a table of 0 bytes");
}

#[test]
fn required_entry_is_null() {
    expect(Folder::compiled(&["FAULT_HOLE"]).open_probed(), "plugin-table-hole", "without `program_run`");
    expect(Folder::compiled(&["FAULT_SOME_EVENTS"]).open_probed(), "plugin-table-hole", "event_create");
}

#[test]
fn panic_that_the_plugin_caught() {
    let folder = Folder::compiled(&["FAULT_PANIC"]);
    // The plugin as a whole is sound; its device is not to be used.
    let plugin = folder.open_probed().unwrap();
    let opened = plugin.open_device(0, &DeviceOptions::default());
    expect(opened, "plugin-panicked", "the plugin panicked: index out of bounds");
}

#[test]
fn abort() {
    let folder = Folder::compiled(&["FAULT_ABORT"]);
    expect(folder.open_probed(), "plugin-crashed", "signal 6 (SIGABRT)");
}

#[test]
fn what_a_crash_says_about_itself() {
    let error = expect(Folder::compiled(&["FAULT_ABORT"]).open_probed(), "plugin-crashed", "during=opening device 0");
    assert!(format!("{error:?}").contains("assertion failed: the driver is not amused"), "{error:?}");
}

#[test]
fn crashes_of_other_kinds() {
    expect(Folder::compiled(&["FAULT_SEGV"]).open_probed(), "plugin-crashed", "signal 11 (SIGSEGV)");
    expect(Folder::compiled(&["FAULT_CONSTRUCTOR"]).open_probed(), "plugin-crashed", "during=opening the library");
    expect(
        Folder::compiled(&["FAULT_EXIT"]).open_probed(),
        "plugin-crashed",
        "exited with status 0 and without a result",
    );
    expect(Folder::compiled(&["FAULT_EXIT_HANDLER"]).open_probed(), "plugin-crashed", "signal 6 (SIGABRT)");
}

#[test]
fn hang() {
    let folder = Folder::compiled(&["FAULT_HANG"]);
    let mut probe = folder.probe();
    probe.limit = Some(std::time::Duration::from_millis(1500));
    let options = strata_plugin_host::OpenOptions::probed(probe);
    let opened = strata_plugin_host::Plugin::open(&folder.entry().unwrap(), &options);
    expect(opened, "plugin-hung", "did not answer within 1500 ms during=opening device 0 (test device)");
}

#[test]
fn missing_symbol() {
    expect(
        Folder::compiled(&["FAULT_NO_ENTRY"]).open_probed(),
        "plugin-entry",
        "undefined symbol: strata_backend_entry",
    );
}

#[test]
fn undefined_symbol() {
    let folder = Folder::compiled(&["FAULT_UNDEFINED"]);
    expect(folder.open_probed(), "plugin-load", "undefined symbol: strata_test_is_defined_nowhere");
}

#[test]
fn d08_no_room_for_thread_storage() {
    let folder = Folder::compiled(&["FAULT_TLS"]);
    let error = expect(folder.open_probed(), "plugin-load", "cannot allocate memory in static TLS block");
    assert!(error.to_string().contains("libtest.so"), "{error}");
    // Whatever was refused, others load; and the order makes no difference.
    let sound = Folder::compiled(&[]);
    sound.open_probed().unwrap();
    expect(folder.open(), "plugin-load", "cannot allocate memory in static TLS block");
    assert_eq!(sound.open().unwrap().name(), "test");
}

#[test]
fn d05_refusals() {
    expect(Folder::compiled(&["FAULT_REFUSE"]).open_probed(), "driver-unusable", "libvendor.so.1 is not here");
    expect(Folder::compiled(&["FAULT_NO_KERNELS"]).open_probed(), "kernels-not-built", "no vendor compiler");
    expect(Folder::compiled(&["FAULT_REFUSE_999"]).open_probed(), "plugin-refused", "status 999, which this version");
}

#[test]
fn identity_differs_from_the_descriptor() {
    let error = expect(Folder::compiled(&["FAULT_NAME"]).open_probed(), "plugin-descriptor", "disagree on its name");
    assert!(error.to_string().contains("somebody else and test"), "{error}");
    let folder = Folder::compiled(&[]);
    folder.describe(|descriptor| descriptor.version = "9.9.9".parse().unwrap());
    expect(folder.open_probed(), "plugin-descriptor", "and 9.9.9");
}

#[test]
fn devices_that_are_not_there() {
    let plugin = Folder::compiled(&["FAULT_COUNT"]).open_probed().unwrap();
    let slots = plugin.device_slots().unwrap();
    assert_eq!(slots.len(), 3);
    assert!(slots[0].is_ok());
    expect(slots[2].clone(), "plugin-misbehaved", "counts a device 2 that `device_info` does not know");
    assert_eq!(plugin.devices().unwrap().len(), 1);
    expect(plugin.open_device(1, &DeviceOptions::default()), "plugin-misbehaved", "counts a device 1");
    expect(plugin.open_device(3, &DeviceOptions::default()), "invalid-call", "device 3 of 3");
    expect(Folder::compiled(&["FAULT_COUNT_HUGE"]).open_probed(), "plugin-misbehaved", "4294967295 devices");
    let none = Folder::compiled(&["FAULT_NO_DEVICES"]).open_probed().unwrap();
    assert!(none.devices().unwrap().is_empty());
    let odd = Folder::compiled(&["FAULT_KIND"]).open_probed().unwrap();
    expect(odd.devices(), "plugin-misbehaved", "device kind 9");
}

#[test]
fn unknown_status() {
    expect(Folder::compiled(&["FAULT_STATUS"]).open_probed(), "plugin-misbehaved", "returned status 77");
}

#[test]
fn handles_of_somebody_else() {
    // Opened without a probe, so that the calls happen here.
    let foreign = Folder::compiled(&["FAULT_FOREIGN_HANDLE"]).open().unwrap();
    expect(foreign.open_device(0, &DeviceOptions::default()), "plugin-misbehaved", "a handle of instance");
    let none = Folder::compiled(&["FAULT_NO_HANDLE"]).open().unwrap();
    expect(none.open_device(0, &DeviceOptions::default()), "plugin-misbehaved", "no handle and no failure");
}

#[test]
fn lengths_that_lie() {
    let plugin = Folder::compiled(&["FAULT_TEXT_LENGTH"]).open_probed().unwrap();
    let device = plugin.open_device(0, &DeviceOptions::default()).unwrap();
    assert!(device.report().starts_with("scalar, since it is a test"), "{}", device.report());
    let mapped = Folder::compiled(&["FAULT_MAP"]).open().unwrap();
    let device = mapped.open_device(0, &DeviceOptions::default()).unwrap();
    let buffer = device.alloc(strata_backend_abi::StrataBufferKind::HostVisible, 64, "test").unwrap();
    expect(buffer.with_mapped(|bytes| bytes.len()), "plugin-misbehaved", "a null address and no failure");
}

#[test]
fn wrong_numbers() {
    for fault in ["FAULT_NUMBERS", "FAULT_NAN"] {
        let plugin = Folder::compiled(&[fault]).open_probed().unwrap();
        let opened = plugin.open_device(0, &DeviceOptions::default());
        expect(opened, "plugin-wrong-numbers", "norm, matrix product and sum: element");
    }
}

#[test]
fn no_permission() {
    let plugin = Folder::compiled(&["FAULT_PERMISSION"]).open_probed().unwrap();
    let error = expect(plugin.open_device(0, &DeviceOptions::default()), "device-permission", "/dev/kfd");
    assert!(!strata_diag::Diagnose::hints(&error).is_empty(), "the hint comes through the probe");
}
