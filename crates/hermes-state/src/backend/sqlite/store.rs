//! stub
#[derive(Default)]
pub(crate) struct OpenStores {}
