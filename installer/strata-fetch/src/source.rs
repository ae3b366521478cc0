//! From what people write to an address: `https:`, `hf:owner/repo@revision/path`. What a lock file pins is taken
//! as it says; else the hub's own metadata gives commit, size and SHA-256.

use crate::client::Route;
use crate::hub::{self, HubRef};
use crate::retry::Asker;
use crate::{FetchError, Request, client};
use strata_manifest::Sha256Digest;
use url::Url;

/// Where a file is, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) url: Url,
    /// As people wrote it, without anything secret: the name in a lock file.
    pub(crate) asked: String,
    /// The same, or with what moves pinned: whose chunks are whose.
    pub(crate) source: String,
    /// With the hub's commit in the place of a branch.
    pub(crate) pinned: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) sha256: Option<Sha256Digest>,
    pub(crate) authorization: Option<String>,
}

/// An address without query, user and password: what may be shown and stored.
pub fn shown(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.has_host() => {
            url.set_query(None);
            url.set_fragment(None);
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.to_string()
        }
        _ => text.split('?').next().unwrap_or(text).to_owned(),
    }
}

pub(crate) fn resolve(
    text: &str,
    request: &Request,
    asker: &Asker<'_>,
    clients: &client::Clients,
) -> Result<Resolved, FetchError> {
    let bad = |why: &str| FetchError::Source { source_text: shown(text), why: why.to_owned() };
    let asked = shown(text);
    let mut resolved = match text.strip_prefix("hf:") {
        Some(reference) => {
            let pin = request.pin.as_ref().filter(|pin| pin.source == asked);
            let pinned = pin.and_then(|pin| pin.resolved.as_deref()).and_then(|text| text.strip_prefix("hf:"));
            let address = hub::hub_address(pinned.unwrap_or(reference), &asker.settings.hub)
                .ok_or_else(|| bad("the hub's files are written hf:owner/repo@revision/path"))?;
            Resolved {
                url: Url::parse(&address).map_err(|_| bad("its address cannot be made"))?,
                source: pinned.map_or_else(|| asked.clone(), |pinned| format!("hf:{pinned}")),
                pinned: pinned.map(|pinned| format!("hf:{pinned}")),
                asked,
                size: request.size,
                sha256: request.sha256,
                authorization: asker.settings.hub_token.as_ref().map(|token| format!("Bearer {token}")),
            }
        }
        None => Resolved {
            url: Url::parse(text).map_err(|error| bad(&error.to_string()))?,
            source: asked.clone(),
            pinned: None,
            asked,
            size: request.size,
            sha256: request.sha256,
            authorization: request.authorization.clone(),
        },
    };
    if !matches!(resolved.url.scheme(), "https" | "http") || !resolved.url.has_host() {
        return Err(bad("only https: and http: are fetched"));
    }
    let known = resolved.pinned.is_some() && resolved.size.is_some() && resolved.sha256.is_some();
    if let (Some(reference), false) = (text.strip_prefix("hf:"), known) {
        let line = clients.line()?;
        let route = Route::new(&resolved)?;
        let said = asker.insist(&line, async |line| hub::metadata(line, &route, asker.name).await)?;
        resolved.size = resolved.size.or(said.size);
        resolved.sha256 = resolved.sha256.or(said.sha256);
        if let (Some(commit), Some(reference)) = (said.commit, HubRef::parse(reference)) {
            // A branch that moves on while its file comes does no harm.
            let pinned = format!("{}@{commit}/{}", reference.repository(), reference.path.unwrap_or_default());
            let address = hub::hub_address(&pinned, &asker.settings.hub).and_then(|text| Url::parse(&text).ok());
            resolved.url = address.ok_or_else(|| bad("its address cannot be made"))?;
            resolved.source = format!("hf:{pinned}");
            resolved.pinned = Some(format!("hf:{pinned}"));
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("https://u:p@h.example/a?sig=abc#x"), "https://h.example/a");
        assert_eq!(shown("hf:o/r@main/x?token=1"), "hf:o/r@main/x");
    }
}
