//! The tokens: text, kind and bytes of each, and the way from a text to its id.

use super::error::TextError;
use super::hash::Key;
use super::merge::NONE;

/// What a token is, as the file numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    Undefined,
    /// A piece of text.
    Normal,
    /// Stands for what cannot be written.
    Unknown,
    /// Structure, not text: its text is recognised only on request, and not shown on decoding.
    Control,
    /// Text that is always this one token.
    UserDefined,
    Unused,
    /// One byte, written `<0x0A>`.
    Byte,
}

impl TokenKind {
    /// From the numbers of `tokenizer.ggml.token_type`; unheard-of ones are undefined.
    pub fn from_number(number: i64) -> TokenKind {
        match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Undefined,
        }
    }
}

/// How the text of a normal token stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// GPT-2's: one printable character for each byte.
    ByteCharacters,
    /// SentencePiece's: UTF-8, with U+2581 for a blank.
    Blanks,
}

/// U+2581, which SentencePiece writes for a blank.
pub(super) const BLANK: char = '\u{2581}';

/// Many strings, end to end.
#[derive(Debug, Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Strings {
    /// `None` when four GiB are full.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(u32::try_from(self.bytes.len()).ok()?);
        Some(())
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.bytes.get(start..end)
    }
}

/// All tokens. Texts and bytes lie end to end: a vocabulary of 262,144 would otherwise be half a
/// million allocations.
#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: Strings,
    /// What each token decodes to.
    pieces: Strings,
    kinds: Vec<TokenKind>,
    /// Open addressing: ids, or [`NONE`] where there is none. Twice as long as there are tokens, and
    /// the hash has a random key, so no file can be made that fills one corner of it.
    slots: Vec<u32>,
    key: Key,
}

impl Vocabulary {
    pub(super) fn new(texts: &[&str], kinds: Vec<TokenKind>, writing: Writing) -> Result<Self, TextError> {
        let mut vocabulary = Vocabulary {
            texts: Strings::default(),
            pieces: Strings::default(),
            kinds,
            slots: vec![NONE; (texts.len() * 2).next_power_of_two()],
            key: Key::random(),
        };
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        vocabulary.texts.bytes.reserve_exact(bytes);
        vocabulary.texts.ends.reserve_exact(texts.len());
        vocabulary.pieces.bytes.reserve_exact(bytes);
        vocabulary.pieces.ends.reserve_exact(texts.len());
        let mut piece = Vec::new();
        for (id, text) in (0..).zip(texts) {
            piece.clear();
            write_piece(text, vocabulary.kinds[id as usize], writing, &mut piece)
                .ok_or_else(|| bad("tokens", format!("hold a byte token {id} with the text `{text}`")))?;
            let pushed = vocabulary.texts.push(text.as_bytes()).and_then(|()| vocabulary.pieces.push(&piece));
            pushed.ok_or_else(|| bad("tokens", "take more than 4 GiB".to_owned()))?;
            vocabulary.insert(id, text);
        }
        Ok(vocabulary)
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        // Texts came in as `&str`.
        self.texts.get(id as usize).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// What the token decodes to, whatever its kind.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id as usize)
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Makes a token another kind than the file says. What it decodes to becomes its text.
    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(known) = self.kinds.get_mut(id as usize) {
            *known = kind;
        }
    }

    /// The token with this text, or [`NONE`]. Of several the first.
    pub(super) fn find(&self, text: &str) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = self.key.hash(text.as_bytes()) as usize & mask;
        loop {
            let id = self.slots[slot];
            if id == NONE || self.texts.get(id as usize) == Some(text.as_bytes()) {
                return id;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// As [`Vocabulary::find`].
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        Some(self.find(text)).filter(|id| *id != NONE)
    }

    fn insert(&mut self, id: u32, text: &str) {
        // Nothing is written as an empty text; files fill gaps in their numbering with them.
        if text.is_empty() {
            return;
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.key.hash(text.as_bytes()) as usize & mask;
        while self.slots[slot] != NONE {
            if self.texts.get(self.slots[slot] as usize) == Some(text.as_bytes()) {
                return;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = id;
    }
}

pub(super) fn bad(place: &str, problem: String) -> TextError {
    TextError::BadTokenizer { place: place.to_owned(), problem }
}

/// Appends what a token decodes to; `None` for a byte token that names no byte.
fn write_piece(text: &str, kind: TokenKind, writing: Writing, piece: &mut Vec<u8>) -> Option<()> {
    match (kind, writing) {
        (TokenKind::Byte, _) => piece.push(byte_of(text)?),
        (TokenKind::Control | TokenKind::Unknown, _) | (TokenKind::UserDefined, Writing::ByteCharacters) => {
            piece.extend_from_slice(text.as_bytes());
        }
        (_, Writing::ByteCharacters) => {
            for character in text.chars() {
                match byte_of_character(character) {
                    Some(byte) => piece.push(byte),
                    None => piece.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
        (_, Writing::Blanks) => {
            for (index, part) in text.split(BLANK).enumerate() {
                if index > 0 {
                    piece.push(b' ');
                }
                piece.extend_from_slice(part.as_bytes());
            }
        }
    }
    Some(())
}

/// The byte that `<0x0A>` means.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Bytes that GPT-2's writing shows as the character of the same number. The others, in order,
/// are the characters from U+0100 on.
fn shows_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// GPT-2's character for each byte.
pub(super) fn byte_characters() -> [char; 256] {
    let mut moved = 0x100..;
    std::array::from_fn(|byte| {
        let code = if shows_itself(byte as u8) { byte as u32 } else { moved.next().unwrap_or_default() };
        char::from_u32(code).unwrap_or_default()
    })
}

/// The byte that a character of GPT-2's writing stands for.
fn byte_of_character(character: char) -> Option<u8> {
    let code = character as u32;
    if code < 0x100 {
        return Some(code as u8).filter(|byte| shows_itself(*byte));
    }
    let nth = usize::try_from(code - 0x100).ok()?;
    (0..=0xff).filter(|byte| !shows_itself(*byte)).nth(nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_its_character_and_back() {
        let characters = byte_characters();
        for (byte, character) in (0..=0xff).zip(characters) {
            assert_eq!(byte_of_character(character), Some(byte));
        }
        assert_eq!((characters[b' ' as usize], characters[b'\n' as usize], characters[0xad]), ('Ġ', 'Ċ', '\u{143}'));
        assert_eq!(byte_of_character('\u{144}'), None);
        assert_eq!(byte_of_character('日'), None);
    }

    #[test]
    fn byte_tokens_are_two_hexadecimal_digits() {
        assert_eq!(byte_of("<0x0A>"), Some(10));
        assert_eq!(byte_of("<0xff>"), Some(255));
        for wrong in ["<0x>", "<0xA>", "<0x+A>", "<0x0AB>", "0x0A", "<0xé>", ""] {
            assert_eq!(byte_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_of_equal_texts_is_found_and_empty_ones_never() {
        let kinds = vec![TokenKind::Normal; 4];
        let vocabulary = Vocabulary::new(&["a", "", "b", "a"], kinds, Writing::Blanks).unwrap();
        assert_eq!(vocabulary.id_of("a"), Some(0));
        assert_eq!(vocabulary.id_of("b"), Some(2));
        assert_eq!(vocabulary.id_of(""), None);
        assert_eq!(vocabulary.id_of("c"), None);
        assert_eq!(Vocabulary::new(&[], vec![], Writing::Blanks).unwrap().id_of("a"), None);
    }
}
