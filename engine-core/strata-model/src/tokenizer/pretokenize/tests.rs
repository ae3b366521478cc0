//! The scanners against the expressions they stand for, run by a backtracking engine.

use super::*;
use fancy_regex::Regex;
use proptest::prelude::*;

const GPT2_EXPRESSION: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3_EXPRESSION: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2_EXPRESSION: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The published expressions, by one name of each entry.
const EXPRESSIONS: &[(&str, &[&str])] = &[
    ("default", &[r"[\p{P}\$\+<=>\^~\|]+", GPT2_EXPRESSION, r"\p{N}+", r"[0-9][0-9][0-9]"]),
    ("gpt-2", &[GPT2_EXPRESSION]),
    ("smollm", &[r"\p{N}", GPT2_EXPRESSION]),
    ("llama-bpe", &[LLAMA3_EXPRESSION]),
    ("glm4", &[LLAMA3_EXPRESSION]),
    ("dbrx", &[LLAMA3_EXPRESSION]),
    (
        "minicpm5",
        &[
            r"\p{N}{1,3}",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("qwen2", &[QWEN2_EXPRESSION]),
    (
        "bailingmoe",
        &[r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    ),
    (
        "qwen35",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "seed-coder",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("ufakzeka", &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    ("laguna", &[r"[^\n]+|[\n]+", QWEN2_EXPRESSION]),
    (
        "tekken",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "gpt-4o",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("falcon", &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_EXPRESSION, r"[0-9][0-9][0-9]"]),
    (
        "deepseek-coder",
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+", r"\p{N}"],
    ),
    (
        "deepseek-llm",
        &[
            r"[\r\n]",
            r"\s?[[\p{Lu}\p{Ll}\p{Lt}]&&[^\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c8f}\x{2d00}-\x{2d2d}\x{a790}-\x{a7ff}\x{ab30}-\x{ab6f}\x{10570}-\x{105bc}\x{10d50}-\x{10d85}\x{16e40}-\x{16eff}\x{1d400}-\x{1d7cb}\x{1df00}-\x{1dfff}]]+",
            "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
            r"\s+$",
            "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            r"\p{N}+",
        ],
    ),
    (
        "deepseek-v3",
        &[
            r"\p{N}{1,3}",
            "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
    ),
];

fn by_expressions<'t>(expressions: &[Regex], text: &'t str) -> Vec<&'t str> {
    let Some((expression, rest)) = expressions.split_first() else { return vec![text] };
    let mut pieces = Vec::new();
    let mut gap = 0;
    for found in expression.find_iter(text) {
        let found = found.unwrap();
        pieces.push(&text[gap..found.start()]);
        pieces.push(found.as_str());
        gap = found.end();
    }
    pieces.push(&text[gap..]);
    pieces.retain(|piece| !piece.is_empty());
    pieces.into_iter().flat_map(|piece| by_expressions(rest, piece)).collect()
}

fn by_scanners<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let mut words = Vec::new();
    PreTokenizer::named(name).unwrap().split(text, &mut |word| words.push(word));
    words
}

fn compiled() -> &'static [(&'static str, Vec<Regex>)] {
    static COMPILED: std::sync::OnceLock<Vec<(&'static str, Vec<Regex>)>> = std::sync::OnceLock::new();
    COMPILED.get_or_init(|| {
        let compile = |source: &&str| Regex::new(source).unwrap();
        EXPRESSIONS.iter().map(|(name, sources)| (*name, sources.iter().map(compile).collect())).collect()
    })
}

#[track_caller]
fn check(text: &str) {
    for (name, expressions) in compiled() {
        assert_eq!(by_scanners(name, text), by_expressions(expressions, text), "`{name}` on {text:?}");
    }
}

/// Characters that the alternatives tell apart, several of each kind.
fn telling_character() -> impl Strategy<Value = char> {
    prop_oneof![
        6 => proptest::sample::select("  \n\r\t\u{a0}\u{2003}\u{3000}\u{85}\u{2028}".chars().collect::<Vec<_>>()),
        6 => proptest::sample::select("strevmldSTREVMLDaZ\u{17f}".chars().collect::<Vec<_>>()),
        3 => proptest::sample::select("''’/.,!$+<=>^~|`_-(".chars().collect::<Vec<_>>()),
        3 => proptest::sample::select("0189٣१½Ⅷ①𝟘".chars().collect::<Vec<_>>()),
        3 => proptest::sample::select("éßДжǅªʰ中日龥かナ한ไनא𝒜".chars().collect::<Vec<_>>()),
        3 => proptest::sample::select("\u{301}\u{94d}\u{e31}\u{fe0f}\u{20dd}".chars().collect::<Vec<_>>()),
        2 => proptest::sample::select("\u{0}\u{7f}\u{200d}\u{feff}\u{e000}\u{378}🍕€".chars().collect::<Vec<_>>()),
        1 => any::<char>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn scanners_equal_their_expressions(text in proptest::collection::vec(telling_character(), 0..24)) {
        check(&text.into_iter().collect::<String>());
    }
}

#[test]
fn scanners_equal_their_expressions_on_known_traps() {
    for text in [
        "",
        "don't DON'T we'LL I'Ve 'sx 'ſ 'ſt x'Re'd",
        "a  b   c\n\n  d \r\n\r\ne \t",
        "   \n  \n x",
        "\n x\n",
        "12345 1234 ١٢٣٤ ½¾ 1a2",
        "FooBarBAZ fooBAR ǅx ªABC ABCª中Xx É\u{301}A",
        "\u{301}\u{301} \u{301}a \u{301}A \u{301}",
        "//\n/ /\r\n// path/to",
        "#include <a.h>\n!!!\n\n...x",
        "日本語かな한국어 ไทย हिन्दी",
        "a\u{200d}b\u{0}c\u{e000}",
        "$100 + `x` ^y^ ~z~ |",
        "123\n456\n\n\n",
    ] {
        check(text);
    }
}

#[test]
fn every_entry_has_its_expression_here() {
    for (names, ..) in KNOWN {
        assert!(names.iter().any(|name| EXPRESSIONS.iter().any(|(known, _)| known == name)), "{names:?}");
    }
}

#[test]
fn no_name_stands_twice() {
    let mut names: Vec<_> = KNOWN.iter().flat_map(|(names, ..)| names.iter()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

/// A scanner that looked at the rest of the text for each word would need minutes here.
#[test]
fn long_runs_take_linear_time() {
    for unit in ["a", " ", "\n", "1", "A", "\u{301}", ".", "ªA", " \n", "'", "\u{0}"] {
        let text = unit.repeat((1 << 20) / unit.len());
        for (name, _) in EXPRESSIONS {
            let mut bytes = 0;
            PreTokenizer::named(name).unwrap().split(&text, &mut |word| bytes += word.len());
            assert_eq!(bytes, text.len());
        }
    }
}
