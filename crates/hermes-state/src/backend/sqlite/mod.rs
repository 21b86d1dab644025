pub(crate) mod lock;
pub(crate) mod schema;
pub(crate) mod store;
