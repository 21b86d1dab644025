pub(crate) mod lock;
pub(crate) mod siblings;
pub(crate) mod store;
