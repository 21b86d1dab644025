//! Searching, as far as it is the same on every engine: what people type, what it means, and how text is cut into words.
#![cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "words, marks and terms of a file's search are SQLite's; a server's are made here")
)]

pub(crate) mod cjk;
pub(crate) mod cjk_tokenizer;
pub(crate) mod expression;
pub(crate) mod hit;
pub(crate) mod index;
pub(crate) mod rows;
pub(crate) mod snippet;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod trigram_tokenizer;
pub(crate) mod upkeep;
mod wrapped_tokenizer;
