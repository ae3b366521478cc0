//! Both libraries (waves of 32 and 64), guarded memory for kernels, and a launch that is done at both
//! widths and in several orders of the work-items, and must give the same bits each time.

#![expect(unsafe_code, reason = "opens the library, calls it, and hands it guarded memory")]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;

use strata_kernel_build::{HOST_WAVES, HostOutcome, host_library};

/// Written by no kernel on purpose; a NaN as a float.
pub(crate) const UNTOUCHED: u8 = 0xcd;
/// Orders of work-items between the places where they meet.
const ORDERS: [u32; 3] = [0, 1, 0x5bd1_e995];

#[repr(C)]
struct Listed {
    name: *const c_char,
    n_params: usize,
    most_items: u32,
}

type LaunchFn = unsafe extern "C" fn(*const c_char, *const u32, u32, u32, *const u8, usize) -> c_int;

struct Width {
    lanes: u32,
    launch: LaunchFn,
    message: unsafe extern "C" fn() -> *const c_char,
    order: unsafe extern "C" fn(u32),
    names: Vec<String>,
    _library: libloading::Library,
}

impl Width {
    fn open(path: &Path) -> Width {
        // SAFETY: the library was built just now from this repository's sources; its constructors do nothing.
        let library = unsafe { libloading::Library::new(path) }.expect("the library opens");
        // SAFETY: the types are those that host_launch.h declares.
        let list = *unsafe { library.get::<unsafe extern "C" fn(*mut *const Listed) -> usize>(b"strata_host_kernels") }
            .expect("the list is there");
        // SAFETY: as above.
        let launch = *unsafe { library.get::<LaunchFn>(b"strata_host_launch") }.expect("launch is there");
        // SAFETY: as above.
        let message = *unsafe { library.get::<unsafe extern "C" fn() -> *const c_char>(b"strata_host_message") }
            .expect("message is there");
        // SAFETY: as above.
        let order = *unsafe { library.get::<unsafe extern "C" fn(u32)>(b"strata_host_order") }.expect("order is there");
        // SAFETY: as above.
        let wave =
            *unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"strata_host_wave") }.expect("wave is there");
        let mut listed = std::ptr::null();
        // SAFETY: the call writes one pointer.
        let n = unsafe { list(&raw mut listed) };
        // SAFETY: the library answers with an array of that many, which it keeps.
        let listed = unsafe { std::slice::from_raw_parts(listed, n) };
        // SAFETY: names are C strings of the library's constant data.
        let name = |kernel: &Listed| unsafe { CStr::from_ptr(kernel.name) }.to_string_lossy().into_owned();
        let names = listed.iter().map(name).collect();
        // SAFETY: the call takes and changes nothing.
        let lanes = unsafe { wave() };
        Width { lanes, launch, message, order, names, _library: library }
    }

    fn run(&self, launch: &Launch<'_>) -> Result<(), String> {
        let name = CString::new(launch.kernel).expect("a name");
        // SAFETY: `launch` names a kernel and its arguments; the addresses in them are those of rooms that outlive the call.
        let code = unsafe {
            (self.launch)(
                name.as_ptr(),
                launch.grid.as_ptr(),
                launch.block,
                launch.shared,
                launch.args.0.as_ptr(),
                launch.args.0.len(),
            )
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the call takes and changes nothing.
        let message = unsafe { (self.message)() };
        // SAFETY: the message is a C string until the next launch.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        Err(format!("wave {}: {code}: {text}", self.lanes))
    }
}

/// Arguments as C lays them out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args(Vec<u8>);

impl Args {
    pub(crate) fn new() -> Args {
        Args::default()
    }

    fn push(mut self, bytes: &[u8]) -> Args {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn room(self, room: &Room) -> Args {
        self.at(Some(room), 0)
    }

    pub(crate) fn at(self, room: Option<&Room>, offset: usize) -> Args {
        let address = room.map_or(0, |room| room.start as usize + offset);
        self.push(&address.to_ne_bytes())
    }

    pub(crate) fn null(self) -> Args {
        self.at(None, 0)
    }

    pub(crate) fn i64(self, value: usize) -> Args {
        self.push(&(value as i64).to_ne_bytes())
    }

    pub(crate) fn i32(self, value: i32) -> Args {
        self.push(&value.to_ne_bytes())
    }

    pub(crate) fn n(self, value: usize) -> Args {
        self.i32(value as i32)
    }

    pub(crate) fn f32(self, value: f32) -> Args {
        self.push(&value.to_ne_bytes())
    }

    pub(crate) fn done(mut self) -> Args {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self
    }
}

/// Memory that ends, up to the next multiple of 16, where nothing may be read.
#[derive(Debug)]
pub(crate) struct Room {
    start: *mut u8,
    bytes: usize,
    mapping: *mut libc::c_void,
    mapped: usize,
}

impl Room {
    /// `shift`: the address modulo 16.
    pub(crate) fn new(bytes: usize, shift: usize) -> Room {
        const PAGE: usize = 4096;
        let padded = (bytes + shift).next_multiple_of(16) - shift;
        let usable = (padded + 16).next_multiple_of(PAGE);
        let mapped = usable + PAGE;
        // SAFETY: a new private mapping, which nothing else has.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED, "memory");
        // SAFETY: the last page of the mapping.
        let guard = unsafe { mapping.cast::<u8>().add(usable) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(guard.cast(), PAGE, libc::PROT_NONE) }, 0);
        // SAFETY: inside the mapping, as `usable` is at least `padded`.
        let start = unsafe { guard.sub(padded) };
        let mut room = Room { start, bytes, mapping, mapped };
        room.bytes_mut().fill(UNTOUCHED);
        room
    }

    pub(crate) fn of(bytes: &[u8], shift: usize) -> Room {
        let mut room = Room::new(bytes.len(), shift);
        room.bytes_mut().copy_from_slice(bytes);
        room
    }

    pub(crate) fn of_f32(values: &[f32]) -> Room {
        Room::of(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>(), 0)
    }

    pub(crate) fn of_i32(values: &[i32]) -> Room {
        Room::of(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>(), 0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the room's own bytes; kernels run only while no such slice is held.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    pub(crate) fn f32s(&self) -> Vec<f32> {
        self.bytes().as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
    }

    pub(crate) fn i32s(&self) -> Vec<i32> {
        self.bytes().as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the room's own mapping.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) args: Args,
}

/// The two libraries and what was found.
pub(crate) struct Host {
    widths: Vec<Width>,
    launched: BTreeSet<String>,
    pub(crate) failures: Vec<String>,
    pub(crate) n_launches: usize,
    pub(crate) n_values: usize,
}

impl Host {
    /// None, with the reason, where the kernels cannot be built.
    pub(crate) fn open() -> Result<Host, String> {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels-host");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
        let mut widths = Vec::new();
        for wave in HOST_WAVES {
            match host_library(&sources, &out, wave).unwrap_or_else(|error| panic!("{error}")) {
                HostOutcome::Built(library) => widths.push(Width::open(&library)),
                HostOutcome::NotBuilt(reason) => return Err(reason),
            }
        }
        Ok(Host { widths, launched: BTreeSet::new(), failures: Vec::new(), n_launches: 0, n_values: 0 })
    }

    pub(crate) fn fail(&mut self, text: String) {
        self.failures.push(text);
    }

    /// Kernels of either library that no test launched.
    pub(crate) fn not_launched(&self) -> Vec<&str> {
        let all: BTreeSet<&str> = self.widths.iter().flat_map(|width| width.names.iter().map(String::as_str)).collect();
        all.into_iter().filter(|name| !self.launched.contains(*name)).collect()
    }

    pub(crate) fn n_kernels(&self) -> usize {
        self.launched.len()
    }

    /// Once at the first width that has the kernel, for results that may differ from run to run.
    pub(crate) fn once(&mut self, launch: &Launch<'_>) {
        self.launched.insert(launch.kernel.to_owned());
        for index in 0..self.widths.len() {
            self.n_launches += 1;
            if let Err(text) = self.widths[index].run(launch) {
                self.fail(text);
            }
        }
    }

    /// At every width that has the kernel and in every order; what is left in `results` is the first run's.
    pub(crate) fn run(&mut self, what: &str, launch: &Launch<'_>, results: &mut [&mut Room]) {
        self.launched.insert(launch.kernel.to_owned());
        let before: Vec<Vec<u8>> = results.iter().map(|room| room.bytes().to_vec()).collect();
        let mut first: Option<Vec<Vec<u8>>> = None;
        for width in self.widths.iter().filter(|width| width.names.iter().any(|name| name == launch.kernel)) {
            for order in ORDERS {
                for (room, bytes) in results.iter_mut().zip(&before) {
                    room.bytes_mut().copy_from_slice(bytes);
                }
                // SAFETY: sets a number.
                unsafe { (width.order)(order) };
                self.n_launches += 1;
                if let Err(text) = width.run(launch) {
                    self.failures.push(format!("{what}: {text}"));
                    return;
                }
                let after: Vec<Vec<u8>> = results.iter().map(|room| room.bytes().to_vec()).collect();
                match &first {
                    None => first = Some(after),
                    Some(first) if *first != after => {
                        let lanes = width.lanes;
                        self.failures.push(format!("{what}: {} differs at wave {lanes}, order {order}", launch.kernel));
                        return;
                    }
                    Some(_) => {}
                }
            }
        }
        for (room, bytes) in results.iter_mut().zip(first.unwrap_or_default()) {
            room.bytes_mut().copy_from_slice(&bytes);
        }
    }

    /// Compares numbers: `allowed` is the error that each may have. NaN is right where NaN is wanted.
    pub(crate) fn compare(&mut self, what: &str, got: &[f32], wanted: &[(f64, f64)]) {
        assert_eq!(got.len(), wanted.len(), "{what}");
        self.n_values += got.len();
        for (i, (got, (value, allowed))) in got.iter().zip(wanted).enumerate() {
            let error = (f64::from(*got) - value).abs();
            let right = if value.is_finite() { error <= *allowed } else { value.is_nan() && got.is_nan() };
            if !right {
                self.failures.push(format!("{what}: element {i} is {got}, not {value} within {allowed:e}"));
                return;
            }
        }
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(name: &str) -> Rng {
        let seed = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Rng(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }

    /// From -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    pub(crate) fn units(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * size).collect()
    }
}
