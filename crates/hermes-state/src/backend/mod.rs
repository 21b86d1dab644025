pub(crate) mod sqlite;
