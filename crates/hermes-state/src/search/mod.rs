//! Searching, as far as it is the same on every engine: what people type, what it means, and how text is cut into words.

pub(crate) mod cjk;
pub(crate) mod expression;
pub(crate) mod hit;
pub(crate) mod index;
pub(crate) mod rows;
pub(crate) mod snippet;
pub(crate) mod text;
pub(crate) mod tokens;
