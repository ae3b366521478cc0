//! Releases for tests: small packages whose `bin/strata` is a script that answers a proof run as a
//! file in the plugin's folder says. Used by the tests of strata-install and strata-setup. Programs and plugins of
//! these are no ELF files, so they are listed as data: the verifier would rightly refuse them as what they are for.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::path::{Path, PathBuf};
use strata_install::plan::backend::{BackendChoice, GpuRequest};
use strata_install::plan::machine::{DeviceState, Machine, MachineDevice, Vendor};
use strata_install::plan::{Choices, Installed, Offered, Volumes};
use strata_install::{Applied, Apply, ArchiveSource, Disk, Folder, InstallError, InstallRoot, Observer};
use strata_manifest::plan::InstallPlan;
use strata_manifest::{
    AbiRange, BackendKind, BuildRecord, COMPONENT_FILE, Component, Document, FileMode, PackageFile, PinnedTrust,
    PluginDescriptor, RELEASE_FILE, Release, ReleaseComponent, ReleaseFile, Role, Sha256Digest, Trust, UtcTime,
    Version,
};
use strata_package::sbom;

/// Answers `internal-probe DESCRIPTOR` as the file `behaviour` beside the descriptor says, and
/// everything else with its version.
const PROGRAM: &str = r#"#!/bin/sh
if [ "$1" != internal-probe ]; then echo "strata VERSION $*"; exit 0; fi
set -- $(cat "$(dirname "$2")/behaviour")
line() { printf '\nstrata-probe-line %s\n' "$1"; }
line '{"stage":"computing"}'
case "$1" in
slow) sleep 2; line "{\"devices\":[{\"uid\":\"$2\",\"failure\":null}]}" ;;
pass) line "{\"devices\":[{\"uid\":\"$2\",\"failure\":null}]}" ;;
wrong) line "{\"devices\":[{\"uid\":\"$2\",\"failure\":{\"code\":\"S0326\",\"message\":\"it says 5 for 2 + 2\"}}]}" ;;
absent) line '{"failed":{"code":"S0331","message":"the plugin finds no device"}}'; exit 1 ;;
crash) kill -SEGV $$ ;;
silent) exit 0 ;;
hang) exec sleep 300 ;;
esac
"#;

/// A package to be made.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) component: &'static str,
    pub(crate) backend: Option<&'static str>,
    pub(crate) gpu_targets: Vec<&'static str>,
    pub(crate) libc_floor: Option<&'static str>,
    /// Of the ABI that its plugin is for.
    pub(crate) layout_hash: String,
    pub(crate) files: Vec<(String, Vec<u8>, FileMode, Role)>,
}

pub(crate) fn control(version: &str) -> Package {
    let program = PROGRAM.replace("VERSION", version);
    Package {
        component: "control",
        backend: None,
        gpu_targets: Vec::new(),
        libc_floor: Some("2.17"),
        layout_hash: String::new(),
        files: vec![
            ("bin/strata".to_owned(), program.into_bytes(), FileMode::Executable, Role::Data),
            (
                "share/doc/strata/README".to_owned(),
                format!("Strata {version}\n").into_bytes(),
                FileMode::Plain,
                Role::Doc,
            ),
        ],
    }
}

/// An engine whose plugin behaves in the given way when it is tried: `pass UID`, `wrong UID`,
/// `absent`, `crash`, `silent`, `hang`.
pub(crate) fn engine(version: &str, backend: &'static str, gpu_targets: &[&'static str], behaviour: &str) -> Package {
    let library = format!("library of {backend} {version}").into_bytes();
    let kind = match backend.split('-').next() {
        Some("cuda") => BackendKind::Cuda,
        Some("hip") => BackendKind::Hip,
        _ => BackendKind::Cpu,
    };
    let descriptor = PluginDescriptor {
        schema: PluginDescriptor::SCHEMA.to_owned(),
        name: backend.to_owned(),
        version: version.parse().unwrap(),
        kind,
        abi_lowest: "1.0".to_owned(),
        abi_highest: "1.0".to_owned(),
        layout_hash: "0".to_owned(),
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        targets: if kind.is_gpu() {
            gpu_targets.iter().map(|target| (*target).to_owned()).collect()
        } else {
            vec!["x86_64".to_owned()]
        },
        library: "plugin.so".to_owned(),
        sha256: Sha256Digest::of_bytes(&library),
        size: library.len() as u64,
        libc_floor: None,
        driver_floor: None,
        unproven: None,
    };
    let folder = format!("lib/strata/{backend}");
    let plain = FileMode::Plain;
    let code: Vec<u8> = gpu_targets.iter().flat_map(|target| gpu_code(target)).collect();
    let kernels = (format!("{folder}/kernels.co"), code, plain, Role::Kernel);
    Package {
        component: "engine",
        backend: Some(backend),
        gpu_targets: gpu_targets.to_vec(),
        libc_floor: Some("2.17"),
        layout_hash: "0".to_owned(),
        files: [
            (format!("{folder}/behaviour"), behaviour.as_bytes().to_vec(), plain, Role::Data),
            (format!("{folder}/plugin.so"), library, FileMode::Executable, Role::Data),
            (format!("{folder}/{backend}.plugin.json"), descriptor.to_text().into_bytes(), plain, Role::Descriptor),
        ]
        .into_iter()
        .chain((!gpu_targets.is_empty()).then_some(kernels))
        .collect(),
    }
}

/// As much of a code object as says which target it is for.
fn gpu_code(target: &str) -> Vec<u8> {
    let (machine, flags): (u16, u32) = match target {
        "gfx906:sramecc+:xnack-" => (224, 0xe2f),
        "gfx1100" => (224, 0x41),
        "gfx1101" => (224, 0x46),
        "gfx1102" => (224, 0x47),
        "sm_80" => (190, 80),
        "sm_90" => (190, 90),
        "compute_80" => return b"\n.version 8.0\n.target sm_80\n.address_size 64\n\0".to_vec(),
        other => panic!("no code for {other}"),
    };
    let mut image = vec![0_u8; 64];
    image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    image[8] = 7;
    image[18..20].copy_from_slice(&machine.to_le_bytes());
    image[48..52].copy_from_slice(&flags.to_le_bytes());
    image
}

/// Control, CPU engine, two HIP engines and CUDA, all of which pass.
pub(crate) fn all_packages(version: &str) -> Vec<Package> {
    vec![
        control(version),
        engine(version, "cpu", &[], "pass cpu"),
        engine(version, "hip-gfx906", &["gfx906:sramecc+:xnack-"], "pass 0000:03:00.0"),
        engine(version, "hip-rx7900", &["gfx1100", "gfx1101", "gfx1102"], "pass 0000:03:00.0"),
        engine(version, "cuda", &["sm_80", "sm_90", "compute_80"], "pass 0000:01:00.0"),
    ]
}

fn component(package: &Package, version: &Version) -> Component {
    let mut files: Vec<PackageFile> = package
        .files
        .iter()
        .map(|(path, bytes, mode, role)| PackageFile {
            path: path.parse().unwrap(),
            size: bytes.len() as u64,
            mode: *mode,
            sha256: Sha256Digest::of_bytes(bytes),
            role: *role,
            chunks: Vec::new(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Component {
        schema: Component::SCHEMA.to_owned(),
        component: package.component.to_owned(),
        backend: package.backend.map(str::to_owned),
        version: version.clone(),
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        source_epoch: 0,
        build: BuildRecord {
            schema: BuildRecord::SCHEMA.to_owned(),
            name: strata_manifest::component_id(package.component, package.backend),
            version: version.clone(),
            build_id: "test".to_owned(),
            commit: "unknown".to_owned(),
            dirty: false,
            target: "x86_64-unknown-linux-gnu".to_owned(),
            toolchain: "unknown".to_owned(),
            source_epoch: 0,
        },
        abi: package.backend.map(|_| AbiRange {
            lowest: "1.0".to_owned(),
            highest: "1.0".to_owned(),
            layout_hash: package.layout_hash.clone(),
        }),
        gpu_targets: package.gpu_targets.iter().map(|target| (*target).to_owned()).collect(),
        libc_floor: package.libc_floor.map(str::to_owned),
        libstdcxx_floor: None,
        host_libraries: Vec::new(),
        third_party: Vec::new(),
        sboms: Vec::new(),
        files,
    }
}

/// Adds the two bills of material, which are made from the component.
fn with_bills(package: &Package, version: &Version) -> (Package, Component) {
    let bare = component(package, version);
    let mut package = package.clone();
    let folder = format!("share/doc/strata-{}", bare.id());
    let mut sboms = Vec::new();
    for (name, text) in [(sbom::CYCLONEDX_FILE, sbom::cyclonedx(&bare)), (sbom::SPDX_FILE, sbom::spdx(&bare))] {
        let path = format!("{folder}/{name}");
        sboms.push(path.parse().unwrap());
        package.files.push((path, text.into_bytes(), FileMode::Plain, Role::Sbom));
    }
    let whole = Component { sboms, ..component(&package, version) };
    (package, whole)
}

/// Bytes and mode of a file; `None` for a folder.
type Content<'a> = Option<(&'a [u8], u32)>;

fn archive(folder: &Path, package: &Package, version: &Version) -> ReleaseComponent {
    let (package, component) = &with_bills(package, version);
    let stem = component.stem();
    let list = component.to_text().into_bytes();
    let mut entries: Vec<(String, &[u8], u32)> =
        package.files.iter().map(|(path, bytes, mode, _)| (path.clone(), bytes.as_slice(), mode.bits())).collect();
    entries.push((COMPONENT_FILE.to_owned(), &list, 0o644));
    entries.sort();
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut folders = std::collections::BTreeSet::new();
    let mut all: Vec<(String, Content<'_>)> = Vec::new();
    for (path, bytes, mode) in &entries {
        let path = format!("{stem}/{path}");
        for (end, _) in path.match_indices('/') {
            if folders.insert(path[..end].to_owned()) {
                all.push((format!("{}/", &path[..end]), None));
            }
        }
        all.push((path, Some((bytes, *mode))));
    }
    // The canonical order: the top folder, the manifest, then all others by name.
    let (top, list_name) = (format!("{stem}/"), format!("{stem}/{COMPONENT_FILE}"));
    all.sort_by_key(|(path, _)| (*path != top, *path != list_name, path.clone()));
    for (path, content) in all {
        let mut header = tar::Header::new_ustar();
        header.set_path(&path).unwrap();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let (bytes, mode, kind) = match content {
            Some((bytes, mode)) => (bytes, mode, tar::EntryType::Regular),
            None => (&[][..], 0o755, tar::EntryType::Directory),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    let name = format!("{stem}.tar.gz");
    fs_err::write(folder.join(&name), &bytes).unwrap();
    ReleaseComponent {
        component: component.component.clone(),
        backend: component.backend.clone(),
        version: version.clone(),
        os: component.os.clone(),
        cpu_arch: component.cpu_arch.clone(),
        gpu_targets: component.gpu_targets.clone(),
        abi: None,
        libc_floor: component.libc_floor.clone(),
        unpacked_bytes: component.unpacked_bytes() + list.len() as u64,
        manifest_sha256: Sha256Digest::of_bytes(&list),
        archives: vec![ReleaseFile {
            path: Some(name.parse().unwrap()),
            url: None,
            format: "tar.gz".to_owned(),
            size: bytes.len() as u64,
            sha256: Sha256Digest::of_bytes(&bytes),
            chunks_sha256: None,
            chunks: Vec::new(),
        }],
    }
}

/// Writes a release into a folder: archives and the unsigned index.
pub(crate) fn release(folder: &Path, version: &str, serial: u64, packages: &[Package]) -> Release {
    fs_err::create_dir_all(folder).unwrap();
    let parsed: Version = version.parse().unwrap();
    let mut components: Vec<ReleaseComponent> =
        packages.iter().map(|package| archive(folder, package, &parsed)).collect();
    components.sort_by_key(ReleaseComponent::id);
    let release = Release {
        schema: Release::SCHEMA.to_owned(),
        version: parsed,
        serial,
        created: UtcTime::from_seconds(1_700_000_000),
        expires: UtcTime::from_seconds(4_000_000_000),
        components,
        models: Vec::new(),
    };
    fs_err::write(folder.join(RELEASE_FILE), release.to_text()).unwrap();
    release
}

pub(crate) fn machine(devices: Vec<MachineDevice>) -> Machine {
    Machine {
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        libc: Some("2.36".to_owned()),
        ram_bytes: Some(64 << 30),
        devices,
        looked_at: vec!["/sys/class/kfd/kfd/topology/nodes".to_owned(), "/sys/bus/pci/devices".to_owned()],
    }
}

pub(crate) fn card(vendor: Vendor, name: &str, uid: &str, target: Option<&str>, state: DeviceState) -> MachineDevice {
    MachineDevice {
        uid: uid.to_owned(),
        other_ids: Vec::new(),
        vendor,
        name: name.to_owned(),
        target: target.map(str::to_owned),
        state,
        evidence: "as the test says".to_owned(),
        advice: (state != DeviceState::Usable).then(|| "do what the test says".to_owned()),
        memory_bytes: Some(16 << 30),
        display: false,
    }
}

pub(crate) fn request(backend: BackendChoice) -> GpuRequest {
    GpuRequest { backend, target: None, gpus: Vec::new() }
}

/// A prefix and what is installed into it.
pub(crate) struct Site {
    pub(crate) root: InstallRoot,
    pub(crate) machine: Machine,
    pub(crate) gpu: GpuRequest,
    pub(crate) again: bool,
    pub(crate) allow_unproven: bool,
    pub(crate) proof_limit: Option<std::time::Duration>,
}

impl Site {
    pub(crate) fn new(prefix: &Path) -> Site {
        Site {
            root: InstallRoot::new(prefix).unwrap(),
            machine: machine(Vec::new()),
            gpu: request(BackendChoice::Cpu),
            again: false,
            allow_unproven: false,
            proof_limit: None,
        }
    }

    pub(crate) fn plan(&self, folder: &Path) -> Result<InstallPlan, InstallError> {
        let folder = Folder::new(folder);
        let release = folder.parse(&folder.signed()?)?;
        let from = folder.path().display().to_string();
        let installed = self.root.installed()?;
        let choices = Choices {
            gpu: self.gpu.clone(),
            prefix: self.root.path().to_owned(),
            models_dir: self.root.models(),
            again: self.again,
            allow_downgrade: false,
            link: false,
        };
        let installed = Installed {
            receipt: installed.as_ref().map(|(_, receipt)| receipt),
            highest_serial: strata_install::Pins::read(&self.root)?.highest_serial,
            next_generation: self.root.next_generation(),
        };
        let offered = Offered { release: &release, from: &from, trust: &Trust::Unsigned };
        strata_install::plan::plan(&self.machine, offered, installed, &choices, &[], &Volumes::default())
    }

    pub(crate) fn install(&self, folder: &Path, disk: &Disk, observer: &dyn Observer) -> Result<Applied, InstallError> {
        let plan = self.plan(folder)?;
        let archives = ArchiveSource::of_plan(&plan, &Folder::new(folder))?;
        let pins = PinnedTrust { highest_serial: plan.release.serial, ..PinnedTrust::empty() };
        let work = Apply {
            root: &self.root,
            disk,
            plan: &plan,
            archives: &archives,
            models: &[],
            pins: &pins,
            allow_unproven: self.allow_unproven,
            keep_archives: true,
            link: None,
            now: 1_800_000_000,
            patience: std::time::Duration::ZERO,
            proof_limit: self.proof_limit,
        };
        strata_install::apply(&work, observer)
    }
}

/// What `current` leads to in words: version of the receipt, after every file was checked.
pub(crate) fn state(root: &InstallRoot) -> String {
    let Some(number) = root.current_generation() else {
        assert!(!root.current().exists(), "`current` leads nowhere");
        return "nothing".to_owned();
    };
    let audit = strata_install::audit(root, number, &strata_install::Unwatched).unwrap();
    assert_eq!(audit.damaged, Vec::new(), "generation {number}");
    root.receipt(number).unwrap().version.to_string()
}

pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs_err::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A folder in memory where the system has one: these tests sync a great deal, and mean the program, not the disk.
pub(crate) fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let probe = tempfile::tempdir_in(memory).ok().filter(|folder| {
        // Programs have to run from it.
        let script = folder.path().join("x");
        let written = fs_err::write(&script, "#!/bin/sh\n").is_ok();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        written
            && fs_err::set_permissions(&script, mode).is_ok()
            && std::process::Command::new(&script).status().is_ok_and(|status| status.success())
            && fs_err::remove_file(&script).is_ok()
    });
    probe.unwrap_or_else(|| tempfile::tempdir().unwrap())
}
