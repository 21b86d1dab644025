//! The transcript as a conversation for replay (not yet written).
