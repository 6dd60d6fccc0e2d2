//! How OpenAI's models turn text into tokens (`GW-03`).
//!
//! The tables are large and take long to build, so they are behind the feature `openai-tokenizer`. Without it no model has an encoding,
//! and text is counted by its bytes.

#[cfg(feature = "openai-tokenizer")]
use bpe_openai::{Tokenizer, cl100k_base, o200k_base};

use crate::model_name::openai_name;

/// An encoding that OpenAI has published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Cl100kBase,
    O200kBase,
}

/// The names of models by how they begin; the first that fits counts.
const MODELS: [(&str, Encoding); 17] = [
    ("gpt-3.5", Encoding::Cl100kBase),
    ("gpt-35", Encoding::Cl100kBase),
    ("gpt-4o", Encoding::O200kBase),
    ("gpt-4.1", Encoding::O200kBase),
    ("gpt-4.5", Encoding::O200kBase),
    ("gpt-4", Encoding::Cl100kBase),
    ("gpt-5", Encoding::O200kBase),
    ("gpt-oss", Encoding::O200kBase),
    ("chatgpt-4o", Encoding::O200kBase),
    ("o1", Encoding::O200kBase),
    ("o3", Encoding::O200kBase),
    ("o4", Encoding::O200kBase),
    ("codex-mini", Encoding::O200kBase),
    ("computer-use", Encoding::O200kBase),
    ("text-embedding-", Encoding::Cl100kBase),
    ("davinci-002", Encoding::Cl100kBase),
    ("babbage-002", Encoding::Cl100kBase),
];

impl Encoding {
    /// The encoding of a model, by its name; `None` if nobody knows it.
    pub(crate) fn of_model(name: &str) -> Option<Self> {
        if !cfg!(feature = "openai-tokenizer") {
            return None;
        }
        let name = openai_name(name);
        MODELS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, encoding)| *encoding)
    }

    /// The number of tokens of a text.
    #[cfg(feature = "openai-tokenizer")]
    pub(crate) fn tokens(self, text: &str) -> u64 {
        self.tokenizer().count(text) as u64
    }

    /// A token has at least one byte.
    #[cfg(not(feature = "openai-tokenizer"))]
    pub(crate) const fn tokens(self, text: &str) -> u64 {
        text.len() as u64
    }

    /// Reads the tables, which takes about a tenth of a second, so that no call waits for that.
    pub(crate) fn load() {
        #[cfg(feature = "openai-tokenizer")]
        for encoding in [Self::Cl100kBase, Self::O200kBase] {
            encoding.tokenizer();
        }
    }

    #[cfg(feature = "openai-tokenizer")]
    fn tokenizer(self) -> &'static Tokenizer {
        match self {
            Self::Cl100kBase => cl100k_base(),
            Self::O200kBase => o200k_base(),
        }
    }
}

#[cfg(all(test, feature = "openai-tokenizer"))]
mod tests {
    use super::*;

    /// GW-03
    #[test]
    fn gw_03_a_model_has_the_encoding_that_openai_has_published() {
        for (name, encoding) in [
            ("gpt-4o", Some(Encoding::O200kBase)),
            ("gpt-4o-2024-08-06", Some(Encoding::O200kBase)),
            ("gpt-4.1-mini", Some(Encoding::O200kBase)),
            ("gpt-4-turbo", Some(Encoding::Cl100kBase)),
            ("gpt-3.5-turbo", Some(Encoding::Cl100kBase)),
            ("ft:gpt-4o-mini:acme::id", Some(Encoding::O200kBase)),
            ("openai/gpt-oss-120b", Some(Encoding::O200kBase)),
            ("o3-pro", Some(Encoding::O200kBase)),
            ("text-embedding-3-large", Some(Encoding::Cl100kBase)),
            ("llama-3.3-70b", None),
            ("mistral-large", None),
        ] {
            assert_eq!(Encoding::of_model(name), encoding, "{name}");
        }
    }

    /// GW-03: the counts of OpenAI's own library.
    #[test]
    fn gw_03_texts_have_the_published_numbers_of_tokens() {
        for (text, cl100k, o200k) in [
            ("", 0, 0),
            ("hello world", 2, 2),
            ("tiktoken is great!", 6, 6),
            ("antidisestablishmentarianism", 6, 6),
            ("2 + 2 = 4", 7, 7),
            ("お誕生日おめでとう", 9, 8),
        ] {
            let counts = (Encoding::Cl100kBase.tokens(text), Encoding::O200kBase.tokens(text));
            assert_eq!(counts, (cl100k, o200k), "{text}");
        }
    }
}
