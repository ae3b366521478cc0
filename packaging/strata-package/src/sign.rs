//! Keys and signatures in minisign's format, so that people can check a release with the stock tool.
//!
//! Signatures are always of the pre-hashed kind and carry a trusted comment with the file's name.
//! Whom a key belongs to is not decided here but in `trust`.

use crate::PackageError;
use minisign::{KeyPair, SecretKey, SecretKeyBox, SignatureBox};
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use strata_manifest::{PublicKey, UtcTime};

/// Keys and signatures are a few hundred bytes; what is larger is none and is not read.
const MAX_KEY_BYTES: u64 = 16 << 10;

/// A secret key, ready to sign.
pub struct SigningKey {
    secret: SecretKey,
    public: minisign::PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &key_id(self.public.keynum())).finish_non_exhaustive()
    }
}

/// A signature that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub key_id: String,
    pub trusted_comment: String,
}

/// Makes a key pair: `STEM.key` with mode 0600 and `STEM.pub`. Without a password the secret key
/// lies there as it is. Neither file may exist.
pub fn keygen(stem: &Path, password: Option<String>) -> Result<PublicKey, PackageError> {
    let with_suffix = |suffix: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (secret_path, public_path) = (with_suffix(".key"), with_suffix(".pub"));
    let refused = |path: &Path, why: String| PackageError::Key { path: path.to_owned(), why };
    for path in [&secret_path, &public_path] {
        if path.symlink_metadata().is_ok() {
            return Err(refused(path, "it is there already, and a key is never overwritten".to_owned()));
        }
    }
    let pair = match password {
        Some(password) if password.is_empty() => {
            return Err(refused(&secret_path, "the password is empty".to_owned()));
        }
        Some(password) => KeyPair::generate_encrypted_keypair(Some(password)),
        None => KeyPair::generate_unencrypted_keypair(),
    };
    let pair = pair.map_err(|error| refused(&secret_path, error.to_string()))?;
    let id = key_id(pair.pk.keynum());
    let secret = pair.sk.to_box(Some(&format!("minisign secret key {id}")));
    let secret = secret.map_err(|error| refused(&secret_path, error.to_string()))?.into_string();
    let public = pair.pk.to_box().map_err(|error| refused(&public_path, error.to_string()))?.into_string();
    write_new(&secret_path, &secret, 0o600)?;
    // Half a pair is of no use, and would stand in the way of the next.
    write_new(&public_path, &public, 0o644).inspect_err(|_| drop(fs_err::remove_file(&secret_path)))?;
    Ok(PublicKey { id, public: pair.pk.to_base64(), comment: String::new(), revoked: false })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), PackageError> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true);
    fs_err::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let mut file = options.open(path).map_err(PackageError::unwritable(path))?;
    file.write_all(text.trim_end().as_bytes())
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .inspect_err(|_| drop(fs_err::remove_file(path)))
        .map_err(PackageError::unwritable(path))
}

impl SigningKey {
    /// Reads a secret key that nobody else can read. `password` is asked only for a protected key.
    pub fn read(
        path: &Path,
        password: &mut dyn FnMut() -> Result<String, PackageError>,
    ) -> Result<SigningKey, PackageError> {
        let bad = |why: String| PackageError::Key { path: path.to_owned(), why };
        let mode = fs_err::metadata(path).map_err(PackageError::unreadable(path))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(bad(format!("its mode is {:04o}: others can read it (`chmod 600`)", mode & 0o7777)));
        }
        let text = read_small(path)?;
        let boxed = || SecretKeyBox::from_string(&text).map_err(|error| bad(error.to_string()));
        let secret = if let Ok(secret) = boxed()?.into_unencrypted_secret_key() {
            secret
        } else {
            let opened = boxed()?.into_secret_key(Some(password()?));
            opened.map_err(|_| bad("it is no secret key of minisign, or the password is wrong".to_owned()))?
        };
        let public = minisign::PublicKey::from_secret_key(&secret).map_err(|error| bad(error.to_string()))?;
        Ok(SigningKey { secret, public })
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let (id, public) = (key_id(self.public.keynum()), self.public.to_base64());
        PublicKey { id, public, comment: String::new(), revoked: false }
    }

    /// The text of the `.minisig` file for these bytes. `name` is the file's, without folders.
    pub fn sign(&self, name: &str, bytes: &[u8], at: UtcTime) -> Result<String, PackageError> {
        let trusted = format!("timestamp:{}\tfile:{name}\thashed", at.seconds());
        let untrusted = format!("signature from minisign secret key {}", key_id(self.public.keynum()));
        minisign::sign(Some(&self.public), &self.secret, bytes, Some(&trusted), Some(&untrusted))
            .map(|signature| format!("{}\n", signature.into_string().trim_end()))
            .map_err(|error| PackageError::Signature { path: PathBuf::from(name), why: error.to_string() })
    }

    /// Writes `PATH.minisig`; an earlier signature there is replaced.
    pub fn sign_file(&self, path: &Path, at: UtcTime) -> Result<PathBuf, PackageError> {
        let bytes = fs_err::read(path).map_err(PackageError::unreadable(path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = self.sign(&name, &bytes, at)?;
        let target = signature_path(path);
        let beside = target.with_extension(format!("new-{}", std::process::id()));
        fs_err::write(&beside, text).map_err(PackageError::unwritable(&beside))?;
        fs_err::rename(&beside, &target).map_err(PackageError::unwritable(&target))?;
        Ok(target)
    }
}

/// `release.json` → `release.json.minisig`.
pub fn signature_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".minisig");
    PathBuf::from(name)
}

/// Reads a `.pub` file, or one that holds only its second line.
pub fn read_public(path: &Path) -> Result<PublicKey, PackageError> {
    let text = read_small(path)?;
    let bad = |why: String| PackageError::Key { path: path.to_owned(), why };
    let line = match text.lines().collect::<Vec<_>>().as_slice() {
        [comment, line] if comment.starts_with("untrusted comment: ") => (*line).to_owned(),
        [line] => (*line).to_owned(),
        _ => String::new(),
    };
    let key = public_key(&line).ok_or_else(|| bad("it is no public key of minisign".to_owned()))?;
    Ok(PublicKey { id: key_id(key.keynum()), public: key.to_base64(), comment: String::new(), revoked: false })
}

/// Checks a signature against several keys. `name` is the file that the trusted comment must name.
/// The error is a sentence's end.
pub fn verify_bytes(keys: &[PublicKey], name: &str, bytes: &[u8], signature: &str) -> Result<Signed, String> {
    if signature.len() as u64 > MAX_KEY_BYTES {
        return Err(format!("a signature has at most {MAX_KEY_BYTES} bytes"));
    }
    let parsed = shaped(signature).then(|| SignatureBox::from_string(signature).ok()).flatten();
    let parsed = parsed.ok_or_else(|| "it is no minisign signature with a trusted comment".to_owned())?;
    let id = key_id(parsed.keynum());
    let trusted_comment = parsed.trusted_comment().map_err(|_| "it has no trusted comment".to_owned())?;
    let known = keys.iter().find(|key| key.id == id).ok_or_else(|| {
        let known: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        format!(
            "it was made with key {id}; known are {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )
    })?;
    if known.revoked {
        return Err(format!("it was made with key {id}, which was withdrawn"));
    }
    let public = public_key(&known.public).ok_or_else(|| format!("key {id} is listed with a text that is no key"))?;
    if key_id(public.keynum()) != id {
        return Err(format!("key {id} is listed with the number of another key"));
    }
    minisign::verify(&public, &parsed, Cursor::new(bytes), true, false, false).map_err(|error| error.to_string())?;
    let named = trusted_comment.split('\t').find_map(|field| field.strip_prefix("file:"));
    match named {
        Some(named) if named != name => Err(format!("it was made for a file called `{}`", named.escape_default())),
        _ => Ok(Signed { key_id: id, trusted_comment }),
    }
}

/// Whether a text has the four lines of a signature, each of its length: the crate that reads them
/// takes their bytes for granted.
fn shaped(signature: &str) -> bool {
    let lines: Vec<&str> = signature.lines().collect();
    let comment = |line: &str, prefix: &str| line.starts_with(prefix) && !line.contains(['\r', '\0']);
    match lines.as_slice() {
        [untrusted, signature, trusted, global] => {
            comment(untrusted, "untrusted comment: ")
                && is_base64(signature, 74)
                && comment(trusted, "trusted comment: ")
                && is_base64(global, 64)
        }
        _ => false,
    }
}

/// Whether a text is the base64 of that many bytes, as far as its length and letters tell.
fn is_base64(text: &str, bytes: usize) -> bool {
    let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'+' || c == b'/';
    let body = text.trim_end_matches('=');
    text.len() == bytes.div_ceil(3) * 4 && text.len() - body.len() == (3 - bytes % 3) % 3 && body.bytes().all(letter)
}

/// A key from its base64 line.
fn public_key(text: &str) -> Option<minisign::PublicKey> {
    is_base64(text, 42).then(|| minisign::PublicKey::from_base64(text).ok()).flatten()
}

/// Checks `PATH.minisig`.
pub fn verify_file(keys: &[PublicKey], path: &Path) -> Result<Signed, PackageError> {
    let bytes = fs_err::read(path).map_err(PackageError::unreadable(path))?;
    let signature = read_small(&signature_path(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let wrong = |why: String| PackageError::Signature { path: path.to_owned(), why };
    verify_bytes(keys, &name, &bytes, &signature).map_err(wrong)
}

/// A text of at most [`MAX_KEY_BYTES`].
pub(crate) fn read_small(path: &Path) -> Result<String, PackageError> {
    let file = fs_err::File::open(path).map_err(PackageError::unreadable(path))?;
    let mut text = String::new();
    file.take(MAX_KEY_BYTES).read_to_string(&mut text).map_err(PackageError::unreadable(path))?;
    Ok(text)
}

/// The number as minisign prints it.
fn key_id(keynum: &[u8]) -> String {
    keynum.iter().rev().fold(String::new(), |id, byte| id + &format!("{byte:02X}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_diag::Diagnose;

    fn no_password() -> Result<String, PackageError> {
        panic!("nobody asked for a password")
    }

    #[test]
    fn what_is_signed_verifies_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("release");
        let public = keygen(&stem, None).unwrap();
        let secret_path = folder.path().join("release.key");
        assert_eq!(fs_err::metadata(&secret_path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(read_public(&folder.path().join("release.pub")).unwrap(), public);
        let key = SigningKey::read(&secret_path, &mut no_password).unwrap();
        assert_eq!(key.public(), public);

        let path = folder.path().join("release.json");
        fs_err::write(&path, "{}\n").unwrap();
        key.sign_file(&path, UtcTime::from_seconds(1_700_000_000)).unwrap();
        let signed = verify_file(std::slice::from_ref(&public), &path).unwrap();
        assert_eq!(signed.trusted_comment, "timestamp:1700000000\tfile:release.json\thashed");

        let signature = fs_err::read_to_string(signature_path(&path)).unwrap();
        let check =
            |name: &str, bytes: &[u8], text: &str| verify_bytes(std::slice::from_ref(&public), name, bytes, text);
        assert!(check("release.json", b"{}\n", &signature).is_ok());
        assert!(check("release.json", b"{ }\n", &signature).is_err());
        assert!(check("keys.json", b"{}\n", &signature).unwrap_err().contains("release.json"));
        assert!(check("release.json", b"{}\n", &signature.replace("1700000000", "1700000001")).is_err());
        let lines: Vec<&str> = signature.lines().collect();
        assert!(check("release.json", b"{}\n", &lines[..2].join("\n")).is_err(), "a signature without trusted comment");
        for cut in 0..signature.len() {
            if let Some(part) = signature.get(..cut).filter(|part| part.trim_end() != signature.trim_end()) {
                assert!(check("release.json", b"{}\n", part).is_err(), "{cut} bytes of the signature pass");
            }
        }
        // Every letter of the signature counts, in every line.
        let mut letters = signature.clone().into_bytes();
        for at in signature.find('\n').unwrap() + 1..signature.len() - 1 {
            let old = std::mem::replace(&mut letters[at], if signature.as_bytes()[at] == b'A' { b'B' } else { b'A' });
            let text = String::from_utf8(letters.clone()).unwrap();
            assert!(check("release.json", b"{}\n", &text).is_err(), "letter {at} does not count");
            letters[at] = old;
        }
        let revoked = PublicKey { revoked: true, ..public.clone() };
        assert!(verify_bytes(&[revoked], "release.json", b"{}\n", &signature).unwrap_err().contains("withdrawn"));
        assert!(verify_bytes(&[], "release.json", b"{}\n", &signature).unwrap_err().contains(&public.id));
    }

    #[test]
    fn keys_are_not_overwritten_and_open_ones_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("k");
        keygen(&stem, None).unwrap();
        let error = keygen(&stem, None).unwrap_err();
        assert_eq!(error.code().id, "S0566");
        let path = folder.path().join("k.key");
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = SigningKey::read(&path, &mut no_password).unwrap_err();
        assert!(error.to_string().contains("0640"), "{error}");
        assert!(keygen(&folder.path().join("e"), Some(String::new())).is_err());
        assert!(read_public(&path).is_err());
    }
}
