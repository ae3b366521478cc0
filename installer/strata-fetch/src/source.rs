//! From what people write to an address: `https:`, `hf:owner/repo@revision/path`. The hub's own metadata
//! gives size and SHA-256 where they are not known.

use crate::client::Client;
use crate::{FetchError, Request, Settings};
use strata_manifest::Sha256Digest;
use url::Url;

/// Address of the model hub where no other is set.
pub const HUB: &str = "https://huggingface.co";

/// Where a file is, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) url: Url,
    /// As people wrote it, without anything secret.
    pub(crate) source: String,
    pub(crate) size: Option<u64>,
    pub(crate) sha256: Option<Sha256Digest>,
    pub(crate) authorization: Option<String>,
}

/// An address without query, user and password: what may be shown and stored.
pub(crate) fn shown(text: &str) -> String {
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

/// `owner/repo@revision/path` at the address that the hub serves it.
pub fn hub_address(reference: &str, hub: &str) -> Option<String> {
    let (repository, rest) = reference.split_once('@')?;
    let (revision, path) = rest.split_once('/')?;
    let plain = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(|c| c.is_ascii_graphic() && c != b'\\')
    };
    let (owner, name) = repository.split_once('/')?;
    let good =
        [owner, name, revision].iter().all(|part| plain(part) && !part.contains('/')) && path.split('/').all(plain);
    good.then(|| format!("{}/{repository}/resolve/{revision}/{path}", hub.trim_end_matches('/')))
}

pub(crate) async fn resolve(
    text: &str,
    request: &Request,
    settings: &Settings,
    client: &Client,
) -> Result<Resolved, FetchError> {
    let bad = |why: &str| FetchError::Source { source_text: shown(text), why: why.to_owned() };
    let mut resolved = match text.strip_prefix("hf:") {
        Some(reference) => {
            let address = hub_address(reference, &settings.hub)
                .ok_or_else(|| bad("the hub's files are written hf:owner/repo@revision/path"))?;
            Resolved {
                url: Url::parse(&address).map_err(|_| bad("its address cannot be made"))?,
                source: text.to_owned(),
                size: request.size,
                sha256: request.sha256,
                authorization: settings.hub_token.as_ref().map(|token| format!("Bearer {token}")),
            }
        }
        None => Resolved {
            url: Url::parse(text).map_err(|error| bad(&error.to_string()))?,
            source: shown(text),
            size: request.size,
            sha256: request.sha256,
            authorization: request.authorization.clone(),
        },
    };
    if !matches!(resolved.url.scheme(), "https" | "http") || !resolved.url.has_host() {
        return Err(bad("only https: and http: are fetched"));
    }
    if text.starts_with("hf:") && (resolved.size.is_none() || resolved.sha256.is_none()) {
        // Without an answer the file itself says its size; the digest is then only computed.
        if let Ok(headers) = client.head(&resolved).await {
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let size = text("x-linked-size").and_then(|size| size.parse().ok());
            let sha256 = text("x-linked-etag").and_then(|tag| tag.trim_matches('"').parse().ok());
            resolved.size = resolved.size.or(size);
            resolved.sha256 = resolved.sha256.or(sha256);
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_addresses_or_are_refused() {
        assert_eq!(
            hub_address("o/r@main/Q4/m.gguf", "https://h.example/").as_deref(),
            Some("https://h.example/o/r/resolve/main/Q4/m.gguf")
        );
        for bad in [
            "o/r",
            "o/r@main",
            "o@main/x",
            "o/r@main/../x",
            "o/r@main/a//b",
            "../r@main/x",
            "o/r@main/a\\b",
            "o/r@ma in/x",
        ] {
            assert_eq!(hub_address(bad, HUB), None, "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("https://u:p@h.example/a?sig=abc#x"), "https://h.example/a");
        assert_eq!(shown("hf:o/r@main/x?token=1"), "hf:o/r@main/x");
    }
}
