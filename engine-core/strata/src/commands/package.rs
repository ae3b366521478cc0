//! `strata package`: builds, indexes and signs. The work is strata-package's; here are flags, the
//! plugin's descriptor (which only strata-plugin-host can write) and what is printed.

use crate::cli::{
    PackageArgs, PackageBuildArgs, PackageCommand, PackageIndexArgs, PackageKeygenArgs, PackageKeysArgs,
    PackageSignArgs, PackageTrustRootArgs, SecretKeyArgs,
};
use crate::outcome::{Outcome, Stop};
use crate::printer;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::general::{BAD_OPTION, FILE_UNREADABLE};
use strata_diag::{Diagnose, Diagnostic, ExitStatus};
use strata_manifest::report::{BuiltArchive, BuiltComponent, PackageBuildReport};
use strata_manifest::{Document, KEYS_FILE, KeyList, PluginDescriptor, PublicKey, TrustRoot, UtcTime};
use strata_package::archive_write::Format;
use strata_package::build::{BuildOptions, Built, PluginFacts, build};
use strata_package::index::{self, Digests, IndexOptions};
use strata_package::sign::{self, SigningKey};
use strata_package::stage::Folders;
use strata_package::{PackageError, keys};

const SECONDS_PER_DAY: u64 = 86_400;

pub(crate) fn run(args: &PackageArgs) -> Outcome {
    match &args.command {
        PackageCommand::Build(args) => run_build(args),
        PackageCommand::Index(args) => run_index(args),
        PackageCommand::Keygen(args) => run_keygen(args),
        PackageCommand::Sign(args) => run_sign(args),
        PackageCommand::Keys(args) => run_keys(args),
        PackageCommand::TrustRoot(args) => run_trust_root(args),
    }
}

fn bad_option(message: String) -> Stop {
    Diagnostic::new(BAD_OPTION, message).into()
}

fn run_build(args: &PackageBuildArgs) -> Outcome {
    let mut formats = Vec::new();
    for word in &args.format {
        let format = Format::from_suffix(word);
        let format = format.ok_or_else(|| bad_option(format!("`--format {word}`: it is tar.gz, tar.zst or zip")))?;
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    let source = match &args.source {
        Some(source) => source.clone(),
        None => source_above(&args.recipes[0])?,
    };
    let folders = Folders { build: &args.from, source: &source };
    let options = BuildOptions {
        folders,
        out: &args.out,
        formats: &formats,
        exact: args.exact,
        allow_build_paths: args.allow_build_paths,
        describe_plugin: &describe,
    };
    let mut report = PackageBuildReport { schema: "strata-package-build/1.0", components: Vec::new() };
    for recipe in &args.recipes {
        let built = build(recipe, &options)?;
        let component = reported(&built)?;
        if !args.json {
            printer::talk(&summary(&built, &component));
            for archive in &built.archives {
                printer::data(&format!("{}\n", archive.display()))?;
            }
        }
        report.components.push(component);
    }
    if args.json {
        printer::document(&report)?;
    }
    Ok(ExitStatus::Done)
}

/// The folder with `Cargo.lock` at or above a recipe.
fn source_above(recipe: &Path) -> Result<PathBuf, Stop> {
    let absolute = std::path::absolute(recipe).unwrap_or_else(|_| recipe.to_owned());
    let found = absolute.ancestors().skip(1).find(|folder| folder.join("Cargo.lock").is_file());
    found.map(Path::to_owned).ok_or_else(|| {
        bad_option(format!("no `Cargo.lock` lies above `{}`: name the source with `--source`", recipe.display()))
    })
}

fn describe(facts: &PluginFacts<'_>) -> Result<PluginDescriptor, PackageError> {
    let targets: Vec<&str> = facts.targets.iter().map(String::as_str).collect();
    strata_plugin_host::describe_library(facts.library, facts.name, facts.kind, &targets).map_err(|error| {
        PackageError::Disagrees {
            path: facts.library.display().to_string(),
            what: "cannot be described as a plugin",
            expected: "a plugin library".to_owned(),
            got: error.to_string(),
        }
    })
}

fn reported(built: &Built) -> Result<BuiltComponent, PackageError> {
    let component = &built.component;
    let mut archives = Vec::new();
    for path in &built.archives {
        let digests = Digests::of_file(path)?;
        archives.push(BuiltArchive {
            path: path.display().to_string(),
            size: digests.size,
            sha256: digests.sha256.to_string(),
        });
    }
    Ok(BuiltComponent {
        id: component.id(),
        version: component.version.to_string(),
        files: component.files.len(),
        unpacked_bytes: component.unpacked_bytes(),
        third_party: component.third_party.len(),
        gpu_targets: component.gpu_targets.clone(),
        libc_floor: component.libc_floor.clone(),
        host_libraries: component.host_libraries.iter().map(|library| library.soname.clone()).collect(),
        archives,
    })
}

fn summary(built: &Built, reported: &BuiltComponent) -> String {
    let component = &built.component;
    // Writing to a String cannot fail.
    let mut text = format!(
        "{} {} (build {}): {} files, {} bytes, {} third-party parts",
        reported.id,
        reported.version,
        component.build.build_id,
        reported.files,
        reported.unpacked_bytes,
        reported.third_party
    );
    for (name, values) in [("GPU targets", &reported.gpu_targets), ("needs of the host", &reported.host_libraries)] {
        if !values.is_empty() {
            let _ = write!(text, "\n  {name}: {}", values.join(", "));
        }
    }
    if let Some(floor) = &component.libc_floor {
        let _ = write!(text, "\n  runs with glibc {floor} or newer");
    }
    text
}

fn run_index(args: &PackageIndexArgs) -> Outcome {
    let created = match &args.created {
        Some(text) => text.parse().map_err(|error| bad_option(format!("`--created`: {error}")))?,
        None => UtcTime::now(),
    };
    let expires = days_after(created, args.expires_days);
    let mut models = Vec::new();
    for model in &args.model {
        let parts = model.split_once('=').filter(|(name, files)| !name.is_empty() && !files.is_empty());
        let (name, files) = parts.ok_or_else(|| bad_option(format!("`--model {model}` is not NAME=FILE")))?;
        models.push((name.to_owned(), files.split(',').map(PathBuf::from).collect()));
    }
    let release = index::index(&args.folder, &IndexOptions { created, expires, serial: args.serial, models })?;
    let ids: Vec<String> = release.components.iter().map(strata_manifest::ReleaseComponent::id).collect();
    printer::talk(&format!(
        "release {} number {}, expires {}: {} ({} files)",
        release.version,
        release.serial,
        release.expires,
        ids.join(", "),
        release.files().count()
    ));
    for path in index::signed_files(&args.folder) {
        printer::data(&format!("{}\n", path.display()))?;
    }
    Ok(ExitStatus::Done)
}

fn days_after(time: UtcTime, days: u32) -> UtcTime {
    UtcTime::from_seconds(time.seconds() + u64::from(days) * SECONDS_PER_DAY)
}

fn run_keygen(args: &PackageKeygenArgs) -> Outcome {
    let password = match &args.password_file {
        _ if args.no_password => None,
        Some(file) => Some(first_line(file)?),
        None => {
            let first = ask("Password for the new secret key: ")?;
            if ask("The same once more: ")? != first {
                return Err(bad_option("the two passwords differ".to_owned()));
            }
            Some(first)
        }
    };
    let key = sign::keygen(&args.stem, password)?;
    let stem = args.stem.display();
    printer::talk(&format!("wrote {stem}.key (keep it secret) and {stem}.pub"));
    printer::data(&format!("{}\n", key.id))?;
    Ok(ExitStatus::Done)
}

fn ask(prompt: &str) -> Result<String, Stop> {
    rpassword::prompt_password(prompt).map_err(|error| {
        let message = format!("no password can be asked for here: {error}");
        Diagnostic::new(BAD_OPTION, message).hint("give it with `--password-file FILE`").into()
    })
}

fn first_line(file: &Path) -> Result<String, Stop> {
    let text = fs_err::read_to_string(file).map_err(|error| Diagnostic::new(FILE_UNREADABLE, error.to_string()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn signing_key(args: &SecretKeyArgs) -> Result<SigningKey, Stop> {
    let mut stopped = None;
    let read = SigningKey::read(&args.key, &mut || {
        let password = match &args.password_file {
            Some(file) => first_line(file),
            None => ask(&format!("Password of {}: ", args.key.display())),
        };
        password.map_err(|stop| {
            stopped = Some(stop);
            PackageError::Key { path: args.key.clone(), why: "it needs a password".to_owned() }
        })
    });
    match (read, stopped) {
        (Ok(key), _) => Ok(key),
        (Err(_), Some(stop)) => Err(stop),
        (Err(error), None) => Err(error.into()),
    }
}

fn run_sign(args: &PackageSignArgs) -> Outcome {
    // All of it is looked at before anything is signed, and before a password is asked for.
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            index::check(path)?;
            files.extend(index::signed_files(path));
        } else {
            files.push(path.clone());
        }
    }
    let key = signing_key(&args.key)?;
    let now = UtcTime::now();
    for file in &files {
        let signature = key.sign_file(file, now)?;
        printer::data(&format!("{}\n", signature.display()))?;
    }
    printer::talk(&format!("signed with key {}", key.public().id));
    Ok(ExitStatus::Done)
}

fn run_keys(args: &PackageKeysArgs) -> Outcome {
    let now = UtcTime::now();
    let mut listed: Vec<PublicKey> = Vec::new();
    for (paths, revoked) in [(&args.add, false), (&args.revoke, true)] {
        for path in paths {
            listed.push(PublicKey { revoked, ..sign::read_public(path)? });
        }
    }
    let schema = KeyList::SCHEMA.to_owned();
    let serial = args.serial.unwrap_or(now.seconds());
    let list = KeyList { schema, serial, created: now, expires: days_after(now, args.expires_days), keys: listed };
    let root = signing_key(&args.root)?;
    keys::write_key_list(&args.folder, &list, &root)?;
    let path = args.folder.join(KEYS_FILE);
    printer::talk(&format!("{} keys, number {serial}, signed with root key {}", list.keys.len(), root.public().id));
    printer::data(&format!("{}\n{}\n", path.display(), sign::signature_path(&path).display()))?;
    Ok(ExitStatus::Done)
}

fn run_trust_root(args: &PackageTrustRootArgs) -> Outcome {
    let roots = args.keys.iter().map(|path| sign::read_public(path)).collect::<Result<Vec<_>, _>>()?;
    let root = TrustRoot { schema: TrustRoot::SCHEMA.to_owned(), roots };
    if let Some(fault) = root.faults().into_iter().next() {
        return Err(bad_option(fault));
    }
    root.write(&args.out).map_err(|error| Diagnostic::of(&error as &dyn Diagnose))?;
    printer::data(&format!("{}\n", args.out.display()))?;
    Ok(ExitStatus::Done)
}
