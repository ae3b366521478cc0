//! The version law: what the program says, what its ELF note says and what the workspace says are one.

use crate::support::{ran, strata};
use object::{Object, ObjectSection};

#[test]
fn program_note_and_workspace_say_the_same_version() {
    let said = ran(strata().args(["version", "--json"])).json();
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(ran(strata().arg("--version")).out, format!("strata {}\n", env!("CARGO_PKG_VERSION")));

    let bytes = fs_err::read(env!("CARGO_BIN_EXE_strata")).unwrap();
    let elf = object::File::parse(bytes.as_slice()).unwrap();
    let section = elf.section_by_name(strata_build_record::SECTION).expect("the note is in the file");
    let note = section.data().unwrap();
    let number = |at: usize| u32::from_le_bytes(note[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(&note[12..20], strata_build_record::NOTE_NAME);
    let record: serde_json::Value = serde_json::from_slice(&note[20..20 + number(4)]).unwrap();
    assert_eq!(record, said);
}

#[test]
fn the_record_is_a_build_record() {
    use strata_manifest::{BuildRecord, Document};
    let said = ran(strata().args(["version", "--json"])).out;
    let record = BuildRecord::parse(&said, std::path::Path::new("version --json")).unwrap();
    assert_eq!(record.name, "strata");
    assert!(record.commit == "unknown" || record.commit.len() == 40, "{record:?}");
    assert!(record.build_id.starts_with(&record.version.to_string()));
}
