//! Makes the kernels' libraries for this machine's processor: `cargo run -p strata-kernel-build --example host_kernels -- FOLDER`.
use std::path::Path;

use strata_kernel_build::{HOST_WAVES, HostOutcome, host_library};

#[expect(clippy::print_stdout, reason = "what this example is for")]
fn main() -> Result<(), String> {
    let out = std::env::args_os().nth(1).ok_or("which folder?")?;
    fs_err::create_dir_all(&out).map_err(|error| error.to_string())?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    for wave in HOST_WAVES {
        match host_library(&sources, Path::new(&out), wave)? {
            HostOutcome::Built(library) => println!("{}", library.display()),
            HostOutcome::NotBuilt(reason) => println!("not built: {reason}"),
        }
    }
    Ok(())
}
