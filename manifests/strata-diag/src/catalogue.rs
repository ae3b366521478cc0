//! Every failure a user can meet. A code is never reused and never changes its meaning; each
//! has a page `docs/errors/<id>.md` and a test, which `cargo xtask tidy` compares with this list.
//!
//! Ranges: S00xx command line and files, S01xx model files, S02xx tokenizer and template,
//! S03xx plugins and devices, S04xx engine and requests, S05xx packages, S06xx fetching,
//! S07xx installing, S08xx serving.

use crate::ExitStatus;

pub mod engine;
pub mod fetching;
pub mod general;
pub mod installing;
pub mod model;
pub mod packages;
pub mod plugin;
pub mod serving;
pub mod text;

/// One entry of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// `S0104`.
    pub id: &'static str,
    /// `truncated-model`: the same thing for people and scripts that read names.
    pub name: &'static str,
    /// What happened in general, half a sentence; the page's title.
    pub title: &'static str,
    /// How the program ends because of it.
    pub exit: ExitStatus,
}

/// All codes, by room.
pub fn all() -> impl Iterator<Item = &'static Code> {
    [
        general::CODES,
        model::CODES,
        text::CODES,
        plugin::CODES,
        engine::CODES,
        packages::CODES,
        fetching::CODES,
        installing::CODES,
        serving::CODES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Looks a code up by id or by name, as `strata explain` takes it.
pub fn find(id_or_name: &str) -> Option<&'static Code> {
    all().find(|code| code.id.eq_ignore_ascii_case(id_or_name) || code.name == id_or_name)
}

macro_rules! codes {
    ($($(#[$doc:meta])* $konst:ident = $id:literal, $name:literal, $title:literal, $exit:ident;)*) => {
        $($(#[$doc])* pub const $konst: &$crate::Code = &$crate::Code {
            id: $id,
            name: $name,
            title: $title,
            exit: $crate::ExitStatus::$exit,
        };)*
        /// The codes of this range, in order.
        pub const CODES: &[&$crate::Code] = &[$($konst),*];
    };
}
pub(crate) use codes;
