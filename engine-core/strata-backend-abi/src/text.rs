//! Text and handles as they cross the boundary.

/// Borrowed UTF-8 text: pointer and length, no terminating NUL. Valid for as long as the struct
/// that holds it says; an empty text may have a null pointer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataStr {
    pub data: *const u8,
    /// Bytes.
    pub len: u64,
}

impl StrataStr {
    pub const EMPTY: StrataStr = StrataStr { data: core::ptr::null(), len: 0 };

    /// Borrows a static text, whose lifetime satisfies every rule of the header.
    pub const fn from_static(text: &'static str) -> StrataStr {
        StrataStr { data: text.as_ptr(), len: text.len() as u64 }
    }

    /// Borrows a text for the length of a call; the caller keeps it alive.
    pub fn borrow(text: &str) -> StrataStr {
        StrataStr { data: text.as_ptr(), len: text.len() as u64 }
    }

    /// Copies the text out, at most `limit` bytes, broken UTF-8 replaced.
    ///
    /// # Safety
    /// `data` is null or valid for reading `len` bytes.
    pub unsafe fn to_string_lossy(self, limit: usize) -> String {
        if self.data.is_null() || self.len == 0 {
            return String::new();
        }
        let len = usize::try_from(self.len).unwrap_or(usize::MAX).min(limit);
        // SAFETY: the caller guarantees `data` for `self.len` bytes, and `len` is not more.
        let bytes = unsafe { core::slice::from_raw_parts(self.data, len) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// A caller-owned place for text. The callee writes the first `capacity` bytes of the UTF-8 text and
/// sets `len` to the whole text's length, so that a caller can tell that it was cut. A cut may fall
/// inside a character.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataTextOut {
    pub data: *mut u8,
    /// Bytes that `data` has room for.
    pub capacity: u64,
    /// Set by the callee: bytes of the whole text.
    pub len: u64,
}

/// A handle: which plugin instance made it, and that plugin's own number (0 is no handle).
/// The host checks the instance before every call, so a handle never reaches another plugin.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StrataHandle {
    pub instance: u64,
    pub id: u64,
}

impl StrataHandle {
    pub const NONE: StrataHandle = StrataHandle { instance: 0, id: 0 };
}

// SAFETY: only static or call-length texts are ever shared; the pointer is never written through.
unsafe impl Send for StrataStr {}
// SAFETY: as above, reading only.
unsafe impl Sync for StrataStr {}
