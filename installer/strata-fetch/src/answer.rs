//! What an answer must be before a byte of it counts: the right part of the right file, and no page.

use crate::client::Part;
use crate::job::{End, Job};
use crate::journal::Identity;
use crate::{FetchError, client};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED};
use std::time::Duration;

/// No file of ours is larger.
pub(crate) const MAX_SIZE: u64 = 1 << 44;
/// How much older than the answer a date of change must be, so that no change can have followed within its second.
const SETTLED: Duration = Duration::from_secs(60);

impl Job<'_> {
    pub(crate) fn right_size(&self, size: Option<u64>) -> Result<(), End> {
        let (Some(size), wanted) = (size, self.resolved.size) else { return Ok(()) };
        if size > MAX_SIZE || wanted.is_some_and(|wanted| wanted != size) {
            let expected = wanted.map_or(format!("at most {MAX_SIZE} bytes"), |wanted| format!("{wanted} bytes"));
            return Err(End::Failed(FetchError::Mismatch {
                name: self.request.name.clone(),
                host: self.host(),
                expected,
                got: format!("{size} bytes"),
                locked: self.request.pin.is_some(),
            }));
        }
        Ok(())
    }

    /// A login page, an error text or an encoded body is no file.
    pub(crate) fn refuse_pages(&self, response: &Response) -> Result<(), End> {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let from = client::host(response.url());
        let encoding: String = header(CONTENT_ENCODING).chars().take(40).collect();
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Err(self.page(from, format!("a body encoded as {encoding}, which was not asked for,")));
        }
        let kind = header(CONTENT_TYPE).to_ascii_lowercase();
        if kind.starts_with("text/html") && !self.is_called("html") {
            return Err(self.page(from, "a web page".to_owned()));
        }
        if kind.starts_with("application/json") && !self.is_called("json") {
            return Err(self.page(from, "a JSON text".to_owned()));
        }
        if kind.starts_with("multipart/") {
            return Err(self.page(from, "several parts at once".to_owned()));
        }
        Ok(())
    }

    fn is_called(&self, suffix: &str) -> bool {
        self.request.to.extension().is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    }

    /// The same by the first bytes, for servers that lie about what they send.
    pub(crate) fn refuse_page_bytes(&self, from: &str, bytes: &[u8]) -> Result<(), End> {
        let head: Vec<u8> = bytes.iter().copied().skip_while(u8::is_ascii_whitespace).take(15).collect();
        let head = head.to_ascii_lowercase();
        if (head.starts_with(b"<!doctype html") || head.starts_with(b"<html")) && !self.is_called("html") {
            return Err(self.page(from.to_owned(), "a web page".to_owned()));
        }
        Ok(())
    }

    /// An answer to a request for a part counts only when it is that part of that file. Says where it ends.
    pub(crate) fn right_part(
        &self,
        response: &Response,
        part: &Part,
        identity: &Identity,
        known: Option<&str>,
    ) -> Result<u64, End> {
        let anew = |why: &str, whole| Err(End::Anew { why: why.to_owned(), whole });
        let theirs = validator(response);
        let changed = known.is_some() && theirs.is_some() && theirs.as_deref() != known;
        match response.status().as_u16() {
            206 => {
                let Some(range) = content_range(response) else {
                    self.refuse_pages(response)?;
                    return anew("the server does not say which part it sends", true);
                };
                if changed || range.total != identity.size {
                    return anew("the file was replaced on the server", false);
                }
                if range.first != part.first || part.last.is_some_and(|last| range.last > last) {
                    return anew("the server sends other parts than were asked for", true);
                }
                self.refuse_pages(response)?;
                Ok(range.last + 1)
            }
            200 if changed || known.is_some() && theirs.is_none() => {
                self.refuse_pages(response)?;
                anew("the file was replaced on the server", false)
            }
            200 => {
                self.refuse_pages(response)?;
                anew("the server gives no parts any more", true)
            }
            _ => anew("the file on the server has another length now", false),
        }
    }
}

/// `bytes 0-99/1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) total: u64,
}

pub(crate) fn content_range(response: &Response) -> Option<ContentRange> {
    parse_range(response.headers().get(CONTENT_RANGE)?.to_str().ok()?)
}

fn parse_range(text: &str) -> Option<ContentRange> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = ContentRange { first: number(first)?, last: number(last)?, total: number(total)? };
    (range.first <= range.last && range.last < range.total && range.total <= MAX_SIZE).then_some(range)
}

/// A strong validator: an entity tag that is not weak, else a date of change that is old enough to be one.
pub(crate) fn validator(response: &Response) -> Option<String> {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(tag) = text(ETAG) {
        return (tag.starts_with('"') && tag.len() > 2 && tag.len() < 1024).then(|| tag.to_owned());
    }
    let changed = text(LAST_MODIFIED)?;
    let age = httpdate::parse_http_date(text(DATE)?).ok()?.duration_since(httpdate::parse_http_date(changed).ok()?);
    age.is_ok_and(|age| age >= SETTLED).then(|| changed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_or_refused() {
        assert_eq!(parse_range("bytes 0-99/1000"), Some(ContentRange { first: 0, last: 99, total: 1000 }));
        for bad in [
            "",
            "bytes */1000",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes 0-9/*",
            "items 0-9/10",
            "bytes 0-9/99999999999999999999",
        ] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }
}
