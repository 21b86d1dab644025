//! Merging.
