//! AMD's own runtime where one is installed (Debian: `apt install libamdhip64-5`), on a machine without a card
//! of AMD's: "no device", in words, and a process that goes on.

use strata_backend_abi::StrataStatus;
use strata_gpu::Runtime;
use strata_hip::HipRuntime;

#[test]
fn amds_own_runtime_says_that_there_is_no_device() {
    let named = std::env::var("STRATA_TEST_HIP_REAL").unwrap_or_else(|_| "libamdhip64.so.5".to_owned());
    let failure = match HipRuntime::start(Some(&named)) {
        Ok(runtime) => match runtime.cards() {
            Ok(cards) => {
                eprintln!("skipped: this machine has {} AMD cards", cards.len());
                return;
            }
            Err(failure) => failure,
        },
        Err(failure) if failure.text.contains("not installed") => {
            eprintln!("skipped: {}", failure.text);
            return;
        }
        Err(failure) => failure,
    };
    println!("{:?}: {}", failure.status, failure.text);
    let known = [StrataStatus::NoDevice, StrataStatus::DriverMissing, StrataStatus::NoPermission];
    assert!(known.contains(&failure.status), "{:?}: {}", failure.status, failure.text);
    let library = failure.text.contains("libamdhip64.so.5") || failure.text.contains(&named);
    assert!(library && failure.text.contains("(hipError"), "{}", failure.text);
    // Once more: nothing of the first try is left over.
    assert!(HipRuntime::start(Some(&named)).and_then(|runtime| runtime.cards()).is_err());
}
