//! The model hub: what its metadata says of a file (commit, size, SHA-256), and which files of a repository make
//! up a model. Only its API is known here; the bytes come like those of any address.

use crate::client::{Clients, Line, Route, Trouble};
use crate::retry::Asker;
use crate::source::Resolved;
use crate::{FetchError, shards};
use reqwest::Response;
use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderMap, LINK};
use serde_json::Value;
use strata_manifest::{LockedFile, Sha256Digest};
use url::Url;

/// Address of the model hub where no other is set.
pub const HUB: &str = "https://huggingface.co";
/// The branch that is meant when none is named.
const MAIN: &str = "main";
/// Pages of a listing, and files in it: more is no repository of a model.
const MAX_PAGES: usize = 200;
const MAX_FILES: usize = 100_000;

/// `owner/repo@revision/path`, or `owner/repo@revision:what`; the revision may be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubRef {
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) revision: String,
    pub(crate) path: Option<String>,
    /// Part of the name of the file that is meant: `Q4_K_M`.
    pub(crate) want: Option<String>,
}

fn plain(part: &str) -> bool {
    !part.is_empty()
        && part != "."
        && part != ".."
        && part.bytes().all(|c| c.is_ascii_graphic() && !b"\\?#/".contains(&c))
}

impl HubRef {
    pub(crate) fn parse(reference: &str) -> Option<HubRef> {
        let (owner, rest) = reference.split_once('/')?;
        let end = rest.find(['@', '/', ':']).unwrap_or(rest.len());
        let (name, mut rest) = rest.split_at(end);
        let mut revision = MAIN;
        if let Some(after) = rest.strip_prefix('@') {
            let end = after.find(['/', ':']).unwrap_or(after.len());
            (revision, rest) = after.split_at(end);
        }
        let path = rest.strip_prefix('/').map(str::to_owned);
        let want = rest.strip_prefix(':').map(str::to_owned);
        let good = [owner, name, revision].iter().all(|part| plain(part))
            && path.as_deref().is_none_or(|path| path.split('/').all(plain))
            && want.as_deref().is_none_or(plain);
        let (owner, name, revision) = (owner.to_owned(), name.to_owned(), revision.to_owned());
        good.then_some(HubRef { owner, name, revision, path, want })
    }

    pub(crate) fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

/// `owner/repo@revision/path` at the address that the hub serves it.
pub fn hub_address(reference: &str, hub: &str) -> Option<String> {
    let reference = HubRef::parse(reference)?;
    let path = reference.path.as_ref()?;
    let (repository, revision) = (reference.repository(), &reference.revision);
    Some(format!("{}/{repository}/resolve/{revision}/{path}", hub.trim_end_matches('/')))
}

/// What the hub says of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) commit: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) sha256: Option<Sha256Digest>,
}

/// Asks for a file's metadata. What the store says to whom the hub sends on is of no interest.
pub(crate) async fn metadata(line: &Line, route: &Route, name: &str) -> Result<Said, Trouble> {
    let response = line.head(route, name).await?;
    Ok(said(&response))
}

fn said(response: &Response) -> Said {
    let headers = response.headers();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let commit = text("x-repo-commit").filter(|commit| is_commit(commit)).map(str::to_owned);
    // A file that is no large one has the digest of a git object for a tag, which is no SHA-256 of its bytes.
    let tag = text("x-linked-etag").or_else(|| text(ETAG.as_str()));
    let sha256 = tag.and_then(|tag| tag.trim_start_matches("W/").trim_matches('"').parse().ok());
    let own = text(CONTENT_LENGTH.as_str()).filter(|_| response.status().is_success());
    let size = text("x-linked-size").or(own).and_then(|size| size.parse().ok());
    Said { commit, size, sha256 }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// A file of the hub that belongs to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    /// `hf:owner/repo@revision/path`.
    pub source: String,
    /// Path in the repository.
    pub path: String,
    pub size: u64,
    /// What it is pinned to, for files whose digest the hub knows.
    pub pin: Option<LockedFile>,
}

/// The files of a model: of a split set all shards, whichever is named.
pub(crate) fn model(reference: &str, asker: &Asker<'_>, clients: &Clients) -> Result<Vec<HubFile>, FetchError> {
    let bad = |why: &str| FetchError::Source { source_text: format!("hf:{reference}"), why: why.to_owned() };
    let parsed = HubRef::parse(reference).ok_or_else(|| bad("it is written hf:owner/repo@revision/path"))?;
    let line = clients.line()?;
    let repository = Repository { asker, line: &line, parsed: &parsed };
    let commit = repository.commit()?;
    let files = repository.files(&commit)?;
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let chosen = match &parsed.path {
        Some(path) => shards::set_of(&names, path),
        None => shards::of_listing(&names, parsed.want.as_deref()),
    };
    let chosen = chosen.map_err(|choice| choice.of(&format!("hf:{reference}")))?;
    let known = |path: &String| files.iter().find(|file| file.path == *path);
    let named = |file: &Listed| {
        let source = format!("hf:{}@{}/{}", parsed.repository(), parsed.revision, file.path);
        let pin = file.sha256.map(|sha256| LockedFile {
            source: source.clone(),
            name: file.path.rsplit('/').next().unwrap_or_default().to_owned(),
            resolved: Some(format!("hf:{}@{commit}/{}", parsed.repository(), file.path)),
            size: file.size,
            sha256,
            etag: None,
            last_modified: None,
            wheel: None,
            pieces: None,
        });
        HubFile { source, path: file.path.clone(), size: file.size, pin }
    };
    Ok(chosen.iter().filter_map(known).map(named).collect())
}

struct Listed {
    path: String,
    size: u64,
    sha256: Option<Sha256Digest>,
}

struct Repository<'a> {
    asker: &'a Asker<'a>,
    line: &'a Line,
    parsed: &'a HubRef,
}

impl Repository<'_> {
    fn ask(&self, address: &str) -> Result<(HeaderMap, Value), FetchError> {
        let bad = |why: String| FetchError::Source { source_text: format!("hf:{}", self.parsed.repository()), why };
        let url = Url::parse(address).map_err(|error| bad(error.to_string()))?;
        let settings = self.asker.settings;
        let resolved = Resolved {
            url,
            asked: String::new(),
            source: String::new(),
            pinned: None,
            size: None,
            sha256: None,
            authorization: settings.hub_token.as_ref().map(|token| format!("Bearer {token}")),
        };
        let route = Route::new(&resolved)?;
        let (headers, text) = self.asker.insist(self.line, async |line| line.text(&route, self.asker.name).await)?;
        let value = serde_json::from_str(&text).map_err(|_| FetchError::Page {
            name: self.asker.name.to_owned(),
            host: self.asker.host.clone(),
            what: "something that is no JSON".to_owned(),
        })?;
        Ok((headers, value))
    }

    fn api(&self) -> String {
        format!("{}/api/models/{}", self.asker.settings.hub.trim_end_matches('/'), self.parsed.repository())
    }

    /// The commit that the revision names now.
    fn commit(&self) -> Result<String, FetchError> {
        if is_commit(&self.parsed.revision) {
            return Ok(self.parsed.revision.clone());
        }
        let (_, answer) = self.ask(&format!("{}/revision/{}", self.api(), self.parsed.revision))?;
        let commit = answer["sha"].as_str().filter(|commit| is_commit(commit)).map(str::to_owned);
        commit.ok_or_else(|| FetchError::Page {
            name: self.asker.name.to_owned(),
            host: self.asker.host.clone(),
            what: "an answer without a commit".to_owned(),
        })
    }

    fn files(&self, commit: &str) -> Result<Vec<Listed>, FetchError> {
        let mut files = Vec::new();
        let mut address = Some(format!("{}/tree/{commit}?recursive=true", self.api()));
        for _ in 0..MAX_PAGES {
            let Some(this) = address.take() else { break };
            let (headers, page) = self.ask(&this)?;
            files.extend(page.as_array().into_iter().flatten().filter_map(listed));
            if files.len() > MAX_FILES {
                break;
            }
            address = next_page(&headers, &this);
        }
        Ok(files)
    }
}

fn listed(entry: &Value) -> Option<Listed> {
    let path = entry["path"].as_str().filter(|_| entry["type"] == "file")?;
    let lfs = &entry["lfs"];
    let size = lfs["size"].as_u64().or(entry["size"].as_u64())?;
    let sha256 = lfs["oid"].as_str().and_then(|oid| oid.trim_start_matches("sha256:").parse().ok());
    Some(Listed { path: path.to_owned(), size, sha256 })
}

/// `<address>; rel="next"`, on the same server: the token goes there too.
fn next_page(headers: &HeaderMap, this: &str) -> Option<String> {
    let this = Url::parse(this).ok()?;
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let address = next.split_once('<')?.1.split_once('>')?.0;
    let url = this.join(address).ok()?;
    (url.origin() == this.origin()).then(|| url.to_string())
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
        assert_eq!(hub_address("o/r/m.gguf", HUB).as_deref(), Some("https://huggingface.co/o/r/resolve/main/m.gguf"));
        for bad in [
            "o/r",
            "o/r@main",
            "o@main/x",
            "o/r@main/../x",
            "o/r@main/a//b",
            "../r@main/x",
            "o/r@main/a\\b",
            "o/r@ma in/x",
            "o/r@main/x?y",
            "o/r@/x",
            "/r@main/x",
        ] {
            assert_eq!(hub_address(bad, HUB), None, "{bad}");
        }
        let parsed = HubRef::parse("o/r@v1:Q4_K_M").unwrap();
        assert_eq!((parsed.revision.as_str(), parsed.want.as_deref(), parsed.path), ("v1", Some("Q4_K_M"), None));
        assert_eq!(HubRef::parse("o/r").unwrap().revision, "main");
        assert!(HubRef::parse("o/r:").is_none());
    }
}
