//! A stand-in for the model hub: the parts of its API and its pages of files that clients use, and a store on
//! another origin with signed addresses that expire. Faithful in status, headers and error codes; one repository.

use crate::{Asked, Faultd, Reply, part_of, whole};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A repository, and who may have it.
#[derive(Debug, Clone, Default)]
pub struct Repository {
    /// `owner/name`.
    pub id: String,
    /// What `main` names.
    pub commit: String,
    /// Files of the large kind by path.
    pub files: Vec<Large>,
    /// Small files by path: they are served by the hub itself.
    pub small: Vec<(String, Vec<u8>)>,
    /// Only who shows this token gets anything.
    pub token: Option<String>,
    /// With the token too: the terms have not been accepted.
    pub terms: bool,
    /// Entries in a page of a listing; 0: all.
    pub page: usize,
    /// The store sends so many bytes a pause of this length.
    pub drip: Option<(usize, Duration)>,
    /// How many requests a signed address is good for; 0: any number.
    pub uses: u64,
}

/// A file of the large kind.
#[derive(Debug, Clone)]
pub struct Large {
    pub path: String,
    pub bytes: Arc<Vec<u8>>,
    sha256: String,
}

impl Large {
    pub fn new(path: &str, bytes: Vec<u8>) -> Large {
        Large { path: path.to_owned(), sha256: sha256(&bytes), bytes: Arc::new(bytes) }
    }
}

impl Repository {
    pub fn new(id: &str, commit: &str, files: Vec<(String, Vec<u8>)>) -> Repository {
        let files = files.into_iter().map(|(path, bytes)| Large::new(&path, bytes)).collect();
        Repository { id: id.to_owned(), commit: commit.to_owned(), files, ..Repository::default() }
    }
}

/// The hub and its store.
#[derive(Debug)]
pub struct Hub {
    pages: Faultd,
    store: Faultd,
    repository: Arc<Mutex<Repository>>,
}

impl Hub {
    pub fn start(repository: Repository) -> std::io::Result<Hub> {
        let repository = Arc::new(Mutex::new(repository));
        let signatures = Arc::new(Signatures::default());
        let (held, signed) = (Arc::clone(&repository), Arc::clone(&signatures));
        let store =
            Faultd::start(move |asked| stored(&held.lock().unwrap_or_else(PoisonError::into_inner), &signed, asked))?;
        let (held, address) = (Arc::clone(&repository), store.url());
        let pages = Faultd::start(move |asked| {
            let repository = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Pages { repository: &repository, signatures: &signatures, store: &address }.answer(asked)
        })?;
        Ok(Hub { pages, store, repository })
    }

    /// What `HF_ENDPOINT` is set to.
    pub fn url(&self) -> String {
        self.pages.url()
    }

    /// What the hub itself was asked.
    pub fn requests(&self) -> Vec<Asked> {
        self.pages.requests()
    }

    /// The store that files come from.
    pub fn store(&self) -> &Faultd {
        &self.store
    }

    /// Somebody pushes, or changes who may have it.
    pub fn change(&self, change: impl FnOnce(&mut Repository)) {
        change(&mut self.repository.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Signatures that were given out, with how often each was used.
#[derive(Debug, Default)]
struct Signatures {
    next: AtomicU64,
    used: Mutex<BTreeMap<String, u64>>,
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// The store: a large file by its digest, for who has a signature that is good.
fn stored(repository: &Repository, signatures: &Signatures, asked: &Asked) -> Reply {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let name = path.trim_start_matches("/blob/");
    let signature = query.strip_prefix("Signature=").unwrap_or_default().to_owned();
    let refused = |text: &str| Reply { status: 403, body: text.as_bytes().to_vec(), ..Reply::default() };
    if asked.headers.contains_key("authorization") {
        let body = b"Only one auth mechanism allowed".to_vec();
        return Reply { status: 400, body, ..Reply::default() };
    }
    let mut used = signatures.used.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(count) = used.get_mut(&signature) else { return refused("no such signature") };
    *count += 1;
    if repository.uses > 0 && *count > repository.uses {
        return refused("Request has expired");
    }
    drop(used);
    let Some(Large { bytes, .. }) = repository.files.iter().find(|file| file.sha256 == name) else {
        return Reply { status: 404, ..Reply::default() };
    };
    // The store has tags of its own, which are not those of the hub.
    let etag = format!("\"store-{}\"", &name[..16]);
    let reply = match asked.range {
        Some((first, last)) => part_of(bytes, first, last, Some(&etag)),
        None => whole(bytes, Some(&etag)),
    };
    Reply { drip: repository.drip, ..reply }
}

struct Pages<'a> {
    repository: &'a Repository,
    signatures: &'a Signatures,
    store: &'a str,
}

impl Pages<'_> {
    fn answer(&self, asked: &Asked) -> Reply {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let id = &self.repository.id;
        let api = format!("/api/models/{id}");
        let files = format!("/{id}/resolve/");
        if !path.starts_with(&api) && !path.starts_with(&files) {
            return error(401, "RepoNotFound", "Invalid username or password.");
        }
        if let Some(refusal) = self.refusal(asked) {
            return refusal;
        }
        if let Some(rest) = path.strip_prefix(&files) {
            return match rest.split_once('/') {
                Some((revision, path)) if self.knows(revision) => self.file(path, asked),
                Some(_) => error(404, "RevisionNotFound", "Invalid rev id"),
                None => error(404, "EntryNotFound", "Entry not found"),
            };
        }
        let rest = path.strip_prefix(&api).unwrap_or_default().trim_start_matches('/');
        match rest.split_once('/') {
            None if rest.is_empty() => json_reply(&self.info()),
            Some(("revision", revision)) if self.knows(revision) => json_reply(&self.info()),
            Some(("tree", revision)) if self.knows(revision) => self.tree(path, query),
            Some(("revision" | "tree", _)) => error(404, "RevisionNotFound", "Invalid rev id"),
            _ => error(404, "EntryNotFound", "Sorry, we can't find the page you are looking for."),
        }
    }

    fn knows(&self, revision: &str) -> bool {
        revision == "main" || revision == self.repository.commit
    }

    fn refusal(&self, asked: &Asked) -> Option<Reply> {
        let token = self.repository.token.as_ref()?;
        let shown = asked.headers.get("authorization").is_some_and(|value| *value == format!("Bearer {token}"));
        let id = &self.repository.id;
        if !shown {
            let text = format!(
                "Access to model {id} is restricted. You must have access to it and be authenticated to access it. Please log in."
            );
            return Some(error(401, "GatedRepo", &text));
        }
        let text = format!(
            "Access to model {id} is restricted and you are not in the authorized list. Visit https://hub.example/{id} to ask for access."
        );
        self.repository.terms.then(|| error(403, "GatedRepo", &text))
    }

    fn file(&self, path: &str, asked: &Asked) -> Reply {
        let commit = ("X-Repo-Commit".to_owned(), self.repository.commit.clone());
        if let Some((_, bytes)) = self.repository.small.iter().find(|(name, _)| name == path) {
            let etag = format!("\"{}\"", &sha256(bytes)[..40]);
            let mut reply = match asked.range {
                Some((first, last)) => part_of(bytes, first, last, Some(&etag)),
                None => whole(bytes, Some(&etag)),
            };
            reply.headers.push(commit);
            return reply;
        }
        let Some(Large { bytes, sha256: digest, .. }) = self.repository.files.iter().find(|file| file.path == path)
        else {
            return error(404, "EntryNotFound", "Entry not found");
        };
        let signature = format!("secret-{}", self.signatures.next.fetch_add(1, Ordering::Relaxed));
        let location = format!("{}/blob/{digest}?Signature={signature}", self.store);
        self.signatures.used.lock().unwrap_or_else(PoisonError::into_inner).insert(signature, 0);
        let headers = [
            ("X-Linked-Size".to_owned(), bytes.len().to_string()),
            ("X-Linked-Etag".to_owned(), format!("\"{digest}\"")),
            ("Accept-Ranges".to_owned(), "bytes".to_owned()),
            ("Location".to_owned(), location),
            commit,
        ];
        Reply { status: 302, headers: headers.to_vec(), body: b"Found. Redirecting".to_vec(), ..Reply::default() }
    }

    fn info(&self) -> Value {
        let paths = self.repository.files.iter().map(|file| &file.path);
        let paths = paths.chain(self.repository.small.iter().map(|(path, _)| path));
        let siblings: Vec<Value> = paths.map(|path| json!({ "rfilename": path })).collect();
        let id = &self.repository.id;
        json!({
            "_id": "0123456789abcdef01234567", "id": id, "modelId": id, "sha": self.repository.commit,
            "private": false, "gated": if self.repository.token.is_some() { json!("auto") } else { json!(false) },
            "disabled": false, "downloads": 1, "likes": 0, "tags": [], "siblings": siblings,
            "createdAt": "2026-01-01T00:00:00.000Z", "lastModified": "2026-01-01T00:00:00.000Z",
        })
    }

    fn tree(&self, path: &str, query: &str) -> Reply {
        let large = self.repository.files.iter().map(|file| {
            let (path, size, oid) = (&file.path, file.bytes.len(), &file.sha256);
            json!({
                "type": "file", "path": path, "size": size, "oid": &oid[..40],
                "lfs": { "oid": oid, "size": size, "pointerSize": 134 },
            })
        });
        let small = self.repository.small.iter().map(
            |(path, bytes)| json!({ "type": "file", "path": path, "size": bytes.len(), "oid": &sha256(bytes)[..40] }),
        );
        let entries: Vec<Value> = large.chain(small).collect();
        let value = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name));
        let from = value("cursor=").and_then(|text| text.parse().ok()).unwrap_or(0).min(entries.len());
        let page = if self.repository.page == 0 { entries.len() } else { self.repository.page };
        let to = (from + page).min(entries.len());
        let mut reply = json_reply(&Value::from(entries[from..to].to_vec()));
        if to < entries.len() {
            let next = format!("<{path}?recursive=true&cursor={to}>; rel=\"next\"");
            reply.headers.push(("Link".to_owned(), next));
        }
        reply
    }
}

fn json_reply(value: &Value) -> Reply {
    let headers = vec![("Content-Type".to_owned(), "application/json; charset=utf-8".to_owned())];
    Reply { status: 200, headers, body: value.to_string().into_bytes(), ..Reply::default() }
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let headers = [("X-Error-Code", code), ("X-Error-Message", message), ("Content-Type", "text/plain; charset=utf-8")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Reply { status, headers, body: message.as_bytes().to_vec(), ..Reply::default() }
}
