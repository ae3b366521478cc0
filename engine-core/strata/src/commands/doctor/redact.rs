//! A report to show others: no user, no host name, no home folder, no serial numbers of hardware.

use strata_manifest::HostFacts;

/// Names shorter than this would take half of the text with them.
const SHORTEST: usize = 3;

pub(super) fn redacted(text: &str, host: &HostFacts) -> String {
    let mut secrets: Vec<(String, String)> = Vec::new();
    for (index, gpu) in host.gpus.iter().enumerate() {
        for id in gpu.unique_id.iter().chain(gpu.mig.iter().map(|slice| &slice.uuid)) {
            secrets.push((id.clone(), format!("<id of GPU {index}>")));
            // A plugin may write it without the prefix.
            secrets.push((id.trim_start_matches("0x").trim_start_matches("GPU-").to_owned(), "<id>".to_owned()));
        }
    }
    let variable = |name: &str| std::env::var(name).ok();
    secrets.extend(variable("HOME").map(|home| (home.trim_end_matches('/').to_owned(), "~".to_owned())));
    secrets.extend(variable("USER").or_else(|| variable("LOGNAME")).map(|user| (user, "<user>".to_owned())));
    let host_name = fs_err::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    secrets.push((host_name.trim().to_owned(), "<host>".to_owned()));
    replaced(text, secrets)
}

fn replaced(text: &str, mut secrets: Vec<(String, String)>) -> String {
    secrets.retain(|(secret, _)| secret.chars().count() >= SHORTEST);
    // The longest first: a user's name is part of the home folder's.
    secrets.sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
    secrets.iter().fold(text.to_owned(), |text, (secret, instead)| text.replace(secret, instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_secret_goes_first_and_short_ones_are_none() {
        let secrets = [("anna", "<user>"), ("/home/anna", "~"), ("0", "<id>"), ("0xabcdef", "<id of GPU 0>")];
        let secrets = secrets.map(|(secret, instead)| (secret.to_owned(), instead.to_owned())).to_vec();
        let text = "/home/anna/models on anna's GPU 0xabcdef with 10 GiB";
        assert_eq!(replaced(text, secrets), "~/models on <user>'s GPU <id of GPU 0> with 10 GiB");
    }
}
