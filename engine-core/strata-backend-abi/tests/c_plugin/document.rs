//! The plugin that docs/ABI.md shows, as it stands there.
#![expect(unsafe_code, reason = "calls the table, as a host in C does")]

use std::sync::OnceLock;

use strata_backend_abi::{StrataDType, StrataHandle, StrataOpKind, StrataStatus};

use crate::host::{
    alloc, call, crate_folder, desc, entry_of, load, op, open, run, scratch, table, tensor, text, write,
};

fn listing() -> String {
    let document = fs_err::read_to_string(crate_folder().join("../../docs/ABI.md")).unwrap();
    let (_, rest) = document.split_once("```c\n").expect("docs/ABI.md shows a plugin in C");
    rest.split_once("```\n").expect("the listing ends").0.to_owned()
}

#[test]
fn the_plugin_of_the_document_works() {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let source = scratch("tiny.c");
        fs_err::write(&source, listing()).unwrap();
        let library = load("tiny.so", &source, &[]);
        fs_err::remove_file(&source).unwrap();
        library
    });
    let table = table(entry_of(library));
    assert_eq!(text(table.name), "tiny");
    let device = open(table);
    let buffer = alloc(table, device, 64).unwrap();
    let values: Vec<u8> = [1.0_f32, -2.0, 0.5].iter().flat_map(|value| value.to_ne_bytes()).collect();
    write(table, buffer, 0, &values);

    // Twice: y = 2x + 1 into bytes 32 and on, then y = 10y in place.
    let (x, y) = (tensor(StrataDType::F32, 0, 0, [3, 1], false), tensor(StrataDType::F32, 0, 32, [3, 1], false));
    let mut first = op(StrataOpKind::Scale, &[1, 0], 2.0);
    first.float[1] = 1.0;
    let (tensors, ops, buffers) = ([x, y], [first, op(StrataOpKind::Scale, &[1, 1], 10.0)], [buffer]);
    let desc = desc(&tensors, &ops, &buffers, &[]);
    let mut program = StrataHandle::NONE;
    assert_eq!(call!(table, program_compile, device, &raw const desc, &raw mut program), StrataStatus::Ok);
    assert_eq!(run(table, program, &[]), StrataStatus::Ok);
    let mut out = [0_u8; 12];
    assert_eq!(call!(table, buffer_read, buffer, 32, out.as_mut_ptr().cast(), 12), StrataStatus::Ok);
    let got: Vec<f32> = out.chunks(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(got, [30.0, -30.0, 20.0]);

    let mut other = tensors;
    other[0].dtype = StrataDType::F16 as u32;
    let refused = crate::host::desc(&other, &ops, &buffers, &[]);
    let status = call!(table, op_supported, device, &raw const refused, 0, std::ptr::null_mut());
    assert_eq!(status, StrataStatus::Unsupported);
    assert_eq!(call!(table, program_free, program), StrataStatus::Ok);
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
}
