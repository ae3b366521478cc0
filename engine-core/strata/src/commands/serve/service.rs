//! `strata serve … --install-service` and `--uninstall-service`: the same command line as a systemd user
//! unit. It writes or removes one file and runs nothing: what starts the service is printed.

use super::unit::{Origin, Unit, origin};
use crate::cli::{Cli, ServeArgs};
use crate::outcome::Outcome;
use crate::prefix::{self, Prefix};
use crate::{env, printer};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use std::any::TypeId;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::engine::FOREIGN_UNIT;
use strata_diag::catalogue::general::{BAD_OPTION, FILE_UNREADABLE, FILE_UNWRITABLE};
use strata_diag::{Diagnostic, ExitStatus};

/// Flags that say what happens to the unit, and are no part of it.
const OWN: &[&str] = &["install_service", "uninstall_service", "service_name", "replace_service"];

/// Whether systemd runs this machine: what `sd_booted` looks at.
const BOOTED: &str = "/run/systemd/system";

pub(super) fn install(args: &ServeArgs) -> Outcome {
    if args.api_key.is_some() {
        return Err(Diagnostic::new(BAD_OPTION, "a key of `--api-key` would stand in the unit's file")
            .hint("write it into a file that only you can read, and name that: `--api-key-file FILE`")
            .into());
    }
    let path = place(args)?;
    let found = existing(&path)?;
    let unit = unit(args)?;
    let text = unit.text();
    let before = found.as_deref().map(origin);
    match before {
        Some(Origin::Changed | Origin::Foreign) if !args.replace_service => {
            return Err(not_ours(&path, before)
                .hint("another name leaves it alone: `--service-name NAME`")
                .hint("or replace it: `--replace-service`")
                .into());
        }
        Some(Origin::Ours) if found.as_deref() == Some(&text) => {
            printer::talk(&format!("`{}` is as it was", path.display()));
        }
        _ => {
            write(&path, &text)?;
            printer::talk(&match before {
                None => format!("written: {}", path.display()),
                Some(Origin::Ours) => format!("written anew: {}", path.display()),
                Some(Origin::Changed) => format!("replaced, with what was changed in it: {}", path.display()),
                Some(Origin::Foreign) => format!("replaced one that something else had written: {}", path.display()),
            });
        }
    }
    printer::talk(&next_steps(&name(args)?, &unit, before.is_some()));
    Ok(ExitStatus::Done)
}

pub(super) fn uninstall(args: &ServeArgs) -> Outcome {
    let (path, name) = (place(args)?, name(args)?);
    let Some(found) = existing(&path)? else {
        printer::talk(&format!("there is no `{}`: nothing to remove", path.display()));
        return Ok(ExitStatus::Done);
    };
    let origin = origin(&found);
    if origin != Origin::Ours && !args.replace_service {
        return Err(not_ours(&path, Some(origin))
            .hint("remove it all the same: `--uninstall-service --replace-service`")
            .into());
    }
    // What `systemctl --user enable` made of it; a link elsewhere is somebody's.
    let link = path.with_file_name("default.target.wants").join(unit_name(&name));
    if fs_err::read_link(&link).is_ok_and(|target| target == path) {
        fs_err::remove_file(&link).map_err(unwritable)?;
    }
    fs_err::remove_file(&path).map_err(unwritable)?;
    printer::talk(&format!("removed: {}", path.display()));
    if Path::new(BOOTED).exists() {
        printer::talk(&format!(
            "one that runs goes on until it is stopped:\n  systemctl --user stop {name}\n  systemctl --user daemon-reload"
        ));
    }
    Ok(ExitStatus::Done)
}

fn not_ours(path: &Path, origin: Option<Origin>) -> Diagnostic {
    let message = match origin {
        Some(Origin::Changed) => "the unit was changed after `strata serve` wrote it",
        _ => "the unit is not one that `strata serve` wrote",
    };
    Diagnostic::new(FOREIGN_UNIT, message).fact("path", path.display())
}

/// Written beside and renamed: a reader finds the old text or the new one.
fn write(path: &Path, text: &str) -> Result<(), Diagnostic> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let unfinished = folder.join(format!(".{}.{}.new", env!("CARGO_PKG_NAME"), std::process::id()));
    let write = || -> std::io::Result<()> {
        fs_err::create_dir_all(folder)?;
        let mut file = fs_err::File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs_err::rename(&unfinished, path)
    };
    write().map_err(|error| {
        // What could not be finished is no unit, whether or not it can be taken away.
        let _ = fs_err::remove_file(&unfinished);
        unwritable(error)
    })
}

fn unwritable(error: std::io::Error) -> Diagnostic {
    Diagnostic::new(FILE_UNWRITABLE, "the unit cannot be written").fact("because", error)
}

/// The unit's text, if one is there. Something that is no file is not looked into.
fn existing(path: &Path) -> Result<Option<String>, Diagnostic> {
    match fs_err::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && fs_err::symlink_metadata(path).is_err() => {
            Ok(None)
        }
        Err(error) => {
            Err(Diagnostic::new(FILE_UNREADABLE, "what stands in the unit's place cannot be read")
                .fact("because", error))
        }
    }
}

fn place(args: &ServeArgs) -> Result<PathBuf, Diagnostic> {
    let folder = env::config_dir()
        .ok_or_else(|| Diagnostic::new(BAD_OPTION, "neither XDG_CONFIG_HOME nor HOME says where a user's units lie"))?;
    Ok(folder.join("systemd/user").join(unit_name(&name(args)?)))
}

fn unit_name(name: &str) -> String {
    format!("{name}.service")
}

/// What systemd takes as a name, without `@`, which would make a template of it.
fn name(args: &ServeArgs) -> Result<String, Diagnostic> {
    let name = args.service_name.strip_suffix(".service").unwrap_or(&args.service_name);
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    if name.is_empty() || name.len() > 200 || name.starts_with(['.', '-']) || !name.chars().all(fits) {
        return Err(Diagnostic::new(BAD_OPTION, format!("`{}` is no name for a service", args.service_name))
            .hint("letters, digits, `-`, `_`, `.` and `:`"));
    }
    Ok(name.to_owned())
}

fn unit(args: &ServeArgs) -> Result<Unit, Diagnostic> {
    let prefix = Prefix::find(args.engine.prefix.as_deref())?;
    let named = match &args.model {
        Some(model) => model.clone(),
        // By its name: one that is installed later changes nothing.
        None => prefix::default_model(prefix.as_ref())?,
    };
    prefix::model_path(&named, prefix.as_ref())?;
    let path = Path::new(&named);
    let model = if path.exists() { text(absolute(path)?.into_os_string())? } else { named };
    let program = Cli::command();
    let matches = program.clone().get_matches_from(std::env::args_os());
    let mut arguments = vec!["serve".to_owned(), model.clone()];
    if let (Some(command), Some(matches)) = (program.find_subcommand("serve"), matches.subcommand_matches("serve")) {
        for argument in command.get_arguments() {
            arguments.extend(written(argument, matches)?);
        }
    }
    Ok(Unit { model, program: program_word(own_path()?)?, arguments, environment: environment()?, grace: args.grace })
}

/// A flag of the command line as it stands in the unit, where no folder is the current one.
fn written(argument: &clap::Arg, matches: &ArgMatches) -> Result<Vec<String>, Diagnostic> {
    let (id, Some(flag)) = (argument.get_id().as_str(), argument.get_long()) else { return Ok(Vec::new()) };
    if OWN.contains(&id) || matches.value_source(id) != Some(ValueSource::CommandLine) {
        return Ok(Vec::new());
    }
    if !argument.get_action().takes_values() {
        return Ok(vec![format!("--{flag}")]);
    }
    let is_path = argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let values = matches.get_raw(id).into_iter().flatten();
    values
        .map(|value| {
            let value = if is_path { absolute(Path::new(value))?.into_os_string() } else { value.to_owned() };
            Ok(format!("--{flag}={}", text(value)?))
        })
        .collect()
}

/// The program as an update leaves it: below `current` when that leads to this one.
fn own_path() -> Result<PathBuf, Diagnostic> {
    let failed =
        |error| Diagnostic::new(FILE_UNREADABLE, "this program cannot find its own file").fact("because", error);
    let program = fs_err::canonicalize(std::env::current_exe().map_err(failed)?).map_err(failed)?;
    let through_current = || {
        let generation = program.parent()?.parent()?;
        let generations = generation.parent().filter(|folder| folder.ends_with("generations"))?;
        let path = generations.parent()?.join("current").join(program.strip_prefix(generation).ok()?);
        fs_err::canonicalize(&path).is_ok_and(|target| target == program).then_some(path)
    };
    Ok(through_current().unwrap_or(program))
}

/// systemd starts no program whose path has quotes or backslashes in it, however they are written.
fn program_word(path: PathBuf) -> Result<String, Diagnostic> {
    let word = text(path.into_os_string())?;
    if word.chars().any(|letter| letter.is_control() || "\"'\\".contains(letter)) {
        let message = format!("systemd starts no program with quotes or backslashes in its path: `{word}`");
        return Err(Diagnostic::new(BAD_OPTION, message).hint("install Strata into a folder without them"));
    }
    Ok(word)
}

/// Variables of this command that change what a server finds.
fn environment() -> Result<Vec<(String, String)>, Diagnostic> {
    let mut found = Vec::new();
    for (name, value) in env::of_service() {
        found.push((name.to_owned(), text(absolute(&value)?.into_os_string())?));
    }
    let masks = strata_probe::probe(&strata_probe::Root::live(), &strata_probe::Options::default()).masks;
    found.extend(masks.into_iter().map(|mask| (mask.variable, mask.value)));
    Ok(found)
}

fn absolute(path: &Path) -> Result<PathBuf, Diagnostic> {
    std::path::absolute(path).map_err(|error| {
        Diagnostic::new(FILE_UNREADABLE, format!("`{}` has no absolute path", path.display())).fact("because", error)
    })
}

fn text(value: OsString) -> Result<String, Diagnostic> {
    value.into_string().map_err(|value| {
        Diagnostic::new(BAD_OPTION, format!("`{}` is not UTF-8, as a unit's file must be", value.display()))
    })
}

fn next_steps(name: &str, unit: &Unit, was_there: bool) -> String {
    if !Path::new(BOOTED).exists() {
        let words: Vec<&str> = std::iter::once(&unit.program).chain(&unit.arguments).map(String::as_str).collect();
        return format!(
            "note: systemd does not run on this machine, so nothing starts the service. The command itself:\n  {}",
            words.iter().map(|word| shell(word)).collect::<Vec<_>>().join(" ")
        );
    }
    let reload = if was_there { format!("\n  systemctl --user restart {name}") } else { String::new() };
    format!(
        "to start it now and at every login:\n  systemctl --user daemon-reload\n  systemctl --user enable --now {name}{reload}\n\
         to have it run without a login too, from the machine's start on:\n  loginctl enable-linger\n\
         its talk: journalctl --user -u {name}"
    )
}

/// A word as a shell reads it.
fn shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
