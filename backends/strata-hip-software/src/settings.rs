//! What kind of machine is played: `STRATA_SOFTWARE_HIP`, items with `;` between them, all optional.
//!
//! `target=gfx906:sramecc+:xnack-`, `devices=2`, `memory=512` (MiB of each card), `version=60443482`,
//! `kernels=FOLDER` (with `libstrata_kernels_wave32.so` and `…wave64.so`; without it launches are
//! counted and do nothing), `order=1` (another order of work-items), `fail=CALL:CODE:AFTER` (may be
//! given several times: the call answers the code from its AFTER-th time on; the call `kernel` is the
//! run of a kernel, whose failure shows at a wait).

/// Fails a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Injected {
    pub(crate) call: String,
    pub(crate) code: i32,
    /// Times that it still works.
    pub(crate) after: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) target: String,
    pub(crate) devices: u32,
    /// Bytes of each card.
    pub(crate) memory: u64,
    pub(crate) version: i32,
    pub(crate) kernels: Option<String>,
    pub(crate) order: u32,
    pub(crate) failures: Vec<Injected>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: "gfx906:sramecc+:xnack-".to_owned(),
            devices: 1,
            memory: 1 << 30,
            version: 70_051_831,
            kernels: None,
            order: 0,
            failures: Vec::new(),
        }
    }
}

impl Settings {
    pub(crate) fn of_environment() -> Settings {
        Settings::parse(&std::env::var("STRATA_SOFTWARE_HIP").unwrap_or_default())
    }

    /// What cannot be read is left as it is: a test that depends on it fails by its result.
    pub(crate) fn parse(text: &str) -> Settings {
        let mut settings = Settings::default();
        for item in text.split(';') {
            let Some((name, value)) = item.trim().split_once('=') else { continue };
            match name {
                "target" => value.clone_into(&mut settings.target),
                "devices" => settings.devices = value.parse().unwrap_or(settings.devices),
                "memory" => settings.memory = value.parse::<u64>().map_or(settings.memory, |mib| mib << 20),
                "version" => settings.version = value.parse().unwrap_or(settings.version),
                "kernels" => settings.kernels = Some(value.to_owned()),
                "order" => settings.order = value.parse().unwrap_or(0),
                "fail" => settings.failures.extend(injected(value)),
                _ => {}
            }
        }
        settings
    }
}

fn injected(value: &str) -> Option<Injected> {
    let mut parts = value.split(':');
    let call = parts.next()?.to_owned();
    let code = parts.next()?.parse().ok()?;
    let after = parts.next().map_or(Some(0), |after| after.parse().ok())?;
    Some(Injected { call, code, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_item_by_item() {
        let text = "target=gfx1100;devices=2; memory=512;fail=hipMalloc:2:3;fail=hipInit:100;odd;kernels=/a=b";
        let settings = Settings::parse(text);
        assert_eq!((settings.target.as_str(), settings.devices, settings.memory), ("gfx1100", 2, 512 << 20));
        assert_eq!(settings.kernels.as_deref(), Some("/a=b"));
        let failures: Vec<(&str, i32, u32)> =
            settings.failures.iter().map(|failure| (failure.call.as_str(), failure.code, failure.after)).collect();
        assert_eq!(failures, [("hipMalloc", 2, 3), ("hipInit", 100, 0)]);
        assert_eq!(Settings::parse(""), Settings::default());
    }
}
