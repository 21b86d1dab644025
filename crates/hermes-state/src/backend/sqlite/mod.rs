pub(crate) mod lock;
pub(crate) mod store;
