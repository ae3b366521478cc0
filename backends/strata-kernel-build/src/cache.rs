//! Compiled once for everybody: build scripts of several plugins, profiles and tests want the same outputs,
//! and compiling all kernels takes minutes. A folder in cargo's target folder keeps each output under a
//! digest of what it is made of: the command without its paths, the compiler's version, every input's bytes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Makes `out` by running `command` unless the very same was made before. `inputs` are all files that it reads.
pub(crate) fn make(mut command: Command, inputs: &[PathBuf], out: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let key = key(&command, inputs)?;
    let stamp = PathBuf::from(format!("{}.key", out.display()));
    if out.is_file() && fs_err::read_to_string(&stamp).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let kept = folder(out).map(|folder| folder.join(&key));
    if let Some(kept) = kept.as_ref().filter(|kept| kept.is_file()) {
        fs_err::copy(kept, out).map_err(text)?;
        return fs_err::write(&stamp, key).map_err(text);
    }
    run(&mut command)?;
    if let Some(kept) = kept {
        // Under its name only when it is whole.
        let part = kept.with_extension(format!("{}.part", std::process::id()));
        if let Some(folder) = kept.parent() {
            fs_err::create_dir_all(folder).map_err(text)?;
        }
        fs_err::copy(out, &part).map_err(text)?;
        fs_err::rename(&part, &kept).map_err(text)?;
    }
    fs_err::write(&stamp, key).map_err(text)
}

/// In the target folder that `out` lies in, which cargo marks.
fn folder(out: &Path) -> Option<PathBuf> {
    let target = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("strata-kernels"))
}

fn key(command: &Command, inputs: &[PathBuf]) -> Result<String, String> {
    let mut hashes = [DefaultHasher::new(), DefaultHasher::new()];
    hashes[1].write_u8(1);
    let mut add = |bytes: &[u8]| hashes.iter_mut().for_each(|hash| bytes.hash(hash));
    let program = Path::new(command.get_program());
    add(version(program)?.as_bytes());
    let mut is_output = false;
    for argument in command.get_args() {
        let path = Path::new(argument);
        let named = if path.is_absolute() { path.file_name().unwrap_or_default() } else { argument };
        if !is_output {
            add(named.as_encoded_bytes());
        }
        is_output = argument == "-o";
    }
    for input in inputs {
        add(input.file_name().unwrap_or_default().as_encoded_bytes());
        add(&fs_err::read(input).map_err(|error| error.to_string())?);
    }
    Ok(format!("{:016x}{:016x}", hashes[0].finish(), hashes[1].finish()))
}

/// What the program says of itself, asked once.
fn version(program: &Path) -> Result<String, String> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, String>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(version) = known.get(program) {
        return Ok(version.clone());
    }
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    known.insert(program.to_owned(), version.clone());
    Ok(version)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed ({}):\n{said}", command.get_program().display(), output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_command_over_the_same_bytes_is_run_once() {
        let root = std::env::temp_dir().join(format!("strata-kernel-cache-{}", std::process::id()));
        fs_err::create_dir_all(root.join("one")).expect("a folder");
        fs_err::create_dir_all(root.join("two")).expect("a folder");
        fs_err::write(root.join("CACHEDIR.TAG"), "").expect("a file");
        let input = root.join("input");
        let make_in = |folder: &str, text: &str| {
            fs_err::write(&input, text).expect("a file");
            let (out, count) = (root.join(folder).join("out"), root.join("count"));
            let mut command = Command::new("sh");
            // Writes one line more each time that it runs.
            let script = format!("echo ran >> {}; cp {} $1", count.display(), input.display());
            command.args(["-c", &script, "-o"]).arg(&out);
            make(command, std::slice::from_ref(&input), &out).expect("runs");
            let runs = fs_err::read_to_string(&count).map_or(0, |count| count.lines().count());
            (fs_err::read_to_string(&out).expect("made"), runs)
        };
        assert_eq!(make_in("one", "a"), ("a".to_owned(), 1));
        assert_eq!(make_in("one", "a"), ("a".to_owned(), 1));
        assert_eq!(make_in("two", "a"), ("a".to_owned(), 1));
        assert_eq!(make_in("two", "b"), ("b".to_owned(), 2));
        assert_eq!(make_in("one", "b"), ("b".to_owned(), 2));
        fs_err::remove_dir_all(&root).expect("removed");
    }
}
